"""An engine from the folder of a training run: its newest checkpoint, and its tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch

from reference.config import RunSpec, load_run
from reference.convert.trained import Trained, config_of, is_trained
from reference.inference.engine import Engine, put_weights
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.text.prepare import prepare
from reference.text.tokenizer import Tokenizer
from reference.text.vocabulary import Vocabulary
from twin.errors import Problem, UsageError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}


def load_engine(folder: Path, spec: EngineSpec, precision: str | None = None) -> Engine:
    """The engine of a run's folder, or of one of its checkpoints, in `precision` or that of the
    run. Raises UsageError TW491 where there is no run, and what reading its parts raises."""
    if not is_trained(folder):
        message = f"`{folder}` is no run of `python -m reference.train`"
        fix = "name the run's folder, `train.output`"
        raise UsageError([Problem("TW491", "checkpoint", message, fix)])
    run = _run(folder)
    found = Trained(folder)
    model = Transformer(found.model, dtype=DTYPES[precision or run.train.precision])
    put_weights(model, {name: found.read(name) for name in found.stored})
    return Engine(model, Vocabulary(_tokenizer(run), found.model.vocab), spec)


def _run(folder: Path) -> RunSpec:
    """What the run was."""
    config = config_of(folder)
    if not config.is_file():
        message = f"`{config.parent}` holds no `{config.name}`, which names the tokenizer's text"
        raise UsageError([Problem("TW491", "checkpoint", message, "name the run's folder")])
    return load_run(config)


def _tokenizer(run: RunSpec) -> Tokenizer:
    """The run's: found in its cache by the text's content, or trained on that text again."""
    return prepare(run.data, run.model.vocab).tokenizer
