"""What a kind of work is: a training step, the phases of a run, rollouts, an iteration of
reinforcement learning, a weight update.

A kind is a folder of `twin.kinds` that holds one object, `KIND`. It says how its
scenarios are recognised, makes their plan, program, trace and report, and puts answers into words
and tables. Verbs, command line, app, sweep and store ask the kind and never branch on one. What a
kind does not answer stands in `refusals`, with the reason.

Kinds import their machinery when it is first used, so that looking for them costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, get_args

from twin.errors import Problem, UsageError
from twin.loading import scenario_hash
from twin.planning.types import Warning
from twin.scenario import Root, Scenario
from twin.spec.kpis import Kpi

if TYPE_CHECKING:
    from twin.figures.charts import View
    from twin.network.tenants import Layout
    from twin.reports.head import Head, Judgement, RunInfo
    from twin.reports.table import Block

Verb = Literal[
    "run",
    "check",
    "compare",
    "sweep",
    "recommend",
    "improve",
    "explain",
    "export",
    "seal",
    "attribution",
]
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
"""What can be asked of a scenario."""
Ranks = Literal["folded", "group", "all"]
"""Which ranks of a step are told apart: one per pipeline stage, those of one model-parallel group,
or all."""
Fidelity = Literal["events", "group", "all"]
"""How a step is simulated, event by event: with one rank per stage, with every rank of one
model-parallel group, or with all ranks."""


def told_apart(fidelity: Fidelity) -> Ranks:
    """The ranks that a fidelity tells apart."""
    return "folded" if fidelity == "events" else fidelity


CHECK_VERSION: Final = 1
"""Version of the JSON document of a check."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a kind borrows from the rooms above: how a step is answered (from the store where it is
    known), which plans near to one that does not fit do, and who is told the share that is done (0
    to 1)."""

    fidelity: Fidelity = "events"
    progress: Callable[[float], None] | None = None
    step: Callable[[Scenario, Callable[[float], None] | None], Any] | None = None
    """None: the step is simulated anew."""
    nearest: Callable[[Scenario], tuple[Any, ...]] | None = None
    """None: nothing near is looked for."""
    extrapolate: bool = True
    """Whether a step is simulated only until it provably repeats."""


ALONE: Final = Tools()
"""Nothing is borrowed."""


@dataclass(frozen=True, slots=True)
class Check:
    """Whether a scenario is valid and fits, without a simulation."""

    kind: str
    scenario: Root
    fits: bool
    expectations: tuple[Judgement, ...]
    warnings: tuple[Warning, ...]
    sentences: tuple[str, ...]
    tables: tuple[Block, ...]
    """Without warnings and expectations."""
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the document has between its head and its tail."""
    possible: bool = True

    def to_json(self) -> dict[str, Any]:
        """The check as one JSON document."""
        return {
            "version": CHECK_VERSION,
            "kind": self.kind,
            "name": self.scenario.name,
            "hash": scenario_hash(self.scenario),
            "valid": self.possible,
            "fits": self.fits,
            **self.body,
            "expectations": [asdict(judgement) for judgement in self.expectations],
            "warnings": [asdict(warning) for warning in self.warnings],
        }


@dataclass(frozen=True)
class Run:
    """A scenario, answered."""

    kind: Kind
    scenario: Any
    plan: Any
    trace: Any
    report: Any
    stored: Path | None = None
    """The folder that holds the answer; None where it is not stored."""
    cached: bool = False
    """True where it was simulated by an earlier run."""

    @cached_property
    def program(self) -> Any:
        """What was simulated, made when it is first asked for."""
        return self.kind.lower(self.plan)

    def __getstate__(self) -> dict[str, Any]:
        """Without the program: what another process wants of it, it makes."""
        return {name: value for name, value in self.__dict__.items() if name != "program"}


class Kind:
    """One kind of work. A member overrides what differs; nouns of its own name it in `kind`."""

    name: ClassVar[str]
    """In JSON documents and on nouns."""
    title: ClassVar[str]
    """With its article: `a training step`."""
    length: ClassVar[str]
    """The key figure that says how long."""
    kpis: ClassVar[tuple[Kpi, ...]]
    root: ClassVar[type[Root]] = Scenario
    subject: ClassVar[str] = ""
    """Of a comparison's sentence: `the update is` 2 s slower."""
    parts: ClassVar[str] = ""
    """Key of the parts of the time in the document of a comparison."""
    words: ClassVar[tuple[str, str] | None] = None
    """Module and name of the words of those parts; None: they are words."""
    changes_most: ClassVar[str] = ""
    """`the phase that changes most is`."""
    frontier: ClassVar[tuple[str, str, str]] = ("days", "cost_usd", "gpu_hours")
    """Key figures by which many answers are ranked: how long, how much, and what stands for that
    where nothing has a price."""
    headline: ClassVar[tuple[str, ...]]
    """Key figures that a table of many answers shows."""
    shown_kpis: ClassVar[tuple[str, ...]] = ()
    """The key figures that decide, the most important first."""
    shares_fabric: ClassVar[bool] = False
    """Whether several of them can be simulated on one fabric."""
    is_stored: ClassVar[bool] = False
    """Whether its traces are kept in `runs/`."""
    refusals: ClassVar[Mapping[Verb, str]] = {}
    """Verbs that do not apply, and why."""

    def recognises(self, scenario: Root) -> bool:
        """Whether a scenario asks for this kind of work."""
        raise NotImplementedError

    def scope(self, scenario: Root) -> str | None:
        """What verbs that answer a step leave out of such a scenario; None: nothing."""
        del scenario
        return None

    def plan(self, scenario: Any, tools: Tools = ALONE) -> Any:
        """The resolved plan. Raises `ScenarioError` where it is impossible."""
        del tools
        return self._own("plan", "plan")(scenario)

    def lower(self, plan: Any, ranks: Ranks = "folded") -> Any:
        """The program; a plan that is simulated as it stands is its own."""
        del ranks
        return plan

    def simulate(self, program: Any, tools: Tools = ALONE) -> Any:
        """What happened."""
        del tools
        return self._own("simulate", "simulate")(program)

    def report(self, plan: Any, trace: Any, run: RunInfo) -> Any:
        """The answers."""
        return self._own("report", "report")(plan, trace, run)

    def _own(self, module: str, name: str) -> Any:
        """A function or table of this kind's folder, imported when it is first used."""
        return getattr(import_module(f"{type(self).__module__}.{module}"), name)

    def shortage(self, plan: Any) -> tuple[str, float | None]:
        """Why a plan does not fit in memory, empty where it does, and the bytes to spare on the
        fullest GPU, where the plan knows."""
        del plan
        return "", None

    def does_other_work(self, fields: Iterable[str]) -> bool:
        """Whether answers that differ in these fields differ in the work done, so that less time is
        not better."""
        del fields
        return False

    def check(self, scenario: Any, tools: Tools = ALONE) -> Check:
        """Whether a scenario is valid and fits; plans, and simulates nothing."""
        raise NotImplementedError

    def compare(self, reports: Sequence[Any]) -> Any:
        """Two or more reports side by side, the first as baseline."""
        from twin.reports.compare import side_by_side  # noqa: PLC0415  few answers are compared

        return side_by_side(self, reports)

    def together(
        self,
        scenarios: Sequence[Any],
        layout: Layout,
        progress: Callable[[float], None] | None = None,
    ) -> Any:
        """What jobs of this kind lose to each other on one fabric. Raises `UsageError` TW158 where
        they do not share any."""
        del layout, progress
        message = f"`{scenarios[0].name}` is {self.title}: only training runs share a fabric here"
        raise UsageError([Problem("TW158", "", message, "omit --together")])

    def winner(self, reports: Sequence[Any]) -> Sequence[str]:
        """Which of several answers is best, and why; empty: differences are all there is to say."""
        del reports
        return ()

    def part_words(self, part: str) -> str:
        """A part of the time, in words."""
        return self._own(*self.words)[part] if self.words else part

    def part_seconds(self, report: Any) -> Mapping[str, float]:
        """Seconds of each part of the time."""
        raise NotImplementedError

    def incomparable(self, baseline: Any, candidate: Any) -> tuple[Warning, ...]:
        """Why two answers may not be comparable."""
        del baseline, candidate
        return ()

    def document(self, run: Run) -> dict[str, Any]:
        """The answer as one JSON document."""
        return run.report.to_json()

    def sentences(self, run: Run) -> Sequence[str]:
        """The answer in words, the most important first."""
        return (run.report.verdict,)

    def tables(self, run: Run) -> Sequence[Block]:
        """Everything that an answer has to say after its sentences; warnings last."""
        return self._own("report", "report_tables")(run.report)

    def deciding(self, report: Head) -> tuple[str, ...]:
        """`shown_kpis` of an answer: days and cost with failures where those are known."""
        return tuple(dict.fromkeys(report.decisive.get(key, key) for key in self.shown_kpis))

    def facts(self, run: Run) -> str:
        """The size of the work, in one line; empty where its sentences say it."""
        del run
        return ""

    def figures(self, run: Run) -> Iterable[View]:
        """The figures of an answer, by section; those of `Summary` say why."""
        return self._own("figures", "views")(run)

    def comparison_figures(self, runs: Sequence[Run], comparison: Any) -> Sequence[View]:
        """The figures of a comparison, the most important first."""
        from twin.figures.charts import View  # noqa: PLC0415
        from twin.figures.differences import lengths  # noqa: PLC0415  as above

        kpi = next(kpi for kpi in self.kpis if kpi.key == self.length)
        title = "\n".join(comparison.sentence(delta) for delta in comparison.deltas)
        reports = [run.report for run in runs]
        return (
            View("", kpi.label, "lengths", lambda theme, _: lengths(reports, kpi, title, theme)),
        )

    def comparison_tables(self, comparison: Any, attributions: Sequence[Any] = ()) -> Sequence[Any]:
        """Everything that a comparison has to say after its sentences."""
        del attributions
        return comparison.tables()

    def refuse(self, verb: Verb, scenario: Root) -> None:
        """Raise `UsageError` TW158 where a verb does not apply to this kind."""
        if (why := self.refusals.get(verb)) is not None:
            message = f"`{scenario.name}` is {self.title}: {why}"
            answered = ", ".join(
                f"`twin {name}`" for name in VERBS[:3] if name not in self.refusals
            )
            raise UsageError([Problem("TW158", "", message, f"use {answered}")])


@cache
def kinds() -> tuple[Kind, ...]:
    """Every kind, by folder; found by scanning the package."""
    package = import_module("twin.kinds")
    folders = sorted(found.name for found in iter_modules(package.__path__) if found.ispkg)
    return tuple(import_module(f"twin.kinds.{name}").KIND for name in folders)


def kind_of(scenario: Root) -> Kind:
    """The kind of work that a scenario asks for."""
    return next(kind for kind in kinds() if kind.recognises(scenario))


def kind_named(name: str) -> Kind:
    """The kind with this name, as nouns and documents have it. Raises KeyError for a name that no
    kind has."""
    return {kind.name: kind for kind in kinds()}[name]
