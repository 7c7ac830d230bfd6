"""How long environments take: a log-normal time for each answer, most short and a few very long.

The time of an answer follows from the response and its turn alone. Answers come at a step of the
engine, not at a time: a run with slow environments is repeated bit for bit, and who decodes beside
whom does not hang on the machine's mood. The controller waits for an answer that is not there at
its step.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from math import exp
from statistics import NormalDist
from typing import Annotated

from pydantic import Field, Strict

from twin.spec.base import Count, Duration, Spec, Whole

Spread = Annotated[float, Strict(), Field(ge=0, le=5)]
"""Standard deviation of a logarithm."""


class EnvironmentsSpec(Spec):
    """Where environments run, and how slow they are made to be."""

    workers: Whole = Field(
        default=0,
        description="processes, each with one environment at a time; 0: in this process, one "
        "after the other, and injected latency passes in steps of the engine alone",
    )
    at_once: Count = Field(
        default=64, description="answers that may be under way at a time; with workers, as many"
    )
    latency: Duration = Field(
        default=0.0, description="median of what is added to the time of an answer"
    )
    spread: Spread = Field(
        default=1.0, description="standard deviation of its logarithm: of the long tail"
    )
    longest: Duration = Field(default=60.0, description="where the tail is cut")
    step: Annotated[Duration, Field(gt=0)] = Field(
        default=0.01, description="seconds for which a step of the engine counts in this"
    )

    @property
    def slots(self) -> int:
        """Answers under way at a time."""
        return self.workers or self.at_once


def latency(spec: EnvironmentsSpec, seed: int, turn: int) -> float:
    """Seconds that are added to an answer."""
    if not spec.latency:
        return 0.0
    digest = blake2b(f"latency/{seed}/{turn}".encode(), digest_size=8).digest()
    share = ((int.from_bytes(digest, "little") >> 11) + 0.5) * 2.0**-53
    return min(spec.longest, spec.latency * exp(spec.spread * NormalDist().inv_cdf(share)))


def due(spec: EnvironmentsSpec, seconds: float, now: int, under_way: Iterable[int]) -> int:
    """The step of the engine at which an answer comes that is asked for at step `now`, with others
    under way until their own steps: it waits for a free place first."""
    ends = sorted(under_way)
    begin = ends[len(ends) - spec.slots] if len(ends) >= spec.slots else now
    return max(begin, now) + 1 + int(seconds / spec.step)
