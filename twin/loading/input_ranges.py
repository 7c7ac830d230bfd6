"""How far an answer may lie off by its inputs: every number behind it that has a range is put to
either end, one at a time, and what that changes adds up as independent errors do, in logarithms.

These are ranges of inputs (catalog parts, the calibration, the links), not residuals: nobody can
say how many of ten cases lie inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import exp, hypot, log
from typing import Any, TypeVar

from pydantic import ValidationError

from twin.errors import ScenarioError
from twin.loading.files import ranges, with_number
from twin.scenario import Scenario

T = TypeVar("T")


def at_both_ends(
    scenario: Scenario, roots: tuple[str, ...], answer: Callable[[Scenario], T]
) -> Iterator[tuple[str, T | None, T | None]]:
    """Every number below these paths that has a range: its path, and the answer at the low and at
    the high end; None where the scenario cannot have that number."""
    for path, low, high in ranges(scenario, roots):
        yield path, _with(scenario, path, low, answer), _with(scenario, path, high, answer)


def _with(scenario: Scenario, path: str, value: Any, answer: Callable[[Scenario], T]) -> T | None:
    try:
        return answer(with_number(scenario, path, value))
    except (ScenarioError, ValidationError):
        return None


def spread(changes: Iterable[Sequence[float]]) -> tuple[float, float]:
    """By which factors an answer may be less and more, where each number's ends change it by these
    factors."""
    low = high = 0.0
    for ends in changes:
        moved = [0.0, *(log(end) for end in ends if end > 0)]
        low, high = hypot(low, min(moved)), hypot(high, max(moved))
    return exp(-low), exp(high)
