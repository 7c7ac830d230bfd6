"""What is said of one point of a sweep, in plain data: sent between processes, and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from twin.answers.key import Fidelity
from twin.errors import Problem

Way: TypeAlias = Fidelity | Literal["whole"]
"""How a point is answered: its step at some fidelity, or `whole`, rollouts or an iteration of
reinforcement learning as `twin run` plays them."""
Status = Literal["fits", "does_not_fit", "impossible", "failed"]
"""`fits` and `does_not_fit`: answered; `impossible`: no such layout can run; `failed`: not
answered, by a bug of ours or a worker that died."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is said of a point."""

    status: Status
    hash: str = ""
    """Of the scenario; empty where its sections contradict each other, and there is none."""
    fidelity: Way = "fast"
    code: str = ""
    """Of the problem that makes it impossible."""
    path: str = ""
    """Of the field that the problem is about."""
    reason: str = ""
    """Why it does not fit, is impossible, or failed; empty where it fits."""
    hint: str = ""
    """The nearest fix of what is impossible."""
    kpis: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    """As `twin.reports.kpis` gives them; empty where nothing was played."""
    step_ns: int | None = None
    headroom_bytes: float | None = None
    """What the fullest GPU has left; negative where it has too little."""
    peak_stage: int | None = None
    """The pipeline stage of the fullest GPU."""
    played_seconds: float = 0.0
    """Seconds on the wall clock that the answer took when it was played."""
    cached: bool = False
    """True where an earlier sweep played it."""

    @property
    def answered(self) -> bool:
        """True where the layout can run, whether or not it fits."""
        return self.status in ("fits", "does_not_fit")

    def to_json(self) -> dict[str, Any]:
        """The outcome in plain data."""
        return asdict(self)


def impossible(problem: Problem, fidelity: Way = "fast") -> Outcome:
    """The outcome of a layout that cannot run, for one of its problems."""
    return Outcome(
        "impossible",
        fidelity=fidelity,
        code=problem.code,
        path=problem.path,
        reason=problem.message,
        hint=problem.hint,
    )


def failed(reason: str, fidelity: Way = "fast") -> Outcome:
    """The outcome of a point that was not answered."""
    return Outcome("failed", fidelity=fidelity, reason=reason)
