"""How well a model uses tools, as two numbers: are its calls valid, and is the task done.

    found = tool_use(environments, generator, steps=16)
    found.validity, found.success          # intervals over environments; `.value` is the share
    found.opened                           # first answers that call, and validly
    found.plays[0].verdict.causes

`validity` is over calls: of a model that calls nothing it is None, and `valid_turns` counts such
a dialogue as one that needed a call and made none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reference.agentic.environment import Environment
from reference.evaluate.calls import Fault
from reference.evaluate.play import Play, play_all
from reference.evaluate.statistics.intervals import Interval, grouped, share
from reference.generate.generator import Generator
from reference.generate.request import Sampling

_GREEDY: Final = Sampling(temperature=0.0, max_tokens=256)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What came of dialogues with tools. Intervals are clustered by environment."""

    plays: tuple[Play, ...]

    @property
    def success(self) -> Interval:
        """Share of environments whose end state is right."""
        return share(grouped((str(at), float(one.verdict.success)) for at, one in _each(self)))

    @property
    def score(self) -> Interval:
        """Mean share of an environment's criteria that hold."""
        return share(grouped((str(at), one.verdict.score) for at, one in _each(self)))

    @property
    def validity(self) -> Interval | None:
        """Share of the calls that are in the template's form, name a declared tool, and have JSON
        arguments that fit its schema; None without any call."""
        pairs = [(str(at), float(one is None)) for at, play in _each(self) for one in play.faults]
        return share(grouped(pairs)) if pairs else None

    @property
    def valid_turns(self) -> Interval:
        """The same with each dialogue that calls nothing as one invalid call: always a number."""
        pairs = [
            (str(at), float(one is None))
            for at, play in _each(self)
            for one in (play.faults or ("form",))
        ]
        return share(grouped(pairs))

    @property
    def opened(self) -> Interval:
        """Share of first answers that make a call, and whose every call is valid."""
        return share(grouped((str(at), float(one.opened)) for at, one in _each(self)))

    @property
    def faults(self) -> dict[Fault, int]:
        """Invalid calls by what is wrong with them."""
        return dict(Counter(one for play in self.plays for one in play.faults if one is not None))

    @property
    def causes(self) -> dict[str, int]:
        """Causes of failed tasks, as the environments name them."""
        return dict(Counter(cause for play in self.plays for cause in play.verdict.causes))

    @property
    def calls(self) -> int:
        """Calls that were begun."""
        return sum(len(play.faults) for play in self.plays)


def _each(found: ToolUse) -> list[tuple[int, Play]]:
    return list(enumerate(found.plays))


def tool_use(
    environments: Sequence[Environment[Any]],
    generator: Generator,
    *,
    steps: int = 16,
    sampling: Sampling = _GREEDY,
    at_once: int = 8,
    metadata: Mapping[str, Any] | None = None,
) -> ToolUse:
    """Plays every environment once and judges end states. `steps` is the budget of a dialogue:
    answers of the model, calls and the user's later turns, together. `metadata` is what the
    embedded rules go by, besides an environment's own `hints`. Raises the generator's errors, other
    than TW552: a dialogue that grows too long ends there and is judged as it stands."""
    return ToolUse(tuple(play_all(environments, generator, steps, sampling, at_once, metadata)))
