"""Seconds of the trainer on what an iteration brings: optimizer steps by the step simulator, and
passes forward only.

A micro-batch of sequences of many lengths is played as `n` equal ones that fill as many tokens.
What depends on n is attention alone, which is linear in 1 / n: two whole n are played, and the line
through both is taken at reach / tokens, the attention that there is. Steps are those of the fast
path (`twin.engine.longest_path`).

A pass forward only has no backward to wait for: m micro-batches flow through the stages one after
the other, as in a flow shop of equal jobs, sum(t) + (m - 1) max(t), t being what each stage takes
for one. Nothing is kept for a backward pass, so no policy of memory is paid for. It leaves out that
a micro-batch of a pass forward may be larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from twin.engine import lower, simulate
from twin.engine.alone import length_alone
from twin.engine.program import SEND_FORWARD, Program, Template
from twin.kinds.iteration.types import Batch
from twin.planning import plan
from twin.planning.types import Plan
from twin.scenario import Scenario
from twin.spec.memory import MemorySpec


@dataclass(frozen=True, slots=True)
class Trained:
    """Nanoseconds of all optimizer steps, and of one pass forward of all sequences."""

    train_ns: int
    score_ns: int


def trained(trainer: Plan, batch: Batch, *, scored: bool) -> Trained:
    """What the trainer takes for a batch; `scored`: it also runs forward only."""
    steps: dict[int, float] = {}
    for count in set(batch.steps):
        steps[count] = between(batch, lambda n, c=count: _step_ns(trainer, batch, c, n))
    score = 0.0
    if scored and batch.steps:
        score = between(batch, lambda n: _forward_ns(trainer, batch, sum(batch.steps), n))
    return Trained(round(sum(steps[count] for count in batch.steps)), round(score))


def between(batch: Batch, of: Callable[[int], int]) -> float:
    """What holds at the batch's own reach, on the line in 1 / n through two whole n."""
    place = batch.reach / batch.tokens
    low = max(1, floor(1 / place))
    at = of(low)
    if abs(place * low - 1) < 1e-9:
        return at
    further = of(low + 1)
    slope = (at - further) / (1 / low - 1 / (low + 1))
    return max(0.0, at + slope * (place - 1 / low))


def micro_batches(trainer: Scenario, least: int) -> int:
    """As many micro-batches as the schedule can run, at least so many: more are empty."""
    own = trainer.parallel
    for count in range(least, least + 4 * own.pipeline * own.virtual):
        if not own.schedule.problems(own.pipeline, own.virtual, count):
            return count
    return least


def _step_ns(trainer: Plan, batch: Batch, count: int, n: int) -> int:
    """An optimizer step of so many micro-batches of n sequences."""
    scenario = _with(trainer, batch, micro_batches(trainer.scenario, count), n)
    return simulate(lower(plan(scenario)), fidelity="fast").step_ns


def _forward_ns(trainer: Plan, batch: Batch, count: int, n: int) -> int:
    scenario = _with(trainer, batch, micro_batches(trainer.scenario, 1), n)
    light: dict[str, Any] = {"memory": MemorySpec(fully_shard=scenario.memory.fully_shard)}
    program = lower(plan(scenario.model_copy(update=light)))
    stages = [0.0] * program.stages
    for chunk, stage in enumerate(program.chunk_map.stage_of):
        stages[stage] += _pass_ns(program, program.passes["F", chunk])
    copies = program.chunk_map.copies
    return round(sum(stages) / copies + (ceil(count / copies) - 1) * max(stages))


def _pass_ns(program: Program, template: Template) -> float:
    kernels = sum(step.kernels for step in template)
    message = program.message.step(SEND_FORWARD).alone_ns(program.capacity)
    taken = max(length_alone(template, program), kernels * program.dispatch_ns)
    return taken + (message if program.stages > 1 else 0.0)


def _with(trainer: Plan, batch: Batch, count: int, n: int) -> Scenario:
    """The trainer with so many micro-batches per step, each of n sequences with as many tokens as
    the batch's have."""
    scenario, own = trainer.scenario, trainer.scenario.parallel
    part = 2 * own.context * own.tensor
    sequence = max(part, ceil(batch.tokens / n / part) * part)
    tokens = trainer.mesh.data * count * n * sequence
    train: dict[str, Any] = {
        "sequence": sequence,
        "global_batch": tokens,
        "tokens": max(tokens, scenario.train.tokens),
    }
    changed: dict[str, Any] = {
        "train": scenario.train.model_copy(update=train),
        "parallel": own.model_copy(update={"micro_batch": n}),
    }
    return scenario.model_copy(update=changed)
