"""Supervised fine-tuning: `python -m reference.sft CONFIG [--set a.b=value ...]`.

The loop is that of pre-training, `reference.train`, with another run's weights to begin with and
dialogues instead of text: only what the assistant says has targets. Kimi K2's authors fine-tune
with Muon, too, which suits weights that Muon pre-trained (arXiv:2507.20534, section 3.1), so
MuonClip is the default here. CONFIG is a file or the name of a preset; the model, its tokenizer and
the text that this was trained on are those of the run that is named by `start`.

The folder that is written is a run's like any other: it is served, evaluated, converted, resumed
and fine-tuned again. Options and exit codes are those of `reference.train`.

OURS, since K2's report does not say: rates, batch, packing (`reference.text.dialogs`), and
that every learned token of a step counts alike.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reference.config import PRESETS, LoopSpec, RunSpec, find_config
from reference.convert.folder import Trained, begun_from
from reference.text.spec import DialogsSpec
from reference.train import Program
from reference.train import main as train_main
from twin.loading.load import load_config
from twin.spec.base import Whole

TUNED: Final = PRESETS / "sft"
"""Configurations that a bare name stands for."""


class TuneSpec(LoopSpec):
    """One fine-tuning; the sections of `reference.config.LoopSpec`, and these."""

    start: str
    """Folder of the run, or one of its checkpoints, to begin from."""
    dialogs: DialogsSpec
    """What is learned."""
    seed: Whole = 0
    """Of the order of dialogues in each epoch."""


def load_tune(config: str | Path, overrides: Sequence[str] = ()) -> RunSpec:
    """The run of a file, or of a preset by its name, under `a.b=value` overrides.

    Raises what `reference.config.load_run` does, and UsageError TW602 where `start` is no run.
    """
    return run_of(load_config(TuneSpec, find_config(config, TUNED), overrides))


def run_of(tune: TuneSpec) -> RunSpec:
    """The same with the model, the text and so the tokenizer of the run to begin from. Raises
    UsageError TW602 where there is none."""
    fix = "pre-train one with `data.tokenizer.vocab` ten ids below the model's, or name its folder"
    before = begun_from(tune.start, fix)
    shared = {name: getattr(tune, name) for name in TuneSpec.model_fields if name != "seed"}
    return RunSpec(
        model=Trained(Path(tune.start)).model,
        data=before.data.model_copy(update={"seed": tune.seed}),
        **shared,
    )


PROGRAM: Final = Program(
    "python -m reference.sft",
    "Fine-tune a trained model on dialogues.",
    TUNED,
    load_tune,
    "runs/sft",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return train_main(arguments, PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
