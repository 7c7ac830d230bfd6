"""What a decision may hang on: the inputs that are moved, and how far.

A lever has a range of its own, wider than what its source says: the question is where the decision
flips, and then whether that is within what the source allows. Rates of links are moved by
generations, each of which doubles (InfiniBand's EDR, HDR, NDR and XDR are 100 to 800 Gb/s by the
IBTA's roadmap, and PCI-SIG doubles PCIe each time, too), shares as far as shares go. Figures that
follow exactly from answers that are known are worked out (`closed`); for all others the fast path
is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from math import exp, log
from typing import Any, Final, Literal, TypeAlias

from twin import routing, units
from twin.errors import ScenarioError
from twin.explore.search.candidates import Contender, Decision, Standing, scaled, scenario_of
from twin.goodput import expected_goodput
from twin.goodput.rates import hazards
from twin.loading import catalog_parts, load_part
from twin.planning import plan
from twin.routing import Routing
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
_GBPS: Final = 1e9 / 8
_GB: Final = 1e9
_MINUTE: Final = 60.0


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


def levers(contest: Decision) -> Iterator[Lever | NoLever]:
    """Everything that is moved, links first."""
    scenario = contest.scenario
    node = "cluster.node"
    yield _rate(scenario, ("NIC rate", f"{node}.nic.bandwidth", "Gb/s", _GBPS))
    yield _rate(scenario, ("NVLink rate", f"{node}.nvlink.bandwidth", "GB/s", _GB))
    yield _rate(scenario, ("PCIe rate", f"{node}.host.pcie.bandwidth", "GB/s", _GB))
    yield _share(scenario, "efficiency of matrix products", _products(scenario))
    yield _share(scenario, "share of memory bandwidth", "calibration.bandwidth")
    yield from _of_experts(contest)
    yield _margin(contest)
    yield _price(contest)
    yield _loss(contest)


def _number(scenario: Scenario, path: str) -> float:
    found: Any = reduce(getattr, path.split("."), scenario)
    return float(found)


def _likely(
    scenario: Scenario, path: str, dimension: units.Dimension | None = None
) -> tuple[float, float] | None:
    """The range that the source of a number states."""
    known = scenario.ledger.get(path)
    if known is None or known.range is None:
        return None

    def value(written: Written) -> float:
        return units.parse(written, dimension) if dimension else float(written or 0.0)

    low, high = known.range
    return value(low), value(high)


def _rate(scenario: Scenario, named: tuple[str, str, str, float]) -> Lever:
    """A link: three generations down, two up."""
    name, path, unit, per_unit = named
    now = _number(scenario, path)
    return Lever(
        name,
        path,
        unit,
        now,
        low=now / 8,
        high=4 * now,
        start=now,
        why="three generations down and two up, each a factor of two (ours)",
        more="faster",
        per_unit=per_unit,
        log=True,
        likely=_likely(scenario, path, "bytes_per_s"),
        overrides=lambda value: {path: units.format_quantity(value, "bytes_per_s")},
    )


def _products(scenario: Scenario) -> str:
    """The efficiency that most matrix products of a run have."""
    matmuls = scenario.calibration.matmuls
    if matmuls is not None and scenario.train.precision == "fp8" and matmuls.fp8 is not None:
        return "calibration.matmuls.fp8.efficiency"
    if matmuls is not None and matmuls.bf16 is not None:
        return "calibration.matmuls.bf16.efficiency"
    return "calibration.gemm"


def _share(scenario: Scenario, name: str, path: str) -> Lever:
    """A share of a peak: half of it, up to all."""
    now = _number(scenario, path)
    return Lever(
        name,
        path,
        "",
        now,
        low=now / 2,
        high=1.0,
        start=now,
        why="half of it, up to all of the peak (ours)",
        more="faster",
        log=True,
        likely=_likely(scenario, path),
        overrides=lambda value: {path: value},
    )


def _of_experts(contest: Decision) -> Iterator[Lever | NoLever]:
    """How uneven experts are, and what their all-to-all loses beside kernels."""
    scenario = contest.scenario
    asked = (
        ("all-to-all contention", "calibration.expert_contention", "", 1.0, 0.9),
        ("wait before an all-to-all", "calibration.expert_wait", "ms", 1e-3, 1e-2),
    )
    if scenario.model.moe is None:
        for name, path in (("expert imbalance", "train.routing"), *(one[:2] for one in asked)):
            yield NoLever(name, path, f"{scenario.model.name} has no experts")
        return
    yield _imbalance(contest)
    for name, path, unit, per_unit, most in asked:
        now = _number(scenario, path)
        dimension = "seconds" if unit else None
        yield Lever(
            name,
            path,
            unit,
            now,
            low=0.0,
            high=max(most, now),
            start=now,
            why="none, up to nine tenths of the rate (ours)"
            if dimension is None
            else "none, up to 10 ms (ours): five times what DeepSeek's trace shows",
            more="slower",
            per_unit=per_unit,
            likely=_likely(scenario, path, dimension),
            overrides=_as_seconds(path) if dimension else _as_number(path),
        )


def _as_number(path: str) -> Callable[[float], Mapping[str, Any]]:
    return lambda value: {path: value}


def _as_seconds(path: str) -> Callable[[float], Mapping[str, Any]]:
    return lambda value: {path: units.format_quantity(value, "seconds")}


def _imbalance(contest: Decision) -> Lever | NoLever:
    """Zipf's exponent, and the load of the fullest rank that it makes of the pick's ranks."""
    scenario, moe = contest.scenario, contest.scenario.model.moe
    name, path, present = "expert imbalance", "train.routing.s", scenario.train.routing
    assert moe is not None
    if present.kind not in ("balanced", "zipf"):
        return NoLever(name, path, f"routing is a {present.kind}, which has no one number")
    now = float(getattr(present, "s", 0.0))
    written = contest.contenders[0].overrides
    ranks = int(written.get("parallel.expert", scenario.parallel.expert))

    def load(value: float) -> float:
        zipf = _zipf(scenario, value)
        return routing.load(zipf, moe.experts, ranks, moe.top_k)

    return Lever(
        name,
        path,
        "Zipf's s",
        now,
        low=0.0,
        high=max(1.0, 2 * now),
        start=now,
        why="balanced, up to Zipf's own law, s = 1 (ours)",
        more="slower",
        overrides=lambda value: {"train.routing": {"kind": "zipf", "s": value}},
        load=load,
        note=f"load: rows of the fullest of {ranks} ranks over the mean",
    )


def _zipf(scenario: Scenario, s: float) -> Routing:
    """The scenario's routing with this exponent."""
    section = {"train": scenario.train.model_dump(mode="json", by_alias=True)}
    section["train"]["routing"] = {"kind": "zipf", "s": s}
    return type(scenario.train).model_validate(section["train"]).routing


def _margin(contest: Decision) -> Lever | NoLever:
    """What the reserve may grow by: memory beside the plan is all that it takes."""
    name, path = "memory margin", "cluster.node.gpu.reserve"
    most = max((one.headroom_bytes for one in contest.contenders), default=0.0)
    if most <= 0:
        return NoLever(name, path, "no layout has memory to spare")

    def closed(one: Contender, value: float) -> Standing:
        if value > one.headroom_bytes:
            return Standing(None, "its memory is full")
        return one.now

    return Lever(
        name,
        path,
        "GB",
        0.0,
        low=0.0,
        high=1.01 * most,
        start=0.0,
        why="until no layout that was answered fits",
        more="less room",
        per_unit=_GB,
        closed=closed,
        corners=tuple(one.headroom_bytes for one in contest.contenders),
        note="what the reserve grows by; layouts that do not fit now are not asked",
    )


def _price(contest: Decision) -> Lever | NoLever:
    """Rent: days do not know it, and the cost is linear in it."""
    name, path, cost = "GPU-hour price", "cost.gpu_hour", contest.scenario.cost
    if cost is None or not cost.priced:
        return NoLever(name, path, "nothing has a price: add `cost: {gpu_hour: 2.0USD}`")
    now = cost.gpu_hour
    if now is None:
        return NoLever(name, path, "GPUs are bought: move `cost.purchase`")
    if now == 0.0:
        return NoLever(name, path, "the price is zero")

    def closed(one: Contender, value: float) -> Standing:
        kpis = one.now.kpis
        assert kpis is not None
        paid, hours = kpis["cost_usd"] or 0.0, kpis["gpu_hours"] or 0.0
        return Standing({**kpis, "cost_usd": paid + hours * (value - now)})

    return Lever(
        name,
        path,
        "USD",
        now,
        low=now / 10,
        high=10 * now,
        start=now,
        why="a tenth to ten times (ours)",
        more="dearer",
        log=True,
        closed=closed,
    )


def _loss(contest: Decision) -> Lever | NoLever:
    """What one interruption may cost, all in all."""
    name, path = "loss per interruption", "goodput"
    found = loss_lever_parts(contest)
    if isinstance(found, str):
        return NoLever(name, path, found)
    return Lever(
        name,
        path,
        "min",
        found.now,
        low=0.0,
        high=found.most,
        start=0.0,
        why="none, until the run makes no progress",
        more="slower",
        per_unit=_MINUTE,
        closed=found.stand,
        note=found.note,
    )


USUAL: Final = "llama3-h100"
"""The best documented run: taken where nobody has observed the scenario's GPU."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of one interruption as a lever, in seconds."""

    now: float | None
    """What one costs now on average; None where the scenario does not say."""
    most: float
    """With which no contender makes progress."""
    stand: Callable[[Contender, float], Standing]
    note: str


def loss_lever_parts(contest: Decision) -> Losses | str:
    """The lever of a contest, or why there is none."""
    scenario, spec = contest.scenario, contest.scenario.goodput
    if not contest.contenders:
        return "no layout fits"
    failures = spec.failures if spec is not None else usual_failures(scenario.cluster.node.gpu.name)
    rates = {one.nodes: rate(contest, failures, one.nodes) for one in contest.contenders}
    if not min(rates.values()):
        return f"nothing interrupts the run, by {failures.name}"

    def stand(one: Contender, loss: float) -> Standing:
        kept = 1.0 - rates[one.nodes] * loss
        kpis = one.now.kpis
        if kept <= 0.0 or kpis is None:
            return Standing(None, "interruptions leave it no time")
        return Standing(scaled(kpis, 1.0 / kept))

    first = contest.contenders[0]
    said = f"{86400 * rates[first.nodes]:.3g} interruptions a day on {first.gpus:,} GPUs"
    if spec is None:
        note = (
            f"{said}, as {failures.name} says, since the scenario has no section `goodput`: add "
            "one for what is lost now"
        )
    else:
        note = f"{said}, as {failures.name} says; in the closed form"
    most = 1.0 / min(rates.values())
    return Losses(_now(contest, first, rates[first.nodes]), most, stand, note)


def rate(contest: Decision, failures: FailuresSpec, nodes: int) -> float:
    """Interruptions per second on so many nodes, planned ones among them."""
    cluster = contest.scenario.cluster.model_copy(update={"nodes": nodes})
    return sum(one.per_second for one in hazards(failures, cluster))


def _now(contest: Decision, one: Contender, per_second: float) -> float | None:
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
