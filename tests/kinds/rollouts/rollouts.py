"""Rollouts small enough to check by hand: steps of fixed lengths, prompts that take no time."""

from __future__ import annotations

from collections.abc import Sequence

from twin.kinds.rollouts.engine import Lines, StepTable
from twin.kinds.rollouts.plan import Place, RolloutTrace, Rules, Sample
from twin.kinds.rollouts.simulate import play

STEP = 0.01
"""Seconds of a step, whoever decodes."""


def table(slope: float = 0.0, groups: int = 1, prefill: float = 0.0) -> StepTable:
    """Steps of `STEP` seconds and `slope` per cached token; prompts of `prefill` per token."""
    lines = Lines(STEP, slope, STEP, slope)
    fresh = (prefill, 1_000_000 * prefill)
    return StepTable(groups, (1, 10_000), (lines, lines), (1, 1_000_000), fresh, 0.0)


def one_turn(tokens: int, prompt: int = 10) -> Sample:
    return Sample(prompt, (tokens,))


def place(engines: int = 1, sequences: int = 1000, tokens: int = 10**9, **more: object) -> Place:
    return Place(engines, tokens, sequences, **more)  # type: ignore[arg-type]


def played(
    samples: Sequence[Sample],
    where: Place | None = None,
    rules: Rules | None = None,
    steps: StepTable | None = None,
    iterations: int = 1,
) -> RolloutTrace:
    """The samples in every iteration anew, as many as are missing."""

    def fresh(count: int, _: int) -> Sequence[Sample]:
        return [samples[at % len(samples)] for at in range(count)]

    return play(
        fresh, len(samples), steps or table(), where or place(), rules or Rules(), iterations
    )


def seconds(trace: RolloutTrace) -> float:
    return trace.length_ns / 1e9
