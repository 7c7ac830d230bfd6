"""The space of a search: the values that each degree may take, and the sizes of the cluster.

What a search is after: a deadline, a budget, or speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias, cast

from twin import units
from twin.errors import Origin, Problem, UsageError
from twin.loading.files import table
from twin.loading.tree import hint
from twin.planning.launched import launched_memory, launched_schedule
from twin.planning.mesh import divisors, next_to
from twin.scenario import Scenario
from twin.schedules import SCHEDULES
from twin.schedules.base import Schedule
from twin.spec.cluster import MOST_GPUS
from twin.spec.memory import MemorySpec
from twin.spec.model import LatentAttention
from twin.spec.software import RunsSpec

SHORT: Final = table(__name__, "SHORT")
"""Degrees by the letters that trainers write."""
USUAL_UNITS: Final[Mapping[str, str]] = table(__name__, "USUAL_UNITS")
"""What planners write a field of a question in."""


@dataclass(frozen=True, slots=True)
class ParallelLayout:
    """One point of the space of a search. Degrees as in `ParallelSpec`."""

    nodes: int
    pipeline: int
    virtual: int
    tensor: int
    context: int
    expert: int
    expert_tensor: int
    zero: int
    micro_batch: int
    schedule: Schedule
    memory: MemorySpec

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this layout. Its values are those of a scenario that was read, so they
        are not validated again; whether the layout is possible is the rules' to say."""
        # A split of layers was written for another number of chunks: they are balanced anew.
        changed = {name: getattr(self, name) for name in (*DEGREES, "schedule")}
        changed |= {"layers": None, "sequence_parallel": cuts_sequences(scenario, self.tensor)}
        parallel = scenario.parallel.model_copy(update=changed)
        # Numbers of GPUs are those of one cluster: others have equal GPUs.
        alike = {"nodes": self.nodes, "degraded": (), "jitter": None}
        cluster = scenario.cluster.model_copy(update=alike)
        changed = {"parallel": parallel, "cluster": cluster, "memory": self.memory, "expect": ()}
        return scenario.model_copy(update=changed)

    def overrides(self, scenario: Scenario) -> dict[str, Any]:
        """The same as values by dotted path, in plain data, as a file would say it: those fields
        that the scenario has otherwise."""
        return dict(_differing(scenario, self.applied(scenario)))

    @property
    def words(self) -> str:
        """The layout in one line: degrees that cut something, the schedule, the memory policy."""
        degrees = {name: getattr(self, key) for key, name in SHORT.items()}
        cut = [f"{name}{degree}" for name, degree in degrees.items() if degree > 1]
        return " ".join([*cut, f"ZeRO-{self.zero}", schedule_words(self.schedule)])


DEGREES: Final = tuple(
    one.name for one in fields(ParallelLayout) if one.name not in ("nodes", "schedule", "memory")
)
"""The fields of a layout that are numbers of `parallel`."""


def layout_of(scenario: Scenario) -> ParallelLayout:
    """The layout that a scenario has now."""
    parallel = scenario.parallel
    return ParallelLayout(
        nodes=scenario.cluster.nodes,
        schedule=parallel.schedule,
        memory=scenario.memory.as_everywhere,
        **{name: getattr(parallel, name) for name in DEGREES},
    )


def cuts_sequences(scenario: Scenario, tensor: int) -> bool:
    """Whether tensor ranks share the sequence outside of products: as written, or, where the
    scenario has one tensor rank and so says nothing, as every trainer does it by now."""
    written = scenario.parallel
    return written.sequence_parallel if written.tensor > 1 else tensor > 1


def schedule_words(schedule: Schedule) -> str:
    """A schedule with its settings that are on."""
    settings = schedule.model_dump(exclude={"kind"}, exclude_defaults=True)
    on = [name.replace("_", " ") for name, value in settings.items() if value]
    return f"{schedule.kind} ({', '.join(on)})" if on else str(schedule.kind)


def _differing(base: Scenario, other: Scenario) -> Iterator[tuple[str, Any]]:
    """Dotted path and value of what a layout may change and has changed."""
    if base.cluster.nodes != other.cluster.nodes:
        yield "cluster.nodes", other.cluster.nodes
    if base.cluster.uneven:
        yield from (("cluster.degraded", []), ("cluster.jitter", None))
    for section in ("parallel", "memory"):
        old, new = (
            getattr(one, section).model_dump(mode="json", by_alias=True) for one in (base, other)
        )
        for name, value in new.items():
            if old[name] != value:
                yield f"{section}.{name}", value


MOST_CONTEXT_ALONE: Final = 8192
"""Tokens of a sequence up to which context ranks are not tried: every layout that needs them below
this length can use tensor ranks or recomputation instead, and is faster for it (ours)."""
VIRTUAL: Final = (1, 2, 4)
MICRO_BATCHES: Final = (1, 2)
SHARDED: Final = 3
"""ZeRO stage that is tried beside the scenario's own where there is no pipeline: with one, sharded
parameters would be gathered again for every micro-batch."""


class Grid(NamedTuple):
    """How the ranks are counted: what a search fixes first."""

    nodes: int
    pipeline: int
    tensor: int
    context: int
    expert: int
    expert_tensor: int


class Turn(NamedTuple):
    """What passes a pipeline, and in which order."""

    micro_batch: int
    schedule: Schedule
    virtual: int


@dataclass(frozen=True, slots=True)
class Space:
    """The values of every axis. An empty `pipeline` means every divisor of the cluster's GPUs that
    leaves each stage a layer, an empty `zero` the scenario's, 1
    where that is 0, and, without a pipeline, 3."""

    scenario: Scenario
    nodes: tuple[int, ...]
    pipeline: tuple[int, ...]
    virtual: tuple[int, ...]
    tensor: tuple[int, ...]
    context: tuple[int, ...]
    expert: tuple[int, ...]
    expert_tensor: tuple[int, ...]
    zero: tuple[int, ...]
    micro_batch: tuple[int, ...]
    schedule: tuple[Schedule, ...]
    memory: tuple[MemorySpec, ...]

    def grids(self) -> Iterator[Grid]:
        """Every way to count the ranks."""
        for nodes in self.nodes:
            for degrees in product(
                self.pipelines(nodes), self.tensor, self.context, self.expert, self.expert_tensor
            ):
                yield Grid(nodes, *degrees)

    def pipelines(self, nodes: int) -> Sequence[int]:
        """Degrees of the pipeline on so many nodes."""
        if self.pipeline:
            return self.pipeline
        gpus = nodes * self.scenario.cluster.node.gpus
        return [one for one in divisors(gpus) if one <= self.scenario.model.layers]

    def turns(self, pipeline: int) -> tuple[Turn, ...]:
        """Every micro-batch with every schedule and every number of chunks that it can run. One
        stage has one chunk, and nothing to order: of several schedules the first."""
        found = tuple(
            Turn(micro, schedule, virtual)
            for micro in self.micro_batch
            for schedule in self.schedule
            for virtual in self.virtual
            if runs_chunks(schedule, virtual)
        )
        if pipeline > 1 or len(self.schedule) == 1:
            return found
        simple = next((turn.schedule for turn in found if turn.virtual == 1), None)
        return tuple(turn for turn in found if turn.schedule == simple) or found

    def zeros(self, pipeline: int) -> tuple[int, ...]:
        """ZeRO stages that are tried."""
        if self.zero:
            return self.zero
        own = self.scenario.parallel.zero
        tried = (own, *((1,) if own == 0 else ()), *((SHARDED,) if pipeline == 1 else ()))
        return tuple(dict.fromkeys(tried))

    def below(self, pipeline: int) -> int:
        """Layouts of a grid."""
        return len(self.turns(pipeline)) * len(self.zeros(pipeline)) * len(self.memory)

    @property
    def size(self) -> int:
        """All layouts."""
        return sum(self.below(grid.pipeline) for grid in self.grids())

    def layout(self, grid: Grid, turn: Turn, zero: int, memory: MemorySpec) -> ParallelLayout:
        """One point of it."""
        return ParallelLayout(zero=zero, memory=memory, **grid._asdict(), **turn._asdict())


AXES: Final = (*DEGREES, "schedule")
"""Axes of a space that a planner may set, as fields of `parallel`; beside them `memory`."""


def space(scenario: Scenario, nodes: Sequence[int], *, any_stack: bool = False) -> Space:
    """The space around a scenario: every degree that could cut its model, the schedules that can
    run it, and memory policies from keeping all to sending activations to the host. What the
    scenario has is part of it as far as its software can run that; with `any_stack` all is."""
    own = layout_of(scenario)
    runs = None if any_stack or scenario.software is None else scenario.software.runs
    model, node = scenario.model, scenario.cluster.node
    inside = _powers(node.gpus)
    long = scenario.train.sequence > MOST_CONTEXT_ALONE
    return Space(
        scenario=scenario,
        nodes=tuple(nodes),
        pipeline=(),
        virtual=_with(VIRTUAL, own.virtual),
        tensor=_with(inside, own.tensor),
        context=_with(inside if long else (1,), own.context),
        expert=_with(_powers(model.moe.experts) if model.moe else (1,), own.expert),
        expert_tensor=(own.expert_tensor,),
        zero=(),
        micro_batch=_with(MICRO_BATCHES, own.micro_batch),
        schedule=_schedules(scenario, runs),
        memory=_policies(scenario, runs),
    )


def narrowed(found: Space, axes: Mapping[str, Sequence[Any]]) -> Space:
    """The space with some axes set to these values. Raises `UsageError` for what is no axis."""
    changes: dict[str, tuple[Any, ...]] = {}
    for path, values in axes.items():
        name = path.removeprefix("parallel.")
        if name not in AXES:
            known = [f"parallel.{axis}" for axis in AXES]
            fix = hint(path, known, "of a search")
            raise UsageError([Problem("TW430", "", f"`{path}` is no axis of a search", fix)])
        changes[name] = tuple(_value(path, name, value) for value in values)
    return replace(found, **changes)


def _value(path: str, name: str, value: Any) -> Any:
    """A value of an axis as a scenario would read it."""
    if name == "schedule":
        written = cast("dict[str, Any]", value) if isinstance(value, dict) else {"kind": value}
        kind = str(written.get("kind"))
        if kind not in SCHEDULES:
            fix = f"write one of: {', '.join(SCHEDULES)}"
            raise UsageError([Problem("TW430", "", f"`{kind}` is no schedule", fix)])
        return SCHEDULES[kind].model_validate(written | {"kind": kind})
    least, most = (0, 3) if name == "zero" else (1, MOST_GPUS)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        fix = f"write whole numbers, {least} to {most}: `{path}={least},{least + 1}`"
        raise UsageError([Problem("TW430", "", f"`{path}` cannot be {value}", fix)])
    return value


def only(found: Space) -> Space:
    """The space of one layout, the scenario's, over the sizes of the cluster."""
    own = layout_of(found.scenario)
    single = {axis: (getattr(own, axis),) for axis in AXES}
    return replace(found, **single, memory=(own.memory,))


def _with(values: Sequence[int], own: int) -> tuple[int, ...]:
    return tuple(sorted({*values, own}))


def _powers(of: int) -> tuple[int, ...]:
    """Powers of two that divide a number."""
    return tuple(1 << bit for bit in range(of.bit_length()) if of % (1 << bit) == 0)


def runs_chunks(schedule: Schedule, virtual: int) -> bool:
    """Whether a schedule is one of so many chunks per stage."""
    return all(one.field != "parallel.virtual" for one in schedule.problems(2, virtual, 8))


def _schedules(scenario: Scenario, runs: RunsSpec | None) -> tuple[Schedule, ...]:
    """1F1B, interleaved, ZB-H1; with experts also those that hide their all-to-all in pairs; as
    far as the software runs them."""
    pairs = {"kind": "interleaved_1f1b", "extra_warmup": 1, "overlap_all_to_all": True}
    written: list[dict[str, Any]] = [{"kind": k} for k in ("1f1b", "interleaved_1f1b", "zb_h1")]
    if scenario.model.moe is not None:
        written += [pairs, pairs | {"defer_weight_grad": True}, {"kind": "dualpipe"}]
    found = [SCHEDULES[one["kind"]].model_validate(one) for one in written]
    own = scenario.parallel.schedule
    return tuple(
        one
        for one in (own, *(one for one in found if one != own))
        if runs is None or launched_schedule(one, 1, runs) == one
    )


def _policies(scenario: Scenario, runs: RunsSpec | None) -> tuple[MemorySpec, ...]:
    """The scenario's own policy, and from keeping all, over light recomputation, FP8 and the host,
    to computing all again; each with the same optimizer states on the host. What the
    software cannot do is left out."""
    own, model = scenario.memory.as_everywhere, scenario.model
    latent = ("mla_up",) if isinstance(model.attention, LatentAttention) else ()
    light = ("norms", "swiglu", *latent) if model.ffn.kind == "swiglu" else ("norms",)
    packed = ("moe_up_input", "swiglu_input") if model.moe is not None else ()
    states = tuple(one for one in own.offload if one not in own.activations_on_host)
    kept = (
        ((), (), ()),
        (light, (), ()),
        (light, packed, ()),
        (light, packed, ("activations",)),
        (("full",), (), ()),
    )
    others = [
        own.model_copy(
            update={"recompute": again, "fp8_store": stored, "offload": (*sent, *states)}
        )
        for again, stored, sent in kept
    ]
    found = (own, *others)
    return tuple(dict.fromkeys(launched_memory(one, runs) if runs else one for one in found))


DAY: Final = 86400.0
"""Seconds."""
Kpis: TypeAlias = Mapping[str, float | None]
"""The key figures of a run."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked for. With `days` the cheapest layout that is done in time, with `usd` the
    fastest within the budget, with neither the fastest."""

    days: float | None = None
    usd: float | None = None

    def slowest_ns(self, scenario: Scenario) -> float:
        """The longest step that is done in time."""
        if self.days is None:
            return inf
        steps = scenario.train.tokens / scenario.train.global_batch
        return self.days * DAY / steps * 1e9

    def met(self, kpis: Kpis) -> bool:
        """Whether a run meets what is asked for. A cost that is unknown meets no budget."""
        days, usd = kpis["days"], kpis["cost_usd"]
        in_time = self.days is None or (days is not None and days <= self.days)
        return in_time and (self.usd is None or (usd is not None and usd <= self.usd))

    def excess(self, kpis: Kpis) -> float:
        """By which share a run is beyond what is asked for; negative where it meets it."""
        asked = ((kpis["days"], self.days), (kpis["cost_usd"], self.usd))
        return max(((at or 0.0) / most - 1 for at, most in asked if most is not None), default=-1.0)

    def worth(self, kpis: Kpis) -> tuple[float, float]:
        """Less is better: the cost where a deadline is set, else the days; the other among
        equals."""
        days, money = days_and_money(kpis)
        return (money, days) if self.days is not None else (days, money)

    @property
    def words(self) -> str:
        """The goal in words."""
        if self.days is not None and self.usd is not None:
            return f"the cheapest within {self.days:g} days and {self.usd:,.0f} USD"
        if self.days is not None:
            return f"the cheapest within {self.days:g} days"
        if self.usd is not None:
            return f"the fastest within {self.usd:,.0f} USD"
        return "the fastest"

    def to_json(self) -> dict[str, Any]:
        """The goal in plain data."""
        return {
            "target_days": self.days,
            "budget_usd": self.usd,
            "words": self.words,
            "judged_by": "days and cost without failures",
        }


def goal_of(target: str | None, budget: str | None) -> Goal:
    """What is asked for, of texts that may be missing. Raises `UsageError` for what is no time
    or no money."""
    days = quantity("target", target, "seconds") / DAY if target else None
    return Goal(days, quantity("budget", budget, "usd") if budget else None)


def quantity(field: str, text: str, dimension: units.Dimension) -> float:
    """The SI value of a field. Raises `UsageError` where it is none, or not positive."""
    try:
        found = units.parse(text, dimension)
    except units.QuantityError as error:
        raise UsageError([field_problem("TW433", field, text, error.message, error.hint)]) from None
    if found <= 0:
        raise UsageError([Problem("TW433", field, f"`{text}` must be positive", "ask for more")])
    return found


def field_problem(code: str, field: str, text: str, message: str, hint: str) -> Problem:
    """What is wrong with a field; a number without a unit gets the one that planners use."""
    bare, unit = text.strip().replace(".", "", 1).isdecimal(), USUAL_UNITS.get(field.strip("-"))
    fix = f"write `{text.strip()}{unit}`" if bare and unit else hint
    return Problem(code, field, message, fix)


def days_and_money(kpis: Kpis) -> tuple[float, float]:
    """Days and cost of a run by its key figures; GPU-hours where nothing has a price."""
    days, money = kpis["days"], kpis["cost_usd"]
    hours = kpis["gpu_hours"]
    assert days is not None  # every answered run has both
    assert hours is not None
    return days, hours if money is None else money


MOST_SIZES: Final = 256
"""Sizes that one search compares."""


def nodes_of(scenario: Scenario, text: str) -> tuple[int, ...]:
    """The numbers of nodes. A range goes in steps of its lower end, unless it says others. Raises
    `UsageError` for what is none, or no whole nodes."""
    per_node = scenario.cluster.node.gpus
    found = sorted({size for part in text.split(",") for size in _part(part.strip(), text)})
    if len(found) > MOST_SIZES:
        _refuse(text, f"{len(found):,} sizes are more than {MOST_SIZES}", "write larger steps")
    for size in found:
        if size % per_node:
            below = size // per_node * per_node
            near = next_to(size, [one for one in (below, below + per_node) if one])
            fix = f"nearest {' or '.join(map(str, near))}"
            _refuse(text, f"{size} GPUs do not fill nodes of {per_node}", fix)
    return tuple(size // per_node for size in found)


def _part(part: str, text: str) -> range:
    numbers = [_number(one, text) for one in part.split(":")]
    if len(numbers) > 3:
        _refuse(text, f"`{part}` is not a range", "write LOW:HIGH or LOW:HIGH:STEP")
    low, high, step = (*numbers, numbers[0], numbers[0])[:3]
    if high < low:
        _refuse(text, f"{high} is less than {low}", f"write {high}:{low}")
    return range(low, high + 1, step)


def _number(written: str, text: str) -> int:
    cleaned = written.strip().replace("_", "").lstrip("0")
    if not cleaned.isdecimal():
        _refuse(text, f"`{written}` is not a number of GPUs", "write 256:4096, or 256,512,1024")
    if len(cleaned) > len(str(MOST_GPUS)) or int(cleaned) > MOST_GPUS:
        _refuse(text, f"{cleaned} GPUs are more than {MOST_GPUS:,}", f"at most {MOST_GPUS}")
    return int(cleaned)


def _refuse(text: str, message: str, fix: str) -> None:
    origin = Origin("--gpus", 1, 1, text, len(text))
    raise UsageError([Problem("TW432", "", message, fix, origin)])
