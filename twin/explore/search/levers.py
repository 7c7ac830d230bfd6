"""What a decision may hang on: the inputs that are moved, and how far.

A lever has a range of its own, wider than what its source says: the question is where the decision
flips, and then whether that is within what the source allows. Rates of links are moved by
generations, each of which doubles (InfiniBand's EDR, HDR, NDR and XDR are 100 to 800 Gb/s by the
IBTA's roadmap, and PCI-SIG doubles PCIe each time, too), shares as far as shares go. Figures that
follow exactly from answers that are known are worked out (`closed`); all others are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, reduce
from math import exp, log
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter
from ruamel.yaml import YAML

from twin import routing, units
from twin.engine import plan
from twin.errors import ScenarioError
from twin.explore.search.candidates import Contender, Decision, Standing, scenario_of
from twin.goodput import expected_goodput
from twin.goodput.estimate import hazards
from twin.loading import catalog_parts, load_part
from twin.scenario import Scenario
from twin.sources import Written
from twin.spec.goodput import FailuresSpec

Closed: TypeAlias = Callable[[Contender, float], Standing]
"""How a contender stands at a value, worked out."""
STEPS: Final = 2
"""Values to each side that are asked about before a flip is closed in on."""
STEPS_CLOSED: Final = 64
"""The same, where an answer costs nothing."""
PRECISION: Final = 0.01
"""How closely a flip is closed in on: a part of the value."""
PRECISION_CLOSED: Final = 1e-12
"""The same, where an answer costs nothing."""
FINEST: Final = 1e-3
"""Part of a range below which nothing is told apart: values may begin at zero."""
_IMBALANCE: Final = "train.routing.s"
_PRODUCTS: Final = "calibration.gemm"
GROWING: Final = ("days", "gpu_hours", "cost_usd", "step_seconds")
"""Key figures in proportion to the step. (Energy that is paid is so nearly: waits draw less.)"""
USUAL: Final = "llama3-h100"
"""The best documented run: its failures are taken where nobody has observed the scenario's GPU."""


@dataclass(frozen=True, slots=True)
class Lever:
    """One input, and the range over which it is moved. Values are in the unit of its field, SI."""

    name: str
    path: str
    unit: str
    now: float | None
    """None: unknown."""
    low: float
    high: float
    start: float
    """Where the decision is that of the recommendation."""
    why: str
    """Why this range."""
    more: Literal["faster", "slower", "dearer", "less room"]
    """What a larger value does."""
    per_unit: float = 1.0
    """Value of one `unit`."""
    log: bool = False
    """Whether steps are factors."""
    likely: tuple[float, float] | None = None
    """The range that its source states."""
    overrides: Callable[[float], Mapping[str, Any]] | None = None
    """Fields of the scenario at a value; None where it is closed."""
    closed: Closed | None = None
    corners: tuple[float, ...] = ()
    """Values at which something changes for sure."""
    load: Callable[[float], float] | None = None
    """Of routings: what the fullest rank of experts gets over the mean."""
    note: str = ""

    def points(self) -> list[float]:
        """The values that are asked about first, ascending."""
        sides = [end for end in (self.low, self.high) if end != self.start]
        steps = (STEPS_CLOSED if self.closed else STEPS) * (3 - len(sides))
        found = {self._between(end, step / steps) for end in sides for step in range(1, steps + 1)}
        inside = {corner for corner in self.corners if self.low < corner < self.high}
        return sorted({self.start} | found | inside)

    def _between(self, end: float, part: float) -> float:
        if part == 1.0:
            return end
        if self.log:
            return exp(log(self.start) + part * (log(end) - log(self.start)))
        return self.start + part * (end - self.start)

    def middle(self, low: float, high: float) -> float | None:
        """The value between two; None where they are as close as is asked for."""
        part = PRECISION_CLOSED if self.closed else PRECISION
        least = (part if self.closed else FINEST) * (self.high - self.low)
        if high - low <= max(part * low, 0.0 if self.log else least):
            return None
        middle = (low * high) ** 0.5 if self.log else (low + high) / 2
        return middle if low < middle < high else None

    def to_json(self) -> dict[str, Any]:
        """The lever in plain data, in its unit."""
        likely = self.likely
        found: dict[str, Any] = {
            "lever": self.name,
            "path": self.path,
            "unit": self.unit,
            "now": None if self.now is None else self.now / self.per_unit,
            "range": [self.low / self.per_unit, self.high / self.per_unit],
            "range_because": self.why,
            "source_range": None if likely is None else [end / self.per_unit for end in likely],
            "note": self.note,
        }
        if self.load is not None and self.now is not None:
            found["now_load"] = self.load(self.now)
        return found


@dataclass(frozen=True, slots=True)
class NoLever:
    """An input that cannot be moved here, and why."""

    name: str
    path: str
    why: str

    def to_json(self) -> dict[str, Any]:
        """The same keys as a lever's."""
        empty: dict[str, Any] = {"unit": "", "now": None, "flips": []}
        return {"lever": self.name, "path": self.path, **empty, "none": self.why}


class FieldRange(BaseModel):
    """A field that is moved, as `levers.yaml` lists it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    path: str
    why: str
    more: Literal["faster", "slower"]
    low: float
    high: float = 1.0
    most: float = 0.0
    unit: str = ""
    per_unit: float = 1.0
    dimension: units.Dimension | None = None
    log: bool = False
    of_experts: bool = False

    def lever(self, scenario: Scenario, now: float) -> Lever:
        """The lever of a scenario in which the field has the value `now`."""
        return Lever(
            **self.model_dump(include={"name", "path", "unit", "why", "more", "per_unit", "log"}),
            now=now,
            low=self.low * now,
            high=max(self.high * now, self.most),
            start=now,
            likely=self._likely(scenario),
            overrides=lambda value: {self.path: self._written(value)},
        )

    def _written(self, value: float) -> Written:
        return units.format_quantity(value, self.dimension) if self.dimension else value

    def _likely(self, scenario: Scenario) -> tuple[float, float] | None:
        """The range that the source of the number states."""
        known = scenario.ledger.get(self.path)
        if known is None or known.range is None:
            return None
        low, high = known.range
        if self.dimension is None:
            return float(low or 0.0), float(high or 0.0)
        return units.parse(low, self.dimension), units.parse(high, self.dimension)


@cache
def _field_ranges() -> tuple[FieldRange, ...]:
    written = YAML(typ="safe", pure=True).load(Path(__file__).with_suffix(".yaml"))  # pyright: ignore[reportUnknownMemberType]
    return TypeAdapter(tuple[FieldRange, ...]).validate_python(written)


def levers(contest: Decision) -> Iterator[Lever | NoLever]:
    """Everything that is moved, links first."""
    scenario = contest.scenario
    for field in _field_ranges():
        if field.of_experts and scenario.model.moe is None:
            path = field.path.removesuffix(".s")
            yield NoLever(field.name, path, f"{scenario.model.name} has no experts")
        elif field.path == _IMBALANCE:
            yield _imbalance(contest, field)
        else:
            path = _products(scenario) if field.path == _PRODUCTS else field.path
            now: Any = reduce(getattr, path.split("."), scenario)
            yield field.model_copy(update={"path": path}).lever(scenario, float(now))
    yield _margin(contest)
    yield _price(contest)
    yield _loss(contest)


def _products(scenario: Scenario) -> str:
    """The efficiency that most matrix products of a run have."""
    matmuls = scenario.calibration.matmuls
    numbers = scenario.train.precision
    if numbers in ("nvfp4", "mxfp4") and matmuls is not None and matmuls.fp4 is not None:
        return "calibration.matmuls.fp4.efficiency"
    if matmuls is not None and numbers != "bf16" and matmuls.fp8 is not None:
        return "calibration.matmuls.fp8.efficiency"
    if matmuls is not None and matmuls.bf16 is not None:
        return "calibration.matmuls.bf16.efficiency"
    return _PRODUCTS


def _imbalance(contest: Decision, field: FieldRange) -> Lever | NoLever:
    """Zipf's exponent, and the load of the fullest rank that it makes of the pick's ranks."""
    scenario, moe = contest.scenario, contest.scenario.model.moe
    present, train = scenario.train.routing, scenario.train
    assert moe is not None
    if present.kind not in ("balanced", "zipf"):
        return NoLever(field.name, field.path, f"routing is a {present.kind}: not one number")
    pick = contest.contenders[0].overrides
    ranks = int(pick.get("parallel.expert", scenario.parallel.expert))

    def overrides(value: float) -> dict[str, Any]:
        return {"train.routing": {"kind": "zipf", "s": value}}

    def load(value: float) -> float:
        changed = train.model_dump(mode="json", by_alias=True)
        changed["routing"] = overrides(value)["train.routing"]
        made = type(train).model_validate(changed).routing
        return routing.load(made, moe.experts, ranks, moe.top_k)

    return replace(
        field.lever(scenario, float(getattr(present, "s", 0.0))),
        overrides=overrides,
        load=load,
        note=f"load: rows of the fullest of {ranks} ranks over the mean",
    )


def _margin(contest: Decision) -> Lever | NoLever:
    """What the reserve may grow by: memory beside the plan is all that it takes."""
    name, path = "memory margin", "cluster.node.gpu.reserve"
    spare = tuple(one.headroom_bytes for one in contest.contenders)
    most = max(spare, default=0.0)
    if most <= 0:
        return NoLever(name, path, "no layout has memory to spare")

    def closed(one: Contender, value: float) -> Standing:
        return Standing(None, "its memory is full") if value > one.headroom_bytes else one.now

    return Lever(
        *(name, path, "GB", 0.0, 0.0, 1.01 * most, 0.0),
        why="until no layout that was answered fits",
        more="less room",
        per_unit=1e9,
        closed=closed,
        corners=spare,
        note="what the reserve grows by; layouts that do not fit now are not asked",
    )


def _price(contest: Decision) -> Lever | NoLever:
    """Rent: days do not know it, and the cost is linear in it."""
    name, path, cost = "GPU-hour price", "cost.gpu_hour", contest.scenario.cost
    if cost is None or not cost.priced:
        return NoLever(name, path, "nothing has a price: add `cost: {gpu_hour: 2.0USD}`")
    now = cost.gpu_hour
    if not now:
        bought = "GPUs are bought: move `cost.purchase`"
        return NoLever(name, path, bought if now is None else "the price is zero")

    def closed(one: Contender, value: float) -> Standing:
        kpis = one.now.kpis
        assert kpis is not None
        paid, hours = kpis["cost_usd"] or 0.0, kpis["gpu_hours"] or 0.0
        return Standing({**kpis, "cost_usd": paid + hours * (value - now)})

    return Lever(
        *(name, path, "USD", now, now / 10, 10 * now, now),
        why="a tenth to ten times (ours)",
        more="dearer",
        log=True,
        closed=closed,
    )


def _loss(contest: Decision) -> Lever | NoLever:
    """What one interruption may cost, all in all. With interruptions at a rate r of the job's time,
    each of which costs L seconds (work done again, saves, restart), a run takes 1 / (1 - r L) times
    as long as without: the definition that `twin.goodput` has for the largest loss. Rates grow with
    the cluster, so the same loss costs larger ones more."""
    name, path = "loss per interruption", "goodput"
    cluster, spec = contest.scenario.cluster, contest.scenario.goodput
    if not contest.contenders:
        return NoLever(name, path, "no layout fits")
    failures = spec.failures if spec is not None else usual_failures(cluster.node.gpu.name)
    rates = {one.nodes: _rate(contest, failures, one.nodes) for one in contest.contenders}
    if not min(rates.values()):
        return NoLever(name, path, f"nothing interrupts the run, by {failures.name}")

    def closed(one: Contender, loss: float) -> Standing:
        kept, kpis = 1.0 - rates[one.nodes] * loss, one.now.kpis
        if kept <= 0.0 or kpis is None:
            return Standing(None, "interruptions leave it no time")
        longer = {key: kpis[key] for key in GROWING if kpis.get(key) is not None}
        return Standing({**kpis, **{key: (own or 0.0) / kept for key, own in longer.items()}})

    first = contest.contenders[0]
    per_second = rates[first.nodes]
    how = (
        "in the closed form"
        if spec is not None
        else "since the scenario has no section `goodput`: add one for what is lost now"
    )
    note = (
        f"{86400 * per_second:.3g} interruptions a day on {first.gpus:,} GPUs, as {failures.name} "
        f"says{';' if spec is not None else ','} {how}"
    )
    return Lever(
        *(name, path, "min", _loss_now(contest, first, per_second)),
        *(0.0, 1.0 / min(rates.values()), 0.0),
        why="none, until the run makes no progress",
        more="slower",
        per_unit=60.0,
        closed=closed,
        note=note,
    )


def _rate(contest: Decision, failures: FailuresSpec, nodes: int) -> float:
    """Interruptions per second on so many nodes, planned ones among them."""
    cluster = contest.scenario.cluster.model_copy(update={"nodes": nodes})
    return sum(one.per_second for one in hazards(failures, cluster))


def _loss_now(contest: Decision, one: Contender, per_second: float) -> float | None:
    """What an interruption costs now, on average, in the closed form."""
    kpis = one.now.kpis
    if contest.scenario.goodput is None or kpis is None:
        return None
    try:
        planned = plan(scenario_of(contest, one))
    except ScenarioError:  # of another split of layers than the one that was answered
        return None
    found = expected_goodput(planned, kpis["step_seconds"] or 0.0)
    return (1.0 - found.fraction - found.losses["stragglers"]) / per_second


def usual_failures(gpu: str) -> FailuresSpec:
    """What the catalog knows of failures of a GPU: the first part by name that observed one, else
    `USUAL`."""
    parts = [load_part("failures", name).spec for name in catalog_parts("failures")]
    observed = [one for one in parts if one.gpu.casefold() in gpu.casefold()]
    return observed[0] if observed else load_part("failures", USUAL).spec
