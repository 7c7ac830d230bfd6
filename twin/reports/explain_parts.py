"""The tree of a derivation: a number, the formula that it follows from, and the numbers in that.

Every node but the leaves has a formula over its children, from which its value is computed, so the
tree cannot say anything else than it shows.

How dollars, energy and CO2e come about, from GPU-hours down to prices and watts.

How the figures with failures come about: from the time that simulated runs lost."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from twin.reports.cost import HOURS_PER_YEAR, Bill, shares
from twin.reports.kpis import NO_GOODPUT
from twin.reports.report import Report
from twin.reports.table import count, digits, duration, flop, gibibytes
from twin.scenario import Scenario
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


Given = Callable[[str, str, str], Explanation]
"""A value of the scenario by path, unit and name (none: the last key), with where it is written."""

_POWER: Final = "a straight line from idle to the limit in what the GPU does (twin.spec.power)"
_MEAN: Final = "breakdown of the step, mean over ranks"


@dataclass(frozen=True)
class Money:
    """The derivations of what one run costs and draws."""

    scenario: Scenario
    bill: Bill
    breakdown_ns: Mapping[str, int]
    gpu_hours: Explanation
    given: Given

    def figure(self, key: str, unit: str) -> Explanation:
        """The derivation of a key figure; unknown ones say why."""
        why = self.bill.unknown.get(key)
        if why is not None:
            return leaf(key, None, unit, f"unknown: {why}")
        return getattr(self, key)()

    def cost_usd(self) -> Explanation:
        """Dollars: the rent, or the parts of a purchase; and energy where it is paid beside."""
        cost = self.scenario.cost
        assert cost is not None, "unknown without one"
        energy = [self.energy_cost_usd()] if cost.with_energy else []
        if cost.purchase is None:
            price = self.given("cost.gpu_hour", "USD per GPU-h", "price")
            rent = "gpu_hours * price"
            formula = f"{rent} + energy_cost_usd" if energy else rent
            return node("cost_usd", "USD", formula, [self.gpu_hours, price, *energy])
        parts = [self._bought(name) for name in ("nodes", "network", "facility", "operations")]
        known = [part for part in parts if part.value]
        return sum_of("cost_usd", "USD", [*known, *energy])

    def energy_cost_usd(self) -> Explanation:
        """Dollars for energy."""
        price = self.given("cost.site.electricity", "USD per kWh", "")
        formula = "energy_kwh * electricity"
        return node("energy_cost_usd", "USD", formula, [self.energy_kwh(), price])

    def co2_tonnes(self) -> Explanation:
        """Tonnes of CO2e, location-based."""
        carbon = self.given("cost.site.carbon", "g per kWh", "")
        return node("co2_tonnes", "t", "energy_kwh * carbon / 1e6", [self.energy_kwh(), carbon])

    def energy_kwh(self) -> Explanation:
        """Kilowatt-hours at the meter."""
        pue = self.given("cost.site.pue", "share", "")
        formula = "gpu_hours * watts_per_gpu * pue / 1e3"
        return node("energy_kwh", "kWh", formula, [self.gpu_hours, self._watts(), pue])

    def average_watts_per_gpu(self) -> Explanation:
        """Mean watts of a GPU by itself over the step."""
        spent = shares(self.breakdown_ns)
        power = "cluster.node.gpu.power"
        parts = [self.given(f"{power}.{key}", "W", "") for key in ("idle", "max")]
        ways: list[str] = []
        for key, part in spent.items():
            parts.append(self.given(f"{power}.{key}", "share", ""))
            parts.append(leaf(f"{key}_part", part, "share", f"of the step; {_MEAN}"))
            ways.append(f"{key} * {key}_part")
        formula = f"idle + (max - idle) * ({' + '.join(ways)})"
        return node("average_watts_per_gpu", "W", formula, parts, _POWER)

    def _watts(self) -> Explanation:
        cluster = self.scenario.cluster
        beside = [
            self.given(f"cluster.node.power.{key}", "W", "")
            for key in ("cpus", "memory", "nics", "other")
        ]
        parts = [
            self.average_watts_per_gpu(),
            sum_of("node_watts", "W", beside, "a node beside its GPUs, whatever these do"),
            self.given("cluster.node.gpus", "GPUs per node", "gpus_per_node"),
        ]
        formula = "average_watts_per_gpu + node_watts / gpus_per_node"
        if cluster.nodes > 1:
            parts.append(self.given("cluster.fabric.gpu_power", "W", "network_watts"))
            formula += " + network_watts"
        return node("watts_per_gpu", "W", formula, parts, "without what the site adds")

    def _bought(self, name: str) -> Explanation:
        cost = self.scenario.cost
        assert cost is not None, "unknown without one"
        purchase = cost.purchase
        assert purchase is not None, "a rent has no such parts"
        paid = self._paid()
        hours = node(
            "hours_per_year",
            "h",
            f"{HOURS_PER_YEAR} * utilisation",
            [self.given("cost.purchase.utilisation", "share", "")],
        )
        parts, formula = [self.gpu_hours, paid, hours], "gpu_hours * price_per_gpu / hours_per_year"
        if name != "nodes":
            parts.append(self.given(f"cost.purchase.{name}", "share", ""))
            formula += f" * {name}"
        if name != "operations":
            own = name == "facility" and purchase.facility_years is not None
            path = f"cost.purchase.{'facility_years' if own else 'years'}"
            parts.append(self.given(path, "years", "years"))
            formula += " / years"
        return node(f"{name}_usd", "USD", formula, parts, "spread evenly, without interest")

    def _paid(self) -> Explanation:
        cost = self.scenario.cost
        if cost is not None and cost.purchase is not None and cost.purchase.node is None:
            return self.given("cost.purchase.gpu", "USD", "price_per_gpu")
        parts = [
            self.given("cost.purchase.node", "USD", "node_price"),
            self.given("cluster.node.gpus", "GPUs per node", "gpus_per_node"),
        ]
        return node("price_per_gpu", "USD", "node_price / gpus_per_node", parts)


_LOST = (
    "mean of the simulated runs (twin.goodput.monte_carlo); in the closed form "
    "(twin.goodput.closed) {0:.2f} % of the time"
)


def explain_failures(
    key: str, unit: str, report: Report, without: Callable[[str], Explanation]
) -> Explanation:
    """The derivation of a figure with failures; `without` gives those without."""
    if report.kpis[key] is None:
        why = f"unknown: {NO_GOODPUT.message}" if report.goodput is None else _unknown(report)
        return leaf(key, None, unit, why)
    share = _fraction(report)
    if key == "goodput_fraction":
        return share
    plain = key.removesuffix("_with_failures")
    formula = f"{plain} / goodput_fraction"
    return node(key, unit, formula, [without(plain), share], "rent runs on while a job is down")


def _unknown(report: Report) -> str:
    if report.kpis["days_with_failures"] is None:
        return "unknown: no simulated run made any progress"
    return "unknown, as the cost without failures is"


def _fraction(report: Report) -> Explanation:
    """Progress over all time."""
    goodput = report.goodput
    assert goodput is not None, "known figures have one"
    closed = goodput.expected_losses
    useful = 100 * goodput.expected_fraction
    parts = [leaf("progress", float(goodput.useful_ns), "ns", _LOST.format(useful))]
    for name, ns in goodput.losses_ns.items():
        parts.append(leaf(name, float(ns), "ns", _LOST.format(100 * closed[name])))
    names = " + ".join(part.name for part in parts)
    source = (
        f"{goodput.seeds} seeds from {goodput.seed}; interruptions as {goodput.source} has them"
    )
    return node("goodput_fraction", "%", f"progress / ({names})", parts, source)
