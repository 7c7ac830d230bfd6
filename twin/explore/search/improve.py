"""What would make a plan better: single edits of its layout and memory policy, and pairs of them.

Each edit is simulated by events. An edit that breaks a rule, or does not fit in memory, is never
offered. Pairs are tried in the order of what both halves gain by themselves. An edit that does not
fit takes part in a pair where the other half frees the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from time import monotonic
from typing import Any, Final, get_args

from twin.answers.executors import Executor, PoolChoice, open_executor
from twin.answers.nearest import document, replaced, written
from twin.errors import Problem, UsageError
from twin.explore.search.recommendation import Progress, Told
from twin.explore.search.space import Space, runs_chunks, space
from twin.explore.sweep.points import PointOutcome, SweepPoint
from twin.explore.sweep.sweep import answer_points
from twin.loading import scenario_hash
from twin.planning.launched import launched
from twin.reports.table import duration_beside, percent
from twin.scenario import Scenario

VERSION: Final = 1
"""Version of the JSON document."""
LEAST: Final = 0.005
"""Share of the step that an edit has to gain to be offered: OURS."""
OFFERED: Final = 3
"""Single edits that are offered: OURS, one card each."""
MOST_PAIRS: Final = 16
"""Pairs that are tried: OURS, what a minute has room for on two cores."""
PATIENCE: Final = 60.0
"""Seconds after which no more pairs are tried: OURS, as long as a person waits."""
CHUNKS: Final = (1, 2, 3, 4, 6, 8)
"""Chunks per stage that are tried: OURS."""
DISPATCHERS: Final = ("alltoall", "deepep", "hybridep")
"""Exchanges of experts that trainers ship."""
COSTS: Final[Mapping[str, str]] = {
    "chunks per stage": "new checkpoints",
    "micro-batch": "a flag",
    "schedule": "a trainer that has it",
    "recomputation": "a flag",
    "FP8 storage": "a flag; precision",
    "offload": "a flag",
    "memory by stage": "flags of its own for each stage",
    "expert degree": "new checkpoints",
    "dispatcher": "a library",
    "overlap": "a flag",
    "split of layers": "new checkpoints",
}
"""What an edit of each field takes to do, beside memory."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Another value of one field, or of two."""

    fields: tuple[str, ...]
    """Keys of `COSTS`."""
    overrides: Mapping[str, Any]
    """Dotted path to plain data."""

    @property
    def words(self) -> str:
        """The edit as one would type it."""
        return " ".join(f"--set '{path}={written(it)}'" for path, it in self.overrides.items())

    @property
    def costs(self) -> str:
        """What it costs to do."""
        return "; ".join(dict.fromkeys(COSTS[name] for name in self.fields))

    @property
    def adapts(self) -> bool:
        """Whether stages choose what they need, whatever memory another edit takes."""
        return self.overrides.get("memory.by_stage") == "auto"

    def joined(self, other: Edit) -> Edit | None:
        """Both edits together; None where they are of one field, or contradict each other."""
        same = self.overrides.keys() & other.overrides.keys()
        if {*self.fields} & {*other.fields} or any(
            self.overrides[path] != other.overrides[path] for path in same
        ):
            return None
        return Edit((*self.fields, *other.fields), {**self.overrides, **other.overrides})


@dataclass(frozen=True, slots=True)
class Tried:
    """An edit and its answer by events."""

    edit: Edit
    outcome: PointOutcome

    @property
    def step_ns(self) -> float:
        """Of the edited plan."""
        assert self.outcome.step_ns is not None  # only what was answered is kept
        return self.outcome.step_ns


@dataclass(frozen=True, slots=True)
class Improvement:
    """What was tried of a plan, and what is better."""

    scenario: Scenario
    usual: PointOutcome
    """The plan as it is."""
    tried: tuple[Tried, ...] = ()
    """Single edits that fit, the fastest first."""
    pairs: tuple[Tried, ...] = ()
    """Pairs that fit, the fastest first."""
    impossible: int = 0
    """Edits that break a rule."""
    too_large: int = 0
    """Edits that do not fit."""
    untried: int = 0
    """Pairs for which no time was left."""

    @property
    def singles(self) -> tuple[Tried, ...]:
        """The best edits, of each field one, that fit and gain `LEAST`."""
        best = _first_of_each_field(self.tried)
        return tuple(one for one in best if self.gain(one) >= LEAST)[:OFFERED]

    @property
    def pair(self) -> Tried | None:
        """The best pair; None where no pair gains `LEAST` over the best single edit."""
        best = self.singles[0].step_ns if self.singles else self.usual.step_ns or 0
        return next((one for one in self.pairs[:1] if one.step_ns <= (1 - LEAST) * best), None)

    @property
    def offered(self) -> tuple[Tried, ...]:
        """The best pair, if there is one, and the best edits."""
        return (*((self.pair,) if self.pair else ()), *self.singles)

    @property
    def _now(self) -> float:
        assert self.usual.step_ns is not None  # nothing is tried of a plan that does not fit
        return self.usual.step_ns

    def step(self, ns: float) -> str:
        """The words of a step, all in the unit of the shortest."""
        return duration_beside(ns / 1e9, self.offered[0].step_ns / 1e9)

    def gain(self, one: Tried) -> float:
        """By which share the step is shorter."""
        return 1 - one.step_ns / self._now

    @property
    def sentences(self) -> list[str]:
        """What is better, in words."""
        if self.usual.status != "fits":
            return ["The plan does not fit: `twin check` names the nearest plans that do."]
        counted = (
            f"{len(self.tried)} edits and {len(self.pairs)} pairs that fit were simulated; "
            f"{self.too_large} do not fit, {self.impossible} are impossible."
        )
        late = f" {self.untried} pairs were not tried: out of time." * bool(self.untried)
        if not self.offered:
            return [f"No edit makes the step {100 * LEAST:g} % shorter.", counted + late]
        best = self.offered[0]
        first = (
            f"A step takes {self.step(best.step_ns)} instead of {self.step(self._now)}, "
            f"{percent(self.gain(best))} less, with {best.edit.words}."
        )
        return [first, counted + late]

    def to_json(self) -> dict[str, Any]:
        """The improvement as a versioned document."""
        pair = self.pair
        return {
            "version": VERSION,
            "name": self.scenario.name,
            "hash": scenario_hash(self.scenario),
            "step_seconds": self.usual.step_ns and self.usual.step_ns / 1e9,
            "fits": self.usual.status == "fits",
            "headroom_bytes": self.usual.headroom_bytes,
            "least_gain": LEAST,
            "edits": [self.told(one) for one in self.singles],
            "pair": None if pair is None else self.told(pair),
            "tried": [self.told(one) for one in (*self.tried, *self.pairs)],
            "impossible": self.impossible,
            "too_large": self.too_large,
            "not_tried": self.untried,
        }

    def told(self, one: Tried) -> dict[str, Any]:
        """An edit in plain data."""
        return {
            "fields": list(one.edit.fields),
            "overrides": dict(one.edit.overrides),
            "set": one.edit.words,
            "costs": one.edit.costs,
            "gain": self.gain(one),
            "step_seconds": one.step_ns / 1e9,
            "headroom_bytes": one.outcome.headroom_bytes,
            "kpis": dict(one.outcome.kpis),
        }


def improve(
    scenario: Scenario,
    *,
    pool: PoolChoice,
    folder: Path | None = None,
    progress: Told | None = None,
    found: Callable[[Improvement], None] | None = None,
    seconds: float = PATIENCE,
) -> Improvement:
    """The best single edits of a plan, then the best pair. `found` is told whenever a single
    edit is better than all before. Raises `UsageError` where the plan itself cannot run."""
    begun = _Trials(scenario, folder, progress, found, monotonic() + seconds)
    with closing(open_executor(pool)) as executor:
        return begun.run(executor)


@dataclass(slots=True)
class _Trials:
    """The trials of a plan, under way."""

    scenario: Scenario
    folder: Path | None
    progress: Told | None
    found: Callable[[Improvement], None] | None
    ends: float
    """Of `time.monotonic`."""

    def run(self, executor: Executor) -> Improvement:
        """Single edits, those that another edit could make fit, then pairs."""
        singles, known = [Edit((), {}), *edits(self.scenario)], dict[int, PointOutcome]()
        for place, outcome in self._answers(executor, singles, "single edits"):
            known[place] = outcome
            self._tell(singles, known, place)
        made = self._made(singles, known)
        if made.usual.status != "fits":
            return Improvement(self.scenario, made.usual)
        large = [(singles[n], one) for n, one in known.items() if one.status == "does_not_fit"]
        near = [edit for edit, outcome in large if _mended(outcome, made)]
        over = [
            Tried(near[place], outcome)
            for place, outcome in self._answers(executor, near, "edits that need room", unfit=True)
            if outcome.answered
        ]
        both = pairs(made, over)
        untried = len(both)
        for place, outcome in self._answers(executor, both, "pairs"):
            untried -= 1
            if outcome.status == "fits":
                made = replace(made, pairs=_ranked(*made.pairs, Tried(both[place], outcome)))
            if monotonic() >= self.ends:
                break
        return replace(made, untried=untried)

    def _made(self, singles: Sequence[Edit], known: Mapping[int, PointOutcome]) -> Improvement:
        """What is known once the plan itself is. Raises `UsageError` where that cannot run."""
        usual = known[0]
        if not usual.answered:
            raise UsageError([Problem(usual.code or "TW431", usual.path, usual.reason, usual.hint)])
        ends = Counter(one.status for place, one in known.items() if place)
        fit = [Tried(singles[n], one) for n, one in known.items() if n and one.status == "fits"]
        return Improvement(
            self.scenario,
            usual,
            _ranked(*fit),
            impossible=ends["impossible"] + ends["failed"],
            too_large=ends["does_not_fit"],
        )

    def _tell(self, singles: Sequence[Edit], known: Mapping[int, PointOutcome], place: int) -> None:
        """Tell what is known, where the newest answer is the best so far."""
        if self.found is None or 0 not in known or known[0].status != "fits":
            return
        made = self._made(singles, known)
        if made.singles and (place == 0 or made.tried[0].outcome is known[place]):
            self.found(made)

    def _answers(
        self, executor: Executor, asked: Sequence[Edit], doing: str, *, unfit: bool = False
    ) -> Iterator[tuple[int, PointOutcome]]:
        """What events say of edits, by place."""
        base = document(self.scenario)
        points = [SweepPoint(base, one.overrides, "events") for one in asked]
        answers = answer_points(points, pool=executor, folder=self.folder, play_unfit=unfit)
        for done, answer in enumerate(answers, 1):
            if self.progress is not None and doing:
                self.progress(Progress(doing, done, len(points)))
            yield answer


def _ranked(*tried: Tried) -> tuple[Tried, ...]:
    return tuple(sorted(tried, key=lambda one: one.step_ns))


def _mended(large: PointOutcome, found: Improvement) -> bool:
    """Whether some edit frees as much memory as a plan is short of."""
    return any(_room(found, one.outcome, large) >= 0 for one in found.tried)


def _room(found: Improvement, *halves: PointOutcome) -> float:
    """The memory to spare with both halves of a pair, were their bytes independent."""
    usual = found.usual.headroom_bytes or 0.0
    return usual + sum((one.headroom_bytes or 0.0) - usual for one in halves)


def pairs(found: Improvement, over: Sequence[Tried] = ()) -> list[Edit]:
    """The pairs to try: of the best edits of each field, and those `over` the memory with edits
    that free enough; those first whose halves gain most by themselves."""
    best = _first_of_each_field(found.tried)
    both = [*combinations(best, 2), *((one, other) for one in over for other in found.tried)]
    ranked = [
        (one.step_ns * other.step_ns, made)
        for one, other in both
        if (made := one.edit.joined(other.edit)) is not None
        and _room(found, *(half.outcome for half in (one, other) if not half.edit.adapts)) >= 0
    ]
    ranked.sort(key=lambda one: one[0])
    return [made for _, made in ranked[:MOST_PAIRS]]


def _first_of_each_field(ranked: Sequence[Tried]) -> list[Tried]:
    """Of edits in order, the first of each field."""
    found: dict[tuple[str, ...], Tried] = {}
    for one in ranked:
        found.setdefault(one.edit.fields, one)
    return list(found.values())


def edits(scenario: Scenario) -> Iterator[Edit]:
    """Every edit that is tried, those first that gain most as a rule."""
    base, known = document(scenario), {scenario_hash(scenario)}
    for edit in _edits(scenario):
        try:
            made = replaced(base, edit.overrides)
        except ValueError:
            continue
        if (name := scenario_hash(made)) not in known and launched(made) is made:
            known.add(name)
            yield edit


def _edits(scenario: Scenario) -> Iterator[Edit]:
    """The edits of each field, those first that gain most as a rule."""
    around = space(scenario, (scenario.cluster.nodes,))
    yield from _orders(scenario, around)
    yield from _policies(scenario, around)
    if scenario.model.moe is not None:
        for degree in around.expert:
            yield Edit(("expert degree",), {"parallel.expert": degree})
        for dispatcher in DISPATCHERS:
            yield Edit(("dispatcher",), {"parallel.dispatcher": dispatcher})
    yield from _overlaps(scenario)
    for split in _splits(scenario):
        yield Edit(("split of layers",), {"parallel.layers": split})


def _orders(scenario: Scenario, around: Space) -> Iterator[Edit]:
    """Chunks, schedules and micro-batches."""
    parallel = scenario.parallel
    # A split of layers, and policies by stage, were written for another number of chunks.
    anew: dict[str, Any] = {} if parallel.layers is None else {"parallel.layers": None}
    anew |= {} if scenario.memory.written is None else {"memory.by_stage": "auto"}
    for chunks in CHUNKS:
        yield Edit(("chunks per stage",), {"parallel.virtual": chunks, **anew})
    for schedule in (*_settings(scenario), *around.schedule):
        changed: dict[str, Any] = {"parallel.schedule": schedule.model_dump(mode="json")}
        if not runs_chunks(schedule, parallel.virtual):
            chunks = next(one for one in CHUNKS if runs_chunks(schedule, one))
            changed |= {"parallel.virtual": chunks, **anew}
        yield Edit(("schedule",), changed)
    for size in (parallel.micro_batch * 2, parallel.micro_batch // 2):
        if size:
            yield Edit(("micro-batch",), {"parallel.micro_batch": size})


def _policies(scenario: Scenario, around: Space) -> Iterator[Edit]:
    """Memory policies: each part left out, and those of a search."""
    names = (("recompute", "recomputation"), ("fp8_store", "FP8 storage"), ("offload", "offload"))
    for key, name in names:
        own = getattr(scenario.memory, key)
        others = [tuple(it for it in own if it != one) for one in own]
        others += [getattr(policy, key) for policy in around.memory]
        for value in dict.fromkeys(((), *others)):
            yield Edit((name,), {f"memory.{key}": list(value)})
    if scenario.parallel.pipeline > 1:
        yield from _by_stage(scenario, around)


def _by_stage(scenario: Scenario, around: Space) -> Iterator[Edit]:
    """Each stage does as much as its memory asks for: of what all do now, or of all that is
    known."""
    chosen: dict[str, Any] = {"memory.by_stage": "auto"}
    yield Edit(("memory by stage",), chosen)
    every = (scenario.memory, *around.memory)
    allowed = {
        f"memory.{key}": list(dict.fromkeys(name for one in every for name in getattr(one, key)))
        for key in ("recompute", "offload")
    }
    yield Edit(("memory by stage",), chosen | allowed)


def _overlaps(scenario: Scenario) -> Iterator[Edit]:
    """What runs beside kernels, or not."""
    parallel = scenario.parallel
    for key in ("overlap_shared_experts", "overlap_grad_reduce", "overlap_param_gather"):
        yield Edit(("overlap",), {f"parallel.{key}": not getattr(parallel, key)})
    beside = get_args(type(parallel).model_fields["overlap_tensor"].annotation)
    for value in beside if parallel.tensor > 1 else ():
        yield Edit(("overlap",), {"parallel.overlap_tensor": value})


def _settings(scenario: Scenario) -> Iterator[Any]:
    """The scenario's schedule with one setting changed."""
    own = scenario.parallel.schedule
    for name, value in own.model_dump(exclude={"kind"}).items():
        if isinstance(value, bool) or value in (0, 1):
            yield own.model_copy(update={name: type(value)(not value)})


def _splits(scenario: Scenario) -> Iterator[list[int] | None]:
    """By time, and as even as can be, those left over on the first or on the last chunks."""
    parallel, layers = scenario.parallel, scenario.model.layers
    parts = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).parts
    each, more = divmod(layers, parts)
    yield None
    yield [*[each + 1] * more, *[each] * (parts - more)]
    yield [*[each] * (parts - more), *[each + 1] * more]
