"""How a run stands, as data: how far, how long still, beside its prediction, and what drifted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from twin.evidence.live.cause import Cause
from twin.evidence.live.drift import Change
from twin.evidence.live.pace import FEWEST, Pace, Remaining

VERSION: Final = 1
"""Version of the JSON document."""
State = Literal["waiting", "running", "silent", "done"]
"""`silent`: not done, and without news for long."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A sealed prediction beside the run. Seconds of a step."""

    seal: str
    name: str
    sealed: str
    predicted: float
    interval: tuple[float, float] | None
    measured: Pace | None
    """Over all steps of the predicted size, without warm-ups."""
    different: str
    """Why the run's steps are not the predicted ones; empty where they are."""
    late: bool
    """Whether it was sealed after the run had begun."""
    left: int | None
    """The step at which the run was called outside of the interval, or, where none was sealed, more
    than 5 % away from the prediction; None where it was not."""

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return None if self.measured is None else self.measured.seconds / self.predicted

    @property
    def inside(self) -> bool | None:
        """Whether the measured median lies in the sealed interval; None where there is none, or not
        enough was measured."""
        if self.interval is None or self.measured is None or self.measured.steps < FEWEST:
            return None
        return self.interval[0] <= self.measured.seconds <= self.interval[1]


@dataclass(frozen=True, slots=True)
class Track:
    """How a run stands."""

    run: str
    state: State
    step: int
    steps: int | None
    """Of the whole run; None where nothing says it."""
    stage: str
    tokens: int | None
    pace: Pace | None
    """Of the newest steps since the last change."""
    tokens_per_second: float | None
    remaining: Remaining | None
    ends: str | None
    """When the last step will be done; ISO 8601, UTC."""
    pause_share: float | None
    """Time between steps over time in steps, which `remaining` counts in; None where no timeline
    says it, and then `remaining` is of steps only."""
    prediction: Beside | None
    changes: tuple[Change, ...]
    cause: Cause | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """One document of plain data."""
        beside, why = self.prediction, self.cause
        found: dict[str, Any] = {"version": VERSION} | asdict(self)
        found["changes"] = [asdict(one) | {"ratio": one.ratio} for one in self.changes]
        if beside is not None:
            found["prediction"] |= {"ratio": beside.ratio, "inside": beside.inside}
        if why is not None:
            likely = why.likely.kind if why.likely else None
            found["cause"] |= {"likely": likely, "words": why.words}
        return found
