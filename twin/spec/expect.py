"""What a planner expects of a run: `step_seconds < 25s`, read and checked against the units of the
key figures.

An expectation is `FIGURE OPERATOR BOUND`. `FIGURE` is `fits` or a key figure; `BOUND` is a quantity
of that figure's dimension, a share written `0.35` or `35%`, or `true` and `false` for `fits`. Key
figures are real numbers, for which equality means nothing, so they take `<`, `<=`, `>` and `>=`;
`fits` takes `==` and `!=`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from operator import eq, ge, gt, le, lt, ne
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from twin import units
from twin.errors import FieldError
from twin.spec.kpis import ITERATION_KPIS, KPIS, MEASURES, ROLLOUT_KPIS, UPDATE_KPIS, Kpi

FITS: Final = "fits"
"""The one figure that is true or false."""
FIGURES: Mapping[str, Kpi] = MappingProxyType(
    {kpi.key: kpi for kpi in (*UPDATE_KPIS, *ROLLOUT_KPIS, *ITERATION_KPIS, *KPIS)}
)
"""Every other figure that can be compared, by its name in the JSON report, of whatever is run."""

ORDERS: Final = {"<": lt, "<=": le, ">": gt, ">=": ge}
"""What compares real numbers."""
_EQUALITIES: Final = {"==": eq, "!=": ne}
_WHOLE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.]*)\s*([<>=!]+)\s*(.*?)\s*")
_PLAIN = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
_SHARE = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s?(%)?")
_TRUTHS = {"true": True, "false": False}


class Parts(NamedTuple):
    """A comparison as it is written, cut in three."""

    figure: str
    operator: str
    right: str


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that must hold of a run. `bound` is in the figure's own unit, unrounded."""

    text: str
    figure: str
    operator: str
    bound: float | bool

    def holds(self, value: float | bool) -> bool:
        """True where a figure of this value is as expected; compared as it is, never rounded."""
        return (ORDERS | _EQUALITIES)[self.operator](value, self.bound)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        writes = core_schema.plain_serializer_function_ser_schema(
            lambda one: one.text, return_schema=core_schema.str_schema(), when_used="json"
        )
        return core_schema.no_info_plain_validator_function(read_expectation, serialization=writes)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        del core, handler
        return {
            "type": "string",
            "pattern": _pattern(),
            "patternErrorMessage": "write FIGURE OPERATOR BOUND, such as `step_seconds < 25s`",
            "examples": ["fits == true", "step_seconds < 25s", "mfu > 0.35"],
        }


def read_expectation(written: Any) -> Expectation:
    """The expectation that a text states. Raises `FieldError` or `QuantityError`."""
    if isinstance(written, Expectation):
        return written
    if not isinstance(written, str):
        raise FieldError("TW050", "an expectation is text", _FORM)
    figure, operator, right = cut(written)
    if figure == FITS:
        return Expectation(written, FITS, operator, _truth(operator, right))
    kpi = find_figure(figure)
    check_order(kpi, operator)
    return Expectation(written, figure, operator, bound(kpi, right))


_FORM: Final = "write FIGURE OPERATOR BOUND, such as `step_seconds < 25s`"


def cut(written: str, form: str = _FORM) -> Parts:
    """Figure, operator and what stands right of it. Raises `FieldError`, which asks for `form`,
    where there are no such."""
    found = _WHOLE.fullmatch(written)
    if found is None or not found[3]:
        raise FieldError("TW050", f"`{written}` compares nothing", form)
    return Parts(*found.groups())


def find_figure(name: str) -> Kpi:
    """The key figure of this name. Raises `FieldError` with the nearest one."""
    if name in FIGURES:
        return FIGURES[name]
    near = get_close_matches(name.lower(), (FITS, *FIGURES), 1)
    fix = f"did you mean `{near[0]}`?" if near else f"write one of: {', '.join((FITS, *FIGURES))}"
    raise FieldError("TW051", f"no key figure is called `{name}`", fix)


def check_order(kpi: Kpi, operator: str) -> None:
    """Raise `FieldError` unless the operator says more or less."""
    if operator not in ORDERS:
        message = f"`{kpi.key}` is a real number, which `{operator}` does not compare"
        raise FieldError("TW052", message, f"write one of: {' '.join(ORDERS)}")


def bound(kpi: Kpi, written: str) -> float:
    """A quantity in the unit of a key figure. Raises `FieldError` or `QuantityError` where it is
    none of that dimension."""
    if kpi.unit == "/d":
        if not _PLAIN.fullmatch(written):
            message = f"`{written}` is no plain number, which `{kpi.key}` is"
            raise FieldError("TW052", message, "write how often a day, such as `24`")
        return float(written)
    if kpi.unit != "%":
        dimension, one = MEASURES[kpi.unit]
        return units.parse(written, dimension) / one
    found = _SHARE.fullmatch(written)
    if found is None:
        message = f"`{written}` is no share, which `{kpi.key}` is"
        raise FieldError("TW052", message, "write a share, such as `0.35` or `35%`")
    share = float(found[1]) / (100 if found[2] else 1)
    if share > 1:
        fix = f"write `{found[1]}%`" if not found[2] and share <= 100 else "write a share up to 1"
        raise FieldError("TW015", f"`{kpi.key}` is a share, at most 1", fix)
    return share


def _truth(operator: str, right: str) -> bool:
    if operator not in _EQUALITIES or right not in _TRUTHS:
        message = f"`fits` is true or false, not `{operator} {right}`"
        raise FieldError("TW052", message, "write `fits == true` or `fits == false`")
    return _TRUTHS[right]


def _pattern() -> str:
    """What every expectation looks like; all that reading it refuses but sizes."""
    orders = "|".join(sorted(ORDERS, key=len, reverse=True))
    kinds: dict[str, list[str]] = {}
    for kpi in FIGURES.values():
        plain = {"%": _SHARE.pattern, "/d": _PLAIN.pattern}
        right = plain.get(kpi.unit) or units.pattern(MEASURES[kpi.unit][0])
        kinds.setdefault(right, []).append(kpi.key)
    measured = [rf"({'|'.join(keys)})\s*({orders})\s*({right})" for right, keys in kinds.items()]
    return rf"^\s*({FITS}\s*(==|!=)\s*(true|false)|{'|'.join(measured)})\s*$"
