"""The configuration of a run of reinforcement learning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from reference.config import PRESETS as OTHERS
from reference.config import BalanceSpec, RunSpec, TrainSpec, find_config, presets, run_section
from reference.convert.trained import Trained, begun_from
from reference.inference.spec import EngineSpec
from reference.optim.schedule import ScheduleSpec
from reference.optim.spec import OptimizerSpec
from reference.rl.beside import PtxSpec
from reference.rl.critique.spec import CritiqueSpec
from reference.rl.latency import EnvironmentsSpec
from reference.rl.learn import ObjectiveSpec
from reference.rl.prompts import PromptsSpec
from reference.rl.rewards import RewardsSpec
from reference.rl.rollout import RolloutSpec
from reference.rl.tasks import TasksSpec
from reference.rl.temperature import TemperatureSpec
from reference.text.spec import DataSpec
from reference.weight_sync.spec import SyncSpec
from twin.errors import Problem, UsageError
from twin.loading.config import load_config
from twin.spec.base import Count, Flag, Spec, Whole
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec

PRESETS: Final = OTHERS / "rl"
"""Configurations that a bare name stands for."""
named = partial(presets, PRESETS)
"""Their names."""
find = partial(find_config, folder=PRESETS)
"""The file that a path or a name means."""


class LearnSpec(Spec):
    """The trainer's part; words that a run has too (`reference.config.TrainSpec`) mean the same."""

    updates: Count = Field(
        default=1, description="optimizer steps of an iteration, over as many parts of its prompts"
    )
    sequence: Annotated[Count, Field(le=10_000_000)] = Field(
        description="tokens of a prompt with its response, at most"
    )
    micro_batch: Count = Field(default=8, description="responses per forward and backward pass")
    precision: Literal["bf16", "fp32", "fp64"] = Field(
        default="bf16", description="of parameters and activations, of both engines"
    )
    seed: Whole = Field(
        default=0, description="of the first weights, where nothing is started from"
    )
    output: str | None = Field(
        default=None,
        description="folder of metrics and checkpoints; null: runs/rl/ and the configuration's "
        "name on the command line, and nothing is written from a program",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="of the trainer; the inference engine runs on the CPU"
    )
    threads: Annotated[Count, Field(le=1024)] = Field(default=1, description="CPU threads")
    deterministic: Flag = Field(
        default=True, description="only algorithms that give the same result twice"
    )
    checkpoint_every: Whole = Field(
        default=10, description="iterations from checkpoint to checkpoint; 0: only at the end"
    )
    keep: Count = Field(default=2, description="newest checkpoints that are kept")


class RlSpec(Spec):
    """One run."""

    start: str | None = Field(
        default=None,
        description="folder of a run, or one of its checkpoints, whose model, tokenizer and "
        "weights are taken; null: `model` and `data` say them, and weights are drawn",
    )
    model: ModelSpec | None = Field(default=None, description="the architecture, without `start`")
    data: DataSpec | None = Field(
        default=None, description="the text that gives the tokenizer, without `start`"
    )
    tasks: Annotated[tuple[TasksSpec, ...], Field(min_length=1)] = Field(
        description="what is learned on"
    )
    iterations: Count = Field(description="rollouts, each with its updates")
    prompts: PromptsSpec = Field(
        default_factory=PromptsSpec, description="how many tasks at a time, and which"
    )
    rollout: RolloutSpec = Field(
        default_factory=RolloutSpec, description="responses, their bounds, and when they pause"
    )
    temperature: TemperatureSpec = Field(
        default_factory=TemperatureSpec, description="of drawing, over the iterations"
    )
    environments: EnvironmentsSpec = Field(
        default_factory=EnvironmentsSpec, description="where worlds run, and how slowly"
    )
    engine: EngineSpec = Field(
        default_factory=EngineSpec, description="memory and work of the inference engine"
    )
    rewards: RewardsSpec = Field(default_factory=RewardsSpec, description="what verdicts are worth")
    critique: CritiqueSpec | None = Field(
        default=None,
        description="who ranks responses to prompts that cannot be verified; null: there are none",
    )
    objective: ObjectiveSpec = Field(default_factory=ObjectiveSpec, description="what is descended")
    ptx: PtxSpec | None = Field(default=None, description="text that is learned beside; null: none")
    update: SyncSpec | None = Field(
        default=None,
        description="how new weights reach the inference engine: through host memory in buckets "
        "(`reference.weight_sync`); null: copied",
    )
    train: LearnSpec = Field(description="updates, lengths, precision, output")
    optimizer: OptimizerSpec = run_section("optimizer")
    schedule: ScheduleSpec = Field(
        default_factory=ScheduleSpec, description="learning rate over the optimizer's steps"
    )
    balance: BalanceSpec = run_section("balance")
    memory: MemorySpec = run_section("memory")


def load_rl(config: str | Path, overrides: Sequence[str] = ()) -> RlSpec:
    """The run of a file, or of a preset by its name, under `a.b=value` overrides. Raises what
    `reference.config.load_run` does."""
    return load_config(RlSpec, find(config), overrides, {("model",): "models"})


def run_of(spec: RlSpec) -> RunSpec:
    """The trainer's run. Raises UsageError TW643 where there is no model, or two, and TW602 where
    `start` is no run."""
    model, data = _text(spec)
    shared = {
        name: getattr(spec.train, name)
        for name in ("sequence", "micro_batch", "precision", "seed", "output", "device")
    }
    shared |= {name: getattr(spec.train, name) for name in ("threads", "deterministic", "keep")}
    train = TrainSpec(
        steps=spec.iterations * spec.train.updates,
        checkpoint_every=spec.train.checkpoint_every,
        evaluate_every=0,
        evaluate_sequences=0,
        final_sequences=0,
        **shared,
    )
    same = {name: getattr(spec, name) for name in ("optimizer", "schedule", "balance", "memory")}
    return RunSpec(model=model, data=data, train=train, start=spec.start, **same)


def _text(spec: RlSpec) -> tuple[ModelSpec, DataSpec]:
    """The model, and the text of its tokenizer."""
    if spec.start is None and spec.model is not None and spec.data is not None:
        return spec.model, spec.data
    if spec.start is None or spec.model is not None or spec.data is not None:
        message = "a run begins with `start`, or with `model` and `data`"
        raise UsageError([Problem("TW643", "start", message, "give the one or the others")])
    before = begun_from(spec.start, "name its folder, or that of `python -m reference.sft`")
    return Trained(Path(spec.start)).model, before.data
