"""Requests drawn from their distributions: same seed, same requests."""

from __future__ import annotations

from math import log
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from twin.kinds.rollouts.types import Sample
from twin.spec.rollout import (
    Constant,
    EnvironmentSpec,
    Histogram,
    Lengths,
    LogNormal,
    Pareto,
    RolloutSpec,
)

Whole: TypeAlias = NDArray[np.int64]


def draw(spec: RolloutSpec, count: int, seed: int) -> tuple[Sample, ...]:
    """So many requests. What is written is spread evenly over the turns, each of which writes at
    least one token."""
    dice = np.random.default_rng([spec.seed, seed])
    prompts = numbers(spec.prompt, count, dice)
    turns = numbers(spec.turns, count, dice)
    written = np.maximum(numbers(spec.written, count, dice), turns)
    waits = _waits(spec.environment, int(turns.sum()), dice)
    found: list[Sample] = []
    used = 0
    for prompt, tokens, parts in zip(prompts, written, turns, strict=True):
        between = int(parts) - 1
        latencies = tuple(int(one) for one in waits[used : used + between])
        used += between
        read = (spec.read,) * between
        found.append(Sample(int(prompt), _parts(int(tokens), int(parts)), read, latencies))
    return tuple(found)


def numbers(lengths: Lengths, count: int, dice: np.random.Generator) -> Whole:
    """So many whole numbers of a distribution, each at least 1."""
    match lengths:
        case Constant():
            drawn = np.full(count, lengths.each)
        case LogNormal():
            middle = log(lengths.mean) - lengths.sigma**2 / 2
            drawn = np.minimum(np.exp(dice.normal(middle, lengths.sigma, count)), lengths.longest)
        case Pareto():
            drawn = lengths.least * (1.0 - dice.random(count)) ** (-1.0 / lengths.shape)
            drawn = np.minimum(drawn, lengths.longest)
        case Histogram():
            edges, weights = np.array(lengths.edges), np.array(lengths.counts, dtype=float)
            bins = dice.choice(len(weights), count, p=weights / weights.sum())
            drawn = edges[bins] + dice.random(count) * (edges[bins + 1] - edges[bins])
    return np.maximum(1, np.rint(drawn)).astype(np.int64)


def _waits(spec: EnvironmentSpec | None, count: int, dice: np.random.Generator) -> Whole:
    """Nanoseconds of so many answers."""
    if spec is None:
        return np.zeros(count, dtype=np.int64)
    drawn = spec.latency * np.exp(dice.normal(0.0, spec.sigma, count))
    return np.rint(1e9 * np.minimum(drawn, spec.longest)).astype(np.int64)


def _parts(tokens: int, parts: int) -> tuple[int, ...]:
    each, more = divmod(tokens, parts)
    return (each + 1,) * more + (each,) * (parts - more)
