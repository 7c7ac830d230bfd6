"""What `twin sweep` varies."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from twin.errors import FieldError
from twin.spec.base import Spec
from twin.spec.expect import find_figure
from twin.spec.kpis import ITERATION_KPIS, KPIS, ROLLOUT_KPIS

_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_NUMBER: Final = r"([-+]?\d+(?:\.\d+)?)([A-Za-z/]*)"
_RANGE = re.compile(rf"{_NUMBER}\.\.{_NUMBER}(?::(x?){_NUMBER})?")
_MOST_STEPS: Final = 100_000
"""Values of one range; what is longer is a slip."""

Value: TypeAlias = Any
"""What a field may be set to: plain data, as YAML reads it."""


def read_range(text: str) -> tuple[Value, ...] | None:
    """The values of `LOW..HIGH`, `LOW..HIGH:STEP` or `LOW..HIGH:xFACTOR`, HIGH included where it is
    met; None where the text is no range. Numbers may have a unit, the same for all.

    Raises `FieldError` where such a range never ends, or holds nothing.

    >>> read_range("4..32:x2"), read_range("100Gbps..400Gbps:150Gbps")
    ((4, 8, 16, 32), ('100Gbps', '250Gbps', '400Gbps'))
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        return None
    low, unit, high, unit_of_high, times, step, unit_of_step = found.groups()
    wanted = unit if step and not times else None
    if unit != unit_of_high or (unit_of_step or None) != (wanted or None):
        raise FieldError("TW402", f"`{text}` mixes units", f"write `{low}{unit}..{high}{unit}`")
    numbers = _steps(Decimal(low), Decimal(high), Decimal(step or 1), by_factor=bool(times))
    if not numbers:
        raise FieldError("TW402", f"the range `{text}` holds nothing", f"write `{high}..{low}`")
    return tuple(_written(number, unit) for number in numbers)


def _steps(low: Decimal, high: Decimal, step: Decimal, *, by_factor: bool) -> list[Decimal]:
    if step <= (1 if by_factor else 0) or (by_factor and low <= 0):
        fix = (
            "write a factor above 1, from a number above 0" if by_factor else "write a step above 0"
        )
        raise FieldError("TW402", f"steps of {'x' * by_factor}{step} reach no end", fix)
    found: list[Decimal] = []
    while low <= high:
        if len(found) == _MOST_STEPS:
            message = f"a range of more than {_MOST_STEPS:,} values"
            raise FieldError("TW402", message, "write larger steps")
        found.append(low)
        low = low * step if by_factor else low + step
    return found


def _written(number: Decimal, unit: str) -> Value:
    plain = f"{number.normalize():f}"
    if unit:
        return plain + unit
    return float(plain) if "." in plain else int(plain)


def check_path(written: str) -> str:
    """The dotted path of a field as it was written. Raises `FieldError` where it is none."""
    if not _PATH.fullmatch(written):
        message = f"`{written}` is no path of a field"
        raise FieldError("TW402", message, "write keys with dots between them, `parallel.pipeline`")
    return written


def _values(written: Any) -> tuple[Value, ...]:
    """The values of an axis: a list, or a range."""
    found = read_range(written) if isinstance(written, str) else None
    if found is not None:
        return found
    if not isinstance(written, list | tuple) or not written:
        fix = "write a list, such as `[8, 16]`, or a range, such as `4..32:x2`"
        raise FieldError("TW402", "the values of an axis are a list or a range", fix)
    return tuple(cast("list[Value]", written))


def _not_empty(point: dict[str, Value]) -> dict[str, Value]:
    if not point:
        raise FieldError("TW402", "a point without values", "leave it out")
    return point


def check_figure(key: str) -> str:
    """The name of a key figure that a sweep may show. Raises `FieldError` where it is none."""
    known = [kpi.key for kpi in (*KPIS, *ROLLOUT_KPIS, *ITERATION_KPIS)]
    if key not in known:
        find_figure(key)
        message = f"no point of a sweep has a `{key}`"
        raise FieldError("TW051", message, f"write one of: {', '.join(dict.fromkeys(known))}")
    return key


_Path = Annotated[str, AfterValidator(check_path)]
_Axis = Annotated[tuple[Value, ...], BeforeValidator(_values)]
_GRID: Final = {"type": "object", "additionalProperties": {"type": ["array", "string"]}}
_POINT: Final = {"type": "object"}
_Point = Annotated[dict[_Path, Value], AfterValidator(_not_empty), WithJsonSchema(_POINT)]


class SweepSpec(Spec):
    """What `twin sweep` varies: every combination of the grid, then the points that are listed."""

    grid: Annotated[dict[_Path, _Axis], WithJsonSchema(_GRID)] = Field(default={})
    """dotted path of a field to its values, a list or a range such as `4..32:x2`"""
    points: tuple[_Point, ...] = ()
    """further points, each dotted paths of fields with a value"""
    show: tuple[Annotated[str, AfterValidator(check_figure)], ...] = ()
    """key figures that the table shows beside the usual ones"""
    fidelity: Literal["events", "fast"] = "events"
    """kept for older files: points are simulated either way"""
