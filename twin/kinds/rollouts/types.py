"""The nouns of rollouts: what is asked, where it runs, the rules of an iteration, what happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

NAME: Final = "rollouts"
"""Of the kind that these nouns are of."""

Spent = Literal["decode", "prefill", "idle"]

SPENT: Final[dict[Spent, str]] = {
    "decode": "writing",
    "prefill": "prompts, answers of environments, and caches that are made again",
    "idle": "nothing to do: waiting for environments, or for the last requests elsewhere",
}
"""How an engine spends its time, in words."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: tokens of its prompt, tokens that each turn writes, tokens that come back after
    each turn but the last, and nanoseconds until they do."""

    prompt: int
    written: tuple[int, ...]
    read: tuple[int, ...] = ()
    waits_ns: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens that it writes."""
        return sum(self.written)

    @property
    def longest(self) -> int:
        """Tokens of its cache at the end."""
        return self.prompt + self.tokens + sum(self.read)


@dataclass(frozen=True, slots=True)
class Place:
    """The engines: how many, and tokens of cache and sequences that each has room for."""

    engines: int
    tokens: int
    sequences: int
    sandboxes: int | None = None
    """Environments at a time, over all engines; None: as many as are asked for."""
    keeps_cache: bool = True
    """Whether a request that waits for its environment keeps its room."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When an iteration ends: once this many requests are done, and with at most so many tokens of
    each; None: with the last one."""

    done: int | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests are in which state, from a moment on."""

    ns: int
    running: int
    waiting: int
    """For an environment."""
    queued: int
    """For room on an engine, or for a sandbox."""


@dataclass(frozen=True, slots=True)
class RolloutIteration:
    """One iteration as it was played."""

    begin_ns: int
    end_ns: int
    done_ns: tuple[int, ...]
    """When requests were done, in order."""
    carried: int
    """Requests that the next iteration goes on with."""
    written: int
    """Tokens that were written."""
    prefilled: int
    """Tokens that were prefilled, those made again among them."""
    again: int
    """Tokens whose cache was made again, since the policy has changed or the room was given up."""
    spent_ns: Mapping[Spent, int]
    """Of all engines together; sums to engines x length."""
    loads: tuple[Load, ...] = ()
    lengths: tuple[int, ...] = ()
    """Tokens of the requests that were done, prompts and answers of environments included, in the
    order in which they were begun: who is done late is no sooner or later in training."""
    away_ns: int = 0
    """Of the engines' idle time that in which some request waited for its environment."""

    @property
    def length_ns(self) -> int:
        """Nanoseconds from begin to end."""
        return self.end_ns - self.begin_ns

    @property
    def tokens_per_second(self) -> float:
        """Tokens written per second, over all engines."""
        return self.written * 1e9 / self.length_ns if self.length_ns else 0.0

    def at(self, share: float) -> int | None:
        """Nanoseconds from the begin until so many of the requests that were done were; None where
        none was."""
        if not self.done_ns:
            return None
        place = min(len(self.done_ns), max(1, round(share * len(self.done_ns)))) - 1
        return self.done_ns[place] - self.begin_ns

    @property
    def tail(self) -> float:
        """Share of the iteration that is left once nine of ten requests are done: the long tail."""
        nine = self.at(0.9)
        return 0.0 if nine is None or not self.length_ns else 1.0 - nine / self.length_ns


@dataclass(frozen=True, slots=True)
class RolloutTrace:
    """All iterations, in order; the requests that were done, with how many tokens; those that are
    left, with what they have written."""

    iterations: tuple[RolloutIteration, ...]
    done: Mapping[int, int] = field(default_factory=dict[int, int])
    left: Mapping[int, int] = field(default_factory=dict[int, int])
    events: int = 0

    @property
    def written(self) -> int:
        """Tokens of all iterations."""
        return sum(one.written for one in self.iterations)

    @property
    def length_ns(self) -> int:
        """Nanoseconds of all iterations."""
        return sum(one.length_ns for one in self.iterations)


@dataclass(frozen=True, slots=True)
class BothTraces:
    """Rollouts as they are, and without partial ones."""

    kind: ClassVar[str] = NAME

    trace: RolloutTrace
    patient: RolloutTrace | None
    """None where there are no partial rollouts to leave out."""
