"""The nearest plans that fit: what to change in a plan that is too large, or cannot run at all.

Fields of the layout and of memory take other values, one at a time, then two at a time, nearest
values first; of those that can run at most `MOST_PLANNED` are planned, as far as memory goes, and
of those that fit the nearest `MOST_PLAYED` are simulated. Bounded and deterministic, so not
complete: a plan that needs three changes, or a value far from the present one in two fields, is not
found.

Variants of a scenario: some values replaced, and the answer to each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final, cast, get_args

from twin.arch.recompute import RECOMPUTED
from twin.engine import lower, plan, simulate
from twin.engine.program import Program
from twin.errors import ScenarioError
from twin.kinds.base import Fidelity, told_apart
from twin.loading.files import table
from twin.planning.compile import fits
from twin.planning.feasibility import problems
from twin.planning.mesh import lay_out
from twin.planning.types import Plan
from twin.reports.breakdown import mean
from twin.reports.kpis import kpis
from twin.scenario import Root, Scenario, UpdateScenario
from twin.schedules import KNOWN
from twin.spec.memory import Fp8Store, MemorySpec, Recompute

MOST_PLANNED: Final = 40
"""Plans that are made in search of some that fit."""
MOST_PLAYED: Final = 8
"""Plans that fit and are answered."""
MOST_CHANGES: Final = 2
"""Fields that change at once."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A plan that fits, as overrides of the one that does not."""

    overrides: Mapping[str, str]
    """Dotted path to value, as `--set` takes them."""
    scenario: Scenario
    kpis: Mapping[str, float | None]
    headroom_bytes: float
    """What the fullest GPU has left."""

    @property
    def words(self) -> str:
        """The overrides as one would type them."""
        return " ".join(f"--set {path}={value}" for path, value in self.overrides.items())

    def to_json(self) -> dict[str, Any]:
        """The suggestion in plain data."""
        return {
            "overrides": dict(self.overrides),
            "kpis": dict(self.kpis),
            "headroom_bytes": self.headroom_bytes,
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """Another value of one field, and how many values away it is."""

    path: str
    value: Any
    notches: int


def nearest_fit(scenario: Scenario) -> tuple[Suggestion, ...]:
    """Plans near to the scenario's that fit, those with the fewest changed fields first, then the
    fastest; empty where the search finds none."""
    search = _Search(document(scenario), tuple(_changes(scenario)))
    fitting: list[tuple[int, Suggestion]] = []
    answers = StepAnswers()
    for changes in search.fitting():
        suggestion = _suggestion(search.variant(changes), changes, answers)
        fitting.append((len(changes), suggestion))
        if len(fitting) == MOST_PLAYED:
            break
    fitting.sort(key=lambda found: (found[0], found[1].kpis["step_seconds"] or 0.0))
    return tuple(suggestion for _, suggestion in fitting)


def _suggestion(scenario: Scenario, changes: Sequence[_Change], answers: StepAnswers) -> Suggestion:
    answer: StepAnswer = answers.of(scenario)
    return Suggestion(
        overrides={change.path: written(change.value) for change in changes},
        scenario=scenario,
        kpis=kpis(answer.plan, answer.step_ns, answer.breakdown_ns),
        headroom_bytes=answer.headroom,
    )


@dataclass(slots=True)
class _Search:
    """The variants of a scenario that can run and fit, nearest first."""

    base: Document
    changes: tuple[_Change, ...]
    planned: int = field(default=0)

    def fitting(self) -> Iterator[tuple[_Change, ...]]:
        """Sets of changes after which the plan fits, none of which could be spared."""
        enough: list[set[_Change]] = []
        for count in range(1, MOST_CHANGES + 1):
            for changes in self._nearest(count):
                if self.planned >= MOST_PLANNED:
                    return
                if not any(known.issubset(changes) for known in enough) and self._fits(changes):
                    enough.append(set(changes))
                    yield changes

    def variant(self, changes: Sequence[_Change]) -> Scenario:
        """The scenario after some changes; ValueError where a section does not allow them."""
        return replaced(self.base, {change.path: change.value for change in changes})

    def _nearest(self, count: int) -> list[tuple[_Change, ...]]:
        chosen = combinations(self.changes, count)
        apart = [some for some in chosen if len({change.path for change in some}) == count]
        return sorted(apart, key=lambda some: sum(change.notches for change in some))

    def _fits(self, changes: Sequence[_Change]) -> bool:
        try:
            scenario = self.variant(changes)
        except ValueError:
            return False
        if problems(scenario):
            return False
        self.planned += 1
        try:
            return fits(scenario)
        except ScenarioError:
            return False


def _changes(scenario: Scenario) -> Iterator[_Change]:
    """Every other value of every field that may change, in the order in which ties are tried."""
    present = document(scenario)
    for path, values in _choices(scenario).items():
        now = value_at(present, path)
        ordered = sorted({*values, now}) if isinstance(now, int) else list(values)
        place = ordered.index(now) if now in ordered else 0
        for index, value in enumerate(ordered):
            if value != now:
                yield _Change(path, value, max(1, abs(index - place)))


def _choices(scenario: Scenario) -> dict[str, list[Any]]:
    """The values that each field may take, by dotted path: degrees that divide, policies that
    exist, and larger clusters."""
    parallel, cluster, model = scenario.parallel, scenario.cluster, scenario.model
    ranks = cluster.gpus
    blamed = {problem.path for problem in problems(scenario)}
    enough = -(-model.layers // parallel.pipeline)
    parts = [*RECOMPUTED] if model.moe else [one for one in RECOMPUTED if one != "moe_down"]
    parts = parts if model.attention.kind == "mla" else [one for one in parts if one != "mla_up"]
    choices: dict[str, list[Any]] = {
        "memory.recompute": [["full"], parts, *([part] for part in parts)],
        "memory.offload": [["activations"], ["optimizer"], ["activations", "optimizer"]],
        "parallel.expert": _divisors(model.moe.experts if model.moe else 1, ranks),
        "parallel.pipeline": _divisors(ranks, model.layers),
        "parallel.virtual": list(range(1, min(enough, 8) + 1)),
        "parallel.micro_batch": [1, 2, 4, 8],
        "parallel.tensor": _divisors(cluster.node.gpus, ranks),
        "parallel.expert_tensor": _divisors(cluster.node.gpus, ranks) if model.moe else [],
        "parallel.context": _divisors(cluster.node.gpus, ranks),
        "parallel.zero": [0, 1, 2, 3],
        "cluster.nodes": [cluster.nodes, 2 * cluster.nodes, 4 * cluster.nodes],
    }
    if parallel.layers is not None:
        choices["parallel.layers"] = [None]
    if any(path.startswith(("parallel.schedule", "parallel.virtual")) for path in blamed):
        choices["parallel.schedule"] = [k for k in KNOWN if k != parallel.schedule.kind]
    if "train.global_batch" in blamed:
        choices["train.global_batch"] = _batches(scenario)
    return choices


def _batches(scenario: Scenario) -> list[str]:
    """The batches next to the present one that give every rank whole micro-batches, and whole
    rounds of them, which schedules with several chunks want; nearest first."""
    parallel, present = scenario.parallel, scenario.train.global_batch_sequences
    each = lay_out(scenario).data * parallel.micro_batch
    steps = (each, each * parallel.pipeline)
    found = {step * (present // step + up) for step in steps for up in (0, 1)} - {0}
    return [f"{count}seq" for count in sorted(found, key=lambda one: (abs(one - present), one))]


def _divisors(number: int, most: int) -> list[int]:
    return [divisor for divisor in range(1, min(number, most) + 1) if number % divisor == 0]


PRICES: Final[dict[str, str]] = table(__name__, "PRICES")
"""Every field that is tried, and what its change costs, in words."""
OFFLOADS: Final = ("activations", "optimizer")
"""What is tried of `memory.offload`; the parts of `optimizer` are for finer choices."""


@dataclass(frozen=True, slots=True)
class MemoryLever:
    """One change: a field and its new value, as `--set` takes them, and the memory with it."""

    path: str
    value: str
    peak_bytes: float
    """On the fullest GPU, with the change."""
    saved_bytes: float
    """Of the peak without the change."""
    fits: bool
    step_seconds: float | None = None
    """How much longer a step takes; None where that was not asked for."""

    @property
    def label(self) -> str:
        """The change in few letters."""
        return f"{self.path.rpartition('.')[2]}: {self.value}"

    @property
    def price(self) -> str:
        """What it costs, in words."""
        return PRICES[self.path]


def levers(scenario: Scenario, *, timed: bool = False) -> tuple[MemoryLever, ...]:
    """The changes that free memory on the fullest GPU, the largest first; `timed` simulates
    each of them, and the scenario.

    Raises:
        ScenarioError: the layout of the scenario itself is impossible.
    """
    usual, base, answers = plan(scenario).memory.peak.peak_bytes, document(scenario), StepAnswers()
    step_ns = answers.of(scenario).step_ns if timed else 0
    found: list[MemoryLever] = []
    for path, value in _memory_changes(scenario):
        try:
            changed = replaced(base, {path: value})
            memory = plan(changed).memory
        except (ValueError, ScenarioError):
            continue
        saved = usual - memory.peak.peak_bytes
        if saved <= 0:
            continue
        longer = (answers.of(changed).step_ns - step_ns) / 1e9 if timed else None
        found.append(
            MemoryLever(path, written(value), memory.peak.peak_bytes, saved, memory.fits, longer)
        )
    return tuple(sorted(found, key=lambda lever: -lever.saved_bytes))


def _memory_changes(scenario: Scenario) -> Iterator[tuple[str, Any]]:
    """Paths and values: every memory policy added, every higher stage of ZeRO, and the next step of
    every degree."""
    yield from _policies(scenario.memory)
    present = document(scenario)
    parallel = scenario.parallel
    for stage in range(parallel.zero + 1, 4):
        yield "parallel.zero", stage
    for degree in ("expert", "tensor", "expert_tensor", "context", "pipeline"):
        yield f"parallel.{degree}", 2 * int(value_at(present, f"parallel.{degree}") or 1)
    for degree in ("virtual", "micro_batch"):
        if (now := int(value_at(present, f"parallel.{degree}"))) > 1:
            yield f"parallel.{degree}", now // 2
    if parallel.tensor > 1 and not parallel.sequence_parallel:
        yield "parallel.sequence_parallel", True


def _policies(memory: MemorySpec) -> Iterator[tuple[str, list[str]]]:
    """Every policy of recomputation, storing in FP8 and offload, added to those there are."""
    for policy in get_args(Recompute):
        if not {"full", policy} & {*memory.recompute}:
            more = ["full"] if policy == "full" else [*memory.recompute, policy]
            yield "memory.recompute", more
    for store in get_args(Fp8Store):
        if store not in memory.fp8_store:
            yield "memory.fp8_store", [*memory.fp8_store, store]
    for part in OFFLOADS:
        if part not in memory.offload:
            yield "memory.offload", [*memory.offload, part]


Document = dict[str, Any]
"""A scenario in plain data, as its file would say it: quantities are text with units."""


def document(scenario: Root, *, step: bool = True) -> Document:
    """The scenario in plain data, which validates to the same scenario; without what is expected of
    it, which variants need not meet, what a sweep varies, and, for variants of a `step`, phases."""
    left_out = ("expect", "sweep", "phases", "start")[: 4 if step else 2]
    return scenario.model_dump(mode="json", by_alias=True, exclude={*left_out})


def replaced(base: Document, values: Mapping[str, Any]) -> Any:
    """The scenario with the values at some dotted paths replaced. Raises pydantic's
    `ValidationError`, a ValueError, where a section does not allow them."""
    changed = base
    for path, value in values.items():
        changed = _set(changed, path.split("."), value)
    root = UpdateScenario if UpdateScenario.section in base else Scenario
    return root.model_validate(changed)


def value_at(values: Document, path: str) -> Any:
    """The value at a dotted path; items of lists count from 0. None where there is none."""
    found: Any = values
    for key in path.split("."):
        if isinstance(found, list):
            found = cast("list[Any]", found)[int(key)]
        elif isinstance(found, dict):
            found = cast(Document, found).get(key)
        else:
            return None
    return found


def _set(section: Any, keys: Sequence[str], value: Any) -> Any:
    """A copy of the section with another value under the keys; what is not on the way is shared."""
    if not keys:
        return value
    first, *rest = keys
    if isinstance(section, list):
        items = cast("list[Any]", section)
        index = int(first)
        return [*items[:index], _set(items[index], rest, value), *items[index + 1 :]]
    known: Document = cast(Document, section) if isinstance(section, dict) else {}
    return {**known, first: _set(known.get(first), rest, value)}


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """What is said of one scenario."""

    plan: Plan
    step_ns: int
    breakdown_ns: Mapping[str, int]
    """Mean over ranks; sums to `step_ns` exactly."""

    @property
    def days(self) -> float:
        """Days of the whole run."""
        train = self.plan.scenario.train
        return train.tokens / train.global_batch * self.step_ns / 1e9 / 86400

    @property
    def headroom(self) -> float:
        """Bytes that the fullest GPU has left; negative where the plan does not fit."""
        return self.plan.memory.budget - self.plan.memory.peak.peak_bytes


@dataclass(slots=True)
class StepAnswers:
    """Answers of one fidelity. A step is played once: scenarios that come to the same Program share
    it."""

    fidelity: Fidelity = "events"
    runs: int = 0
    """Programs played so far."""
    _played: list[tuple[Program, int, Mapping[str, int]]] = field(
        default_factory=list[tuple[Program, int, Mapping[str, int]]]
    )

    def of(self, scenario: Scenario) -> StepAnswer:
        """The answer. Raises `ScenarioError` where the layout is impossible."""
        planned = plan(scenario)
        program = lower(planned, told_apart(self.fidelity))
        for known, step_ns, breakdown_ns in self._played:
            if known == program:
                return StepAnswer(planned, step_ns, breakdown_ns)
        trace = simulate(program)
        self.runs += 1
        self._played.append((program, trace.step_ns, mean(trace.breakdown_ns, trace.ranks)))
        return StepAnswer(planned, *self._played[-1][1:])


def written(value: Any) -> str:
    """A value as one would write it into YAML on one line."""
    if isinstance(value, dict):
        pairs = cast(Document, value).items()
        return "{" + ", ".join(f"{key}: {written(item)}" for key, item in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in cast("Iterable[Any]", value)) + "]"
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return str(value)
