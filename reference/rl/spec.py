"""The configuration of a run of reinforcement learning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from reference.config import PRESETS as OTHERS
from reference.config import ProcessSpec, RunSpec, TrainSpec, UpdatesSpec, find_config, presets
from reference.convert.folder import Trained, begun_from
from reference.inference.spec import EngineSpec
from reference.rl.batches import PtxSpec
from reference.rl.critique.ranking import CritiqueSpec
from reference.rl.environments import EnvironmentsSpec
from reference.rl.objective import ObjectiveSpec
from reference.rl.prompts import PromptsSpec
from reference.rl.rewards import RewardsSpec
from reference.rl.rollout import RolloutSpec, TemperatureSpec
from reference.rl.tasks import TasksSpec
from reference.text.spec import DataSpec
from reference.weight_sync.layout import SyncSpec
from twin.errors import Problem, UsageError
from twin.loading.load import load_config
from twin.spec.base import Count, Whole
from twin.spec.model import ModelSpec

PRESETS: Final = OTHERS / "rl"
"""Configurations that a bare name stands for."""
named = partial(presets, PRESETS)
"""Their names."""
find = partial(find_config, folder=PRESETS)
"""The file that a path or a name means."""


class LearnSpec(ProcessSpec):
    """The trainer's part."""

    updates: Count = 1
    """Optimizer steps of an iteration, over as many parts of its prompts."""
    sequence: Annotated[Count, Field(le=10_000_000)]
    """Most tokens of a prompt with its response."""
    micro_batch: Count = 8
    """Responses per forward and backward pass."""
    pad_to: Count = 1
    """Rows of a micro-batch are as wide as the next multiple of this, up to `sequence`: a CPU
    compiles its products for each new shape, and GPUs choose kernels by it."""
    checkpoint_every: Whole = 10
    """Iterations from checkpoint to checkpoint; 0: only at the end."""


class RlSpec(UpdatesSpec):
    """One run."""

    start: str | None = None
    """Folder of a run, or one of its checkpoints, whose model, tokenizer and weights are taken;
    null: `model` and `data` say them, and weights are drawn."""
    model: ModelSpec | None = None
    """The architecture, without `start`."""
    data: DataSpec | None = None
    """The text that gives the tokenizer, without `start`."""
    tasks: Annotated[tuple[TasksSpec, ...], Field(min_length=1)]
    """What is learned on."""
    iterations: Count
    """Rollouts, each with its updates."""
    prompts: PromptsSpec = PromptsSpec()
    """How many tasks at a time, and which."""
    rollout: RolloutSpec = RolloutSpec()
    """Responses, their bounds, and when they pause."""
    temperature: TemperatureSpec = TemperatureSpec()
    """Of drawing, over the iterations."""
    environments: EnvironmentsSpec = EnvironmentsSpec()
    """Where worlds run, and how slowly."""
    engine: EngineSpec = EngineSpec()
    """Memory and work of the inference engine."""
    rewards: RewardsSpec = RewardsSpec()
    """What verdicts are worth."""
    critique: CritiqueSpec | None = None
    """Who ranks responses to prompts that cannot be verified; null: there are none."""
    objective: ObjectiveSpec = ObjectiveSpec()
    """What is descended."""
    ptx: PtxSpec | None = None
    """Text that is learned beside; null: none."""
    update: SyncSpec | None = None
    """How new weights reach the inference engine: through host memory in buckets
    (`reference.weight_sync`); null: copied."""
    train: LearnSpec
    """Updates, lengths, precision, output."""


def load_rl(config: str | Path, overrides: Sequence[str] = ()) -> RlSpec:
    """The run of a file, or of a preset by its name, under `a.b=value` overrides. Raises what
    `reference.config.load_run` does."""
    return load_config(RlSpec, find(config), overrides, {("model",): "models"})


def run_of(spec: RlSpec) -> RunSpec:
    """The trainer's run. Raises UsageError TW643 where there is no model, or two, and TW602 where
    `start` is no run."""
    model, data = _text(spec)
    same = {name: getattr(spec.train, name) for name in ("sequence", "micro_batch")}
    same |= {name: getattr(spec.train, name) for name in ProcessSpec.model_fields}
    train = TrainSpec(
        steps=spec.iterations * spec.train.updates,
        checkpoint_every=spec.train.checkpoint_every,
        evaluate_every=0,
        evaluate_sequences=0,
        final_sequences=0,
        **same,
    )
    sections = {name: getattr(spec, name) for name in UpdatesSpec.model_fields}
    return RunSpec(model=model, data=data, train=train, start=spec.start, **sections)


def _text(spec: RlSpec) -> tuple[ModelSpec, DataSpec]:
    """The model, and the text of its tokenizer."""
    if spec.start is None and spec.model is not None and spec.data is not None:
        return spec.model, spec.data
    if spec.start is None or spec.model is not None or spec.data is not None:
        message = "a run begins with `start`, or with `model` and `data`"
        raise UsageError([Problem("TW643", "start", message, "give the one or the others")])
    before = begun_from(spec.start, "name its folder, or that of `python -m reference.sft`")
    return Trained(Path(spec.start)).model, before.data
