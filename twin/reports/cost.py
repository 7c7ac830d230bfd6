"""What a run draws, pays and emits: watts by part, energy, dollars by part, CO2e.

Energy is GPU-hours x watts per GPU x PUE (Patterson et al. 2021, arXiv:2104.10350, section 2), and
watts follow from what the GPU does: the breakdown of the step weighs kernels, waits for
communication and other waits (`twin.spec.power`). A figure that cannot be known is None, and
`unknown` says why. Left out: checkpoints, failures, hours in which the cluster idles, water, and
what making the computers emitted.

Data that is generated before a run trains, beside the run: days and cost of their own, which
`days` and `cost_usd` never count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from twin.planning.types import Warning
from twin.reports.breakdown import COMMUNICATION, KERNELS
from twin.reports.table import count, digits, show
from twin.scenario import Scenario
from twin.spec.cluster import ClusterSpec, GpuSpec, NodeSpec
from twin.spec.cost import CostSpec, PurchaseSpec, SiteSpec
from twin.spec.power import GpuPowerSpec

if TYPE_CHECKING:  # few runs say what their data takes
    from twin.data.types import Generation

HOURS_PER_YEAR: Final = 365.25 * 24

Occupation = Literal["compute", "communication", "waiting"]
"""What a GPU does at one moment, as far as its power goes."""
RUNNING: Final = (*KERNELS, "optimizer")
"""The causes of the breakdown in which kernels run."""
NO_PRICE: Final = Warning(
    "no-price", "The cost is unknown: the scenario has no cost.gpu_hour, nor a cost.purchase."
)
NO_SITE: Final = "the scenario has no cost.site, whose PUE it takes"


@dataclass(frozen=True, slots=True)
class Watts:
    """Mean power per GPU over a step, in watts, by what draws it."""

    gpu: float
    node: float
    """The node's share beside its GPUs."""
    network: float
    """Switches' share."""
    site: float
    """Cooling and losses: PUE less one times the three above."""

    @property
    def parts(self) -> dict[str, float]:
        """All four by name."""
        return {
            "gpus": self.gpu,
            "nodes": self.node,
            "network": self.network,
            "site": self.site,
        }

    @property
    def total(self) -> float:
        """Watts per GPU at the meter."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Bill:
    """Energy, cost and emissions of a run; None where unknown."""

    gpu_watts: float | None = None
    """Mean power of one GPU by itself."""
    watts: Watts | None = None
    energy_kwh: float | None = None
    energy_usd: float | None = None
    co2_tonnes: float | None = None
    cost: Mapping[str, float] | None = None
    """Dollars by part, which sum to the cost."""
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a key figure is None, by its name."""

    @property
    def cost_usd(self) -> float | None:
        """Dollars of the run."""
        return None if self.cost is None else sum(self.cost.values())

    @property
    def figures(self) -> dict[str, float | None]:
        """The key figures that follow."""
        return {
            "cost_usd": self.cost_usd,
            "energy_kwh": self.energy_kwh,
            "energy_cost_usd": self.energy_usd,
            "co2_tonnes": self.co2_tonnes,
            "average_watts_per_gpu": self.gpu_watts,
        }

    @property
    def warnings(self) -> tuple[Warning, ...]:
        """That the cost is unknown, and why."""
        why = self.unknown.get("cost_usd")
        if why is None:
            return ()
        return (NO_PRICE,) if why == NO_PRICE.message else (Warning("no-price", why),)

    def energy_json(self) -> dict[str, Any] | None:
        """Watts per GPU and kWh of the run by part; each sums to the whole. None where unknown."""
        if self.watts is None or self.energy_kwh is None:
            return None
        parts, total = self.watts.parts, self.watts.total
        kwh = {
            name: self.energy_kwh * part / total if total else 0.0 for name, part in parts.items()
        }
        return {"watts_per_gpu": parts, "kwh": kwh}


def bill(
    cluster: ClusterSpec, cost: CostSpec | None, gpu_hours: float, row: Mapping[str, int]
) -> Bill:
    """What `gpu_hours` on a cluster cost and draw, whose GPUs spend their time as the `row` of a
    breakdown says."""
    site = cost.site if cost else None
    own = cluster.node.gpu.power
    gpu_watts = gpu_power(own, row) if own else None
    unknown = {} if own else {"average_watts_per_gpu": _no_power(cluster.node.gpu)}
    drawn = _watts(cluster, gpu_watts, site)
    if isinstance(drawn, str) or site is None:
        unknown |= dict.fromkeys(("energy_kwh", "energy_cost_usd", "co2_tonnes"), str(drawn))
        parts = _cost(cost, cluster.node, gpu_hours, None, unknown)
        return Bill(gpu_watts, cost=parts, unknown=unknown)
    energy = gpu_hours * drawn.total / 1e3
    energy_usd = None if site.electricity is None else energy * site.electricity
    co2 = None if site.carbon is None else energy * site.carbon / 1e6
    if energy_usd is None:
        unknown["energy_cost_usd"] = "cost.site has no electricity price"
    if co2 is None:
        unknown["co2_tonnes"] = "cost.site has no carbon intensity"
    parts = _cost(cost, cluster.node, gpu_hours, energy_usd, unknown)
    return Bill(gpu_watts, drawn, energy, energy_usd, co2, parts, unknown)


def shares(row: Mapping[str, int]) -> dict[Occupation, float]:
    """The parts of a step in which a GPU runs kernels, waits for communication, or waits for
    something else; they sum to one."""
    step = sum(row.values())
    kernels = sum(row.get(cause, 0) for cause in RUNNING) / step
    communication = sum(row.get(cause, 0) for cause in COMMUNICATION) / step
    return {
        "compute": kernels,
        "communication": communication,
        "waiting": 1.0 - kernels - communication,
    }


def gpu_power(power: GpuPowerSpec, row: Mapping[str, int]) -> float:
    """Mean watts of a GPU over a step that it spends as a row of the breakdown says."""
    spent = shares(row)
    way = (
        power.compute * spent["compute"]
        + power.communication * spent["communication"]
        + power.waiting * spent["waiting"]
    )
    return power.idle + (power.max - power.idle) * way


def _watts(cluster: ClusterSpec, gpu: float | None, site: SiteSpec | None) -> Watts | str:
    """Watts per GPU by part, or why they are unknown."""
    node, fabric = cluster.node, cluster.fabric
    if site is None:
        return NO_SITE
    if gpu is None:
        return _no_power(node.gpu)
    if node.power is None:
        return f"nothing says what the node {node.name} draws: cluster.node.power"
    # One node alone has no switches.
    network = 0.0 if cluster.nodes == 1 else fabric.gpu_power
    if network is None:
        return f"nothing says what the fabric {fabric.name} draws: cluster.fabric.gpu_power"
    share = node.power.total / node.gpus
    return Watts(gpu, share, network, (site.pue - 1) * (gpu + share + network))


def _no_power(gpu: GpuSpec) -> str:
    return f"nothing says what the GPU {gpu.name} draws: cluster.node.gpu.power"


def _cost(
    cost: CostSpec | None,
    node: NodeSpec,
    gpu_hours: float,
    energy_usd: float | None,
    unknown: dict[str, str],
) -> dict[str, float] | None:
    """Dollars by part, or None and why, which goes to `unknown`."""
    if cost is None or not cost.priced:
        unknown["cost_usd"] = NO_PRICE.message
        return None
    found = {part: gpu_hours * price for part, price in hourly(cost, node).items()}
    if not cost.with_energy:
        return found
    if energy_usd is None:
        why = unknown["energy_cost_usd"]
        unknown["cost_usd"] = (
            f"The cost is unknown, since energy is paid beside, and {why}. Leave energy out with "
            "cost.pays_energy=false."
        )
        return None
    return found | {"energy": energy_usd}


def hourly(cost: CostSpec, node: NodeSpec) -> dict[str, float]:
    """Dollars per GPU-hour by part, without energy: the rent, or what was paid for a GPU with its
    surcharges over the hours in which some job pays."""
    if cost.purchase is None:
        return {"rent": cost.gpu_hour} if cost.gpu_hour is not None else {}
    return _bought(cost.purchase, node)


def _bought(purchase: PurchaseSpec, node: NodeSpec) -> dict[str, float]:
    paid = purchase.gpu if purchase.node is None else purchase.node / node.gpus
    assert paid is not None, "a purchase has one price"
    hours = HOURS_PER_YEAR * purchase.utilisation
    yearly = {
        "nodes": paid / purchase.years,
        "network": paid * purchase.network / purchase.years,
        "facility": paid * purchase.facility / (purchase.facility_years or purchase.years),
        "operations": paid * purchase.operations,
    }
    return {part: price / hours for part, price in yearly.items()}


@dataclass(frozen=True, slots=True)
class Generated:
    """The data of a run, and what each of its jobs costs in dollars; None: nothing has a price."""

    generation: Generation
    costs: tuple[float | None, ...]

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all jobs."""
        known = [cost for cost in self.costs if cost is not None]
        return sum(known) if len(known) == len(self.costs) else None

    def to_json(self) -> dict[str, Any]:
        """The section of the JSON report."""
        found = self.generation.to_json()
        jobs: list[dict[str, Any]] = found["jobs"]
        priced = [job | {"cost_usd": cost} for job, cost in zip(jobs, self.costs, strict=True)]
        return found | {"cost_usd": self.cost_usd, "jobs": priced}


def data_of(scenario: Scenario) -> Generated | None:
    """What generating a run's data takes; None where the scenario wants nothing generated. The room
    is not even imported then.

    Raises `ScenarioError` where no engine can generate it.
    """
    if scenario.data is None or not scenario.data.generates:
        return None
    found = cast("Generation", import_module("twin.data.generate").generation(scenario))
    costs = tuple(_with_data_cost(scenario, job.gpu_hours) for job in found.jobs)
    return Generated(found, costs)


def check_data(scenario: Scenario) -> None:
    """Nothing, where a run's data can be generated as written, or nothing is generated.

    Raises `ScenarioError` where no engine can generate it.
    """
    if scenario.data is not None and scenario.data.generates:
        import_module("twin.data.generate").generation(scenario, ranges=False)


def _with_data_cost(scenario: Scenario, gpu_hours: float) -> float | None:
    """Dollars of so many GPU-hours; energy that is paid beside as if kernels ran all the time."""
    return bill(scenario.cluster, scenario.cost, gpu_hours, {"compute": 1}).cost_usd


def data_words(found: Generated) -> str:
    """What it comes to, in a sentence, with what takes most of it."""
    all_of, cost = found.generation, found.cost_usd
    longest = max(all_of.jobs, key=lambda one: one.days)
    money = "" if cost is None else f" and {show(cost, 'USD')}"
    span = all_of.interval
    reach = "" if span is None else f" ({digits(span[0])} to {digits(span[1])} by its ranges)"
    return (
        f"Before it trains, {count(all_of.kept_tokens)} tokens are generated in "
        f"{digits(all_of.days)} days{reach}, {count(all_of.gpu_hours)} GPU-hours{money}; "
        f"{longest.job.name} takes longest, by {longest.bound}."
    )
