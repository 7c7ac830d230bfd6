"""Rollouts of reinforcement learning: how many requests, how long they are, what environments they
wait for, and when an iteration stops waiting for the last of them."""

from __future__ import annotations

from itertools import pairwise
from math import log
from operator import mul
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, Strict, ValidationInfo, field_validator, model_validator

from twin.errors import FieldError
from twin.spec.base import UNWRITTEN, Count, Duration, Flag, Share, Spec, Tokens, Whole
from twin.spec.inference import EngineSpec
from twin.spec.iteration import IterationSpec
from twin.spec.model import ModelSpec

Positive = Annotated[float, Strict(), Field(gt=0, le=1e9)]
"""A number above nothing: of tokens, or of turns."""
Sigma = Annotated[float, Strict(), Field(ge=0, le=5)]
"""Standard deviation of a natural logarithm."""
MOST: int = 10**8
MOST_TURNS: int = 10**6
"""OURS: turns of all requests that are played; 20 to 30 microseconds of a core each."""


class Constant(Spec):
    """The same for all."""

    kind: Literal["constant"]
    """the same for all"""
    each: Positive
    """what all have"""

    @property
    def average(self) -> float:
        """The mean."""
        return self.each


class LogNormal(Spec):
    """Its logarithm is normal: most are short, few are long."""

    kind: Literal["log_normal"]
    """its logarithm is normal"""
    mean: Positive
    """mean, before `longest` cuts"""
    sigma: Sigma
    """standard deviation of the natural logarithm"""
    longest: Positive = MOST
    """what longer ones are cut to"""

    @property
    def average(self) -> float:
        """The mean, at most: cut ones are shorter."""
        return min(self.mean, self.longest)


class Pareto(Spec):
    """A heavy tail: the chance to be longer than x falls as (least / x)^shape."""

    kind: Literal["pareto"]
    """a heavy tail"""
    least: Positive
    """the shortest"""
    shape: Annotated[float, Strict(), Field(gt=0, le=100)]
    """how fast the tail falls; up to 1 it has no mean but for `longest`"""
    longest: Positive = MOST
    """what longer ones are cut to"""

    @property
    def average(self) -> float:
        """The mean: `least`, and what the chance to be longer than x sums up to from there on."""
        if self.longest <= self.least:
            return self.longest
        ratio, more = self.longest / self.least, 1.0 - self.shape
        tail = log(ratio) if more == 0.0 else (ratio**more - 1.0) / more
        return self.least * (1.0 + tail)


class Histogram(Spec):
    """As measured: alike within each bin."""

    kind: Literal["histogram"]
    """as measured"""
    edges: tuple[Positive, ...] = Field(min_length=2)
    """ends of the bins, ascending"""
    counts: tuple[Whole, ...] = Field(min_length=1)
    """how many were in each bin"""

    @property
    def average(self) -> float:
        """The mean."""
        middles = ((a + b) / 2 for a, b in pairwise(self.edges))
        return sum(map(mul, middles, self.counts)) / sum(self.counts)

    @model_validator(mode="after")
    def _bins_are_bins(self) -> Histogram:
        ascending = all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False))
        if len(self.edges) != len(self.counts) + 1 or not ascending or not sum(self.counts):
            message = "a histogram has ascending edges, one more than counts, and something in it"
            raise FieldError("TW184", message, "write `edges: [1, 10, 100]`, `counts: [5, 2]`")
        return self


Lengths: TypeAlias = Annotated[
    Constant | LogNormal | Pareto | Histogram, Field(discriminator="kind")
]
"""How a length or a number is spread over requests."""


class EnvironmentSpec(Spec):
    """What a request waits for between its turns."""

    latency: Duration
    """median time of an answer"""
    sigma: Sigma = 0.0
    """standard deviation of its natural logarithm; 0: always the same"""
    longest: Duration = 86400.0
    """after which an answer is given up"""
    sandboxes: Count = 10_000
    """environments at a time; a request has one from its first turn to its last. Kimi K2 has over
    10,000"""
    keeps_cache: Flag = True
    """what a request has cached stays while it waits"""


class PartialSpec(Spec):
    """When an iteration stops waiting: requests that are not done are paused and go on in the next
    one, their cache made again by the new policy (Kimi k1.5, arXiv:2501.12599, section 2.6.2; Kimi
    K2, section 3.3.4)."""

    finished: Share | None = None
    """an iteration ends once this share of its requests is done"""
    at_most: Tokens | None = None
    """tokens that a request may write in one iteration"""

    @model_validator(mode="after")
    def _one_rule(self) -> PartialSpec:
        if self.finished is None and self.at_most is None:
            message = "partial rollouts end by a share that is `finished`, or write `at_most`"
            raise FieldError("TW184", message, "write `finished: 0.9`, or `at_most: 32768tok`")
        return self


class PrefillSpec(Spec):
    """Engines that only prefill; the others get caches from them over the fabric."""

    engine: EngineSpec
    """one such engine; its model is that of the engines that write"""
    nodes: Count
    """nodes that prefill, of those that roll out"""


class RolloutSpec(Spec):
    """One iteration's rollouts, and how many iterations are played."""

    model: ModelSpec | None = None
    """null: the model that is trained"""
    engine: EngineSpec
    """one inference engine"""
    prefill: Annotated[PrefillSpec | None, UNWRITTEN] = None
    """engines that only prefill; null: each engine prefills its own prompts"""
    arrivals: Annotated[Positive | None, UNWRITTEN] = None
    """requests that come per second, at random times (a Poisson process), as users of a service
    do; null: all are there at the beginning"""
    nodes: Count | None = None
    """nodes that roll out; null: all of the cluster"""
    requests: Annotated[Count, Field(le=1_000_000)]
    """requests of an iteration: prompts x samples of each"""
    prompt: Lengths
    """tokens of the prompt of a request"""
    written: Lengths
    """tokens that a request writes, all turns together"""
    turns: Lengths = Constant(kind="constant", each=1.0)
    """turns of a request"""
    read: Whole = 0
    """tokens that come back from a turn's environment"""
    environment: EnvironmentSpec | None = None
    """null: nothing is waited for between turns"""
    partial: PartialSpec | None = None
    """null: an iteration waits for its last request"""
    iterations: Annotated[Count, Field(le=1000, validate_default=True)] = 1
    """iterations in a row; partial rollouts need some to settle"""
    seed: Whole = 0
    """of all lengths and latencies"""

    @field_validator("iterations")
    @classmethod
    def _little_enough(cls, iterations: int, info: ValidationInfo) -> int:
        requests, turns = info.data.get("requests", 0), info.data.get("turns")
        each = requests * max(1.0, turns.average if turns else 1.0)
        if iterations * each > MOST_TURNS:
            message = (
                f"{iterations:,} iterations of {requests:,} requests are {iterations * each:,.0f} "
                f"turns: more than the {MOST_TURNS:,} that are played"
            )
            fix = f"write at most {int(MOST_TURNS // each):,}" if each <= MOST_TURNS else ""
            raise FieldError(
                "TW184", message, fix or "write fewer requests, or fewer turns of each"
            )
        return iterations


class RlSpec(Spec):
    """Reinforcement learning around the training run."""

    rollout: RolloutSpec
    """what engines write in an iteration"""
    iteration: IterationSpec | None = None
    """what happens to it: training, weight update, switches; null: rollouts alone"""
