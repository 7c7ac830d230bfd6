"""The tree of a derivation: a number, the formula that it follows from, and the numbers in that.

Every node but the leaves has a formula over its children, from which its value is computed, so the
tree cannot say anything else than it shows.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from twin.reports.numbers import count, digits, duration, flop, gibibytes
from twin.units import format_quantity


@dataclass(frozen=True, slots=True)
class Explanation:
    """A number, and what it follows from. `formula` is arithmetic over the names of the children;
    a leaf has none. `source` says where the formula, or the number, comes from. None: unknown."""

    name: str
    value: float | None
    unit: str
    formula: str
    source: str
    children: tuple[Explanation, ...] = ()

    @property
    def shown(self) -> str:
        """The value with its unit, in the prefixes that people read."""
        value = self.value
        if value is None:
            return "unknown"
        spoken = {
            "%": lambda: f"{digits(100 * value)} %",
            "s": lambda: duration(value),
            "ns": lambda: duration(value / 1e9),
            "bytes": lambda: gibibytes(value),
            "bytes/s": lambda: format_quantity(value, "bytes_per_s", digits=3),
            "FLOP/s": lambda: format_quantity(value, "flop_per_s", digits=3),
            "share": lambda: f"{value:.4g}",
        }
        if self.unit in spoken:
            return spoken[self.unit]()
        if self.unit.startswith("FLOP"):
            return flop(value) + self.unit.removeprefix("FLOP")
        return f"{count(value) if abs(value) >= 1e4 else f'{value:.6g}'} {self.unit}"

    def to_json(self) -> dict[str, Any]:
        """The tree in plain data."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "formula": self.formula,
            "source": self.source,
            "children": [child.to_json() for child in self.children],
        }


_OPERATORS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
}


def evaluate(formula: str, values: Mapping[str, float]) -> float:
    """The value of a formula of names, numbers, + - * / and parentheses."""
    return _evaluate(ast.parse(formula, mode="eval").body, values)


def _evaluate(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, values), _evaluate(right, values))
        case _:
            raise ValueError(f"no arithmetic: {ast.dump(node)}")


def leaf(name: str, value: float | None, unit: str, source: str) -> Explanation:
    """A number that follows from no formula; `source` says where it is from."""
    return Explanation(name, value, unit, "", source)


def node(
    name: str, unit: str, formula: str, children: Iterable[Explanation], source: str = ""
) -> Explanation:
    """A node whose value is its formula's."""
    children = tuple(children)
    values = {child.name: child.value for child in children if child.value is not None}
    return Explanation(name, evaluate(formula, values), unit, formula, source, children)


def sum_of(name: str, unit: str, parts: Sequence[Explanation], source: str = "") -> Explanation:
    """The sum of some parts; of none, zero."""
    formula = " + ".join(part.name for part in parts) or "0"
    return node(name, unit, formula, parts, source)
