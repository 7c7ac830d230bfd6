"""How dollars, energy and CO2e come about, from GPU-hours down to prices and watts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from twin.reports.cost import HOURS_PER_YEAR, Bill, shares
from twin.reports.derivation import Explanation, leaf, node, sum_of
from twin.scenario import Scenario

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
