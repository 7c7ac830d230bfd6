"""Whether each phase can run, and fits: plans, and plays nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from twin.errors import Problem, ScenarioError
from twin.explore.study import Suggestion
from twin.kinds.phases.nearest import nearest, overrides
from twin.planning import plan
from twin.planning.types import Mesh, Warning
from twin.reports import MemoryReport, fitting, memory_report
from twin.scenario import Scenario


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


def check_phases(scenario: Scenario) -> tuple[PhaseCheck, ...]:
    """Every phase of a run, checked. What several phases share is planned once."""
    known: dict[str, PhaseCheck] = {}
    found: list[PhaseCheck] = []
    for index, tokens in enumerate(scenario.phase_tokens):
        phase, name = scenario.phase(index), scenario.phases[index].name
        identity = phase.model_dump_json(by_alias=True, exclude={"name"})
        alike = known.get(identity) or _checked(phase)
        known[identity] = alike
        problems = phase.locate(replace(one, origin=None) for one in alike.problems)
        found.append(
            replace(alike, index=index, name=name, scenario=phase, tokens=tokens, problems=problems)
        )
    return tuple(found)


def _checked(phase: Scenario) -> PhaseCheck:
    """A phase by itself, which does not know its place and its tokens yet."""
    try:
        planned = plan(phase)
    except ScenarioError as error:
        near = nearest(phase)
        return PhaseCheck(0, "", phase, 0, None, None, None, error.problems, near)
    near = () if planned.memory.fits else nearest(phase)
    memory, count = memory_report(planned.memory), planned.microbatches
    return PhaseCheck(0, "", phase, 0, planned.mesh, count, memory, (), near, planned.warnings)
