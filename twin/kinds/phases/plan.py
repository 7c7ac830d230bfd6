"""Scenario to plan of a run in phases: whether each phase can run and fits, and what would take the
place of one that does not.

Plan to trace of a run in phases: the step of each phase that can be costed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from twin.engine import plan as plan_step
from twin.errors import Problem, ScenarioError
from twin.planning.types import Mesh, Warning
from twin.reports import MemoryReport, fitting, memory_report
from twin.scenario import Scenario

if TYPE_CHECKING:  # what is near is looked for further up
    from twin.answers.nearest import Suggestion
from dataclasses import field

from twin.engine import lower
from twin.engine import simulate as simulate_step
from twin.kinds.base import Run, Tools, kind_named
from twin.loading import scenario_hash
from twin.reports import report as report_step
from twin.reports.head import UNTIMED

NAME: Final = "phases"
"""Of the kind that these nouns are of."""
BATCH: Final = "train.global_batch"
_OF_THE_RUN: Final = "cluster."
"""All phases share one cluster, so that none of them may have a larger one."""
Nearest = Callable[[Scenario], "tuple[Suggestion, ...]"]


@dataclass(frozen=True, slots=True)
class PhaseCheck:
    """One phase as it is written: whether it can run and fits, and if not, the nearest plans."""

    index: int
    name: str
    """What reports call the phase."""
    scenario: Scenario
    tokens: int
    mesh: Mesh | None
    """None: the layout is impossible."""
    microbatches: int | None
    memory: MemoryReport | None
    problems: tuple[Problem, ...]
    """Why the layout is impossible."""
    nearest: tuple[Suggestion, ...]
    """Where it does not fit or cannot run: plans that do, the nearest first."""
    warnings: tuple[Warning, ...] = ()

    @property
    def possible(self) -> bool:
        """Whether it can run at all, however much memory it takes."""
        return self.mesh is not None

    @property
    def fits(self) -> bool:
        """Whether it can run and fits."""
        return self.memory is not None and self.memory.fits_device and self.memory.fits_host

    @property
    def words(self) -> str:
        """Whether it fits, in a sentence; or why it cannot run."""
        if self.memory is not None:
            return fitting(self.memory)
        return f"Impossible: {'; '.join(one.message for one in self.problems)}."

    def to_json(self) -> dict[str, Any]:
        """The phase in plain data."""
        train, parallel, memory = self.scenario.train, self.scenario.parallel, self.memory
        mesh = asdict(self.mesh) | {"ranks": self.mesh.ranks} if self.mesh else None
        return {
            "name": self.name,
            "tokens": self.tokens,
            "sequence": train.sequence,
            "global_batch": train.global_batch,
            "possible": self.possible,
            "fits": self.fits,
            "verdict": self.words,
            "parallel": parallel.model_dump(mode="json"),
            "layout": mesh and mesh | {"microbatches": self.microbatches},
            "peak_device_bytes": memory.peak.peak_bytes if memory else None,
            "problems": [one.as_dict() for one in self.problems],
            "nearest": [
                one.to_json() | {"overrides": overrides(self.index, one)} for one in self.nearest
            ],
        }


@dataclass(frozen=True, slots=True)
class PhasesPlan:
    """The phases of a run, each planned by itself."""

    kind: ClassVar[str] = NAME

    scenario: Scenario
    checks: tuple[PhaseCheck, ...]


def plan(scenario: Scenario, nearest: Nearest | None = None) -> PhasesPlan:
    """Every phase of a run, planned. What several phases share is planned once; of a phase that
    cannot run or does not fit, `nearest` gives plans that do.

    Raises:
        ScenarioError: no phase can run as it is written; carries the problems of the first.
    """
    known: dict[str, PhaseCheck] = {}
    found: list[PhaseCheck] = []
    for index, tokens in enumerate(scenario.phase_tokens):
        phase, name = scenario.phase(index), scenario.phases[index].name
        if (identity := _identity(phase)) not in known:
            known[identity] = _checked(phase)
        alike = known[identity]
        problems = phase.locate(replace(one, origin=None) for one in alike.problems)
        found.append(
            replace(alike, index=index, name=name, scenario=phase, tokens=tokens, problems=problems)
        )
    # Looking for plans takes seconds for each phase, so a run of which nothing stands is refused.
    if not any(one.possible for one in found):
        raise ScenarioError(found[0].problems)
    plans = {key: () if one.fits else near(one.scenario, nearest) for key, one in known.items()}
    return PhasesPlan(
        scenario, tuple(replace(one, nearest=plans[_identity(one.scenario)]) for one in found)
    )


def _identity(phase: Scenario) -> str:
    """What phases with the same plan share."""
    return phase.model_dump_json(by_alias=True, exclude={"name"})


def _checked(phase: Scenario) -> PhaseCheck:
    """A phase by itself, which does not know its place, its tokens and its neighbours yet."""
    try:
        planned = plan_step(phase)
    except ScenarioError as error:
        return PhaseCheck(0, "", phase, 0, None, None, None, error.problems, ())
    memory, count = memory_report(planned.memory), planned.microbatches
    return PhaseCheck(0, "", phase, 0, planned.mesh, count, memory, (), (), planned.warnings)


def near(scenario: Scenario, nearest: Nearest | None) -> tuple[Suggestion, ...]:
    """Plans near to a phase's that fit on its cluster, the nearest first: with the fewest changes;
    of those the batch alone, which leaves layout and memory as they were written, by how little it
    changes; then by days of the whole run. Empty where there is none."""
    every = nearest(scenario) if nearest else ()
    found = [one for one in every if not _needs_another_cluster(one)]
    return tuple(sorted(found, key=lambda one: _distance(one, scenario)))


def _needs_another_cluster(one: Suggestion) -> bool:
    return any(path.startswith(_OF_THE_RUN) for path in one.overrides)


def _distance(one: Suggestion, scenario: Scenario) -> tuple[int, bool, float, float]:
    train = scenario.train
    moved = abs(one.scenario.train.global_batch / train.global_batch - 1)
    days = one.kpis["days"] or 0.0
    return len(one.overrides), BATCH not in one.overrides, moved, days


def overrides(index: int, one: Suggestion) -> dict[str, str]:
    """The changes as `--set` takes them for a phase of the run, by its place.

    The batch of phase 2 is `phases.2.train.global_batch`.
    """
    return {f"phases.{index}.{path}": value for path, value in one.overrides.items()}


def as_flags(index: int, found: Suggestion) -> str:
    """The changes as one would type them."""
    return " ".join(f"--set {path}={value}" for path, value in overrides(index, found).items())


Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class PhasesTrace:
    """The answered step of every phase, as it is written or as the nearest plan that fits; None
    where nothing near fits."""

    kind: ClassVar[str] = NAME

    steps: tuple[Run | None, ...]
    fidelity: str


def simulate(plan: PhasesPlan, tools: Tools) -> PhasesTrace:
    """Simulate every phase's step once; phases with the same step share it."""
    player = _Player(tools, max(1, len(plan.checks)))
    chosen = (costed(check) for check in plan.checks)
    steps = tuple(player.answer(one) if one else player.skip() for one in chosen)
    return PhasesTrace(steps, tools.fidelity)


def costed(check: PhaseCheck) -> Scenario | None:
    """What stands for a phase: itself, or the nearest plan that fits; None where there is none."""
    if check.fits:
        return check.scenario
    return check.nearest[0].scenario if check.nearest else None


@dataclass(slots=True)
class _Player:
    """Steps that were answered already, by the hash of their scenario."""

    tools: Tools
    steps: int
    answered: dict[str, Run] = field(default_factory=dict[str, Run])
    begun: int = 0

    def skip(self) -> None:
        """Count a phase that has no step."""
        self.begun += 1

    def answer(self, scenario: Scenario) -> Run:
        """The answer to a phase's scenario."""
        before, self.begun = self.begun, self.begun + 1
        identity = scenario_hash(scenario)
        if identity not in self.answered:
            step = self.tools.step or _anew
            self.answered[identity] = step(scenario, self._progress(before))
        return self.answered[identity]

    def _progress(self, before: int) -> Progress | None:
        progress = self.tools.progress
        if progress is None:
            return None
        return lambda share: progress((before + share) / self.steps)


def _anew(scenario: Scenario, progress: Progress | None) -> Any:
    planned = plan_step(scenario)
    trace = simulate_step(lower(planned), progress)
    answer = report_step(planned, trace, UNTIMED)
    return Run(kind_named("step"), scenario, planned, trace, answer)
