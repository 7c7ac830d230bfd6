"""What generating data comes to, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from twin.inference.curve import Pace, Request
from twin.inference.engine import CAUSES, Cause
from twin.inference.kv_capacity import KvCapacity

Kind = Literal["rephrasing", "trajectories"]
Bound = Literal["prefill", "decode", "waiting"]
Interval = tuple[float, float]

BOUNDS: Final[dict[Bound, str]] = {
    "prefill": "prefill",
    "decode": "decode",
    "waiting": "environments that are waited for",
}
"""What takes most of an engine's time, in words."""


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """Requests of one kind: what they are for, how many there are, and one of mean length."""

    name: str
    count: float
    request: Request
    in_sandbox: bool = False
    """Whether each holds an environment."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be generated of one corpus, or for one purpose: the requests that it takes, and
    what is kept in the end. Rejected attempts are among the requests."""

    name: str
    kind: Kind
    asked: tuple[RequestGroup, ...]
    kept_tokens: float
    """Tokens that training may read."""
    attempts: float
    """Excerpts, or trajectories."""
    kept: float
    """Of those."""

    @property
    def written_tokens(self) -> float:
        """Tokens that engines write, those of judges and simulators included."""
        return sum(one.count * one.request.written for one in self.asked)

    @property
    def read_tokens(self) -> float:
        """Tokens that engines prefill."""
        return sum(one.count * one.request.new for one in self.asked)

    @property
    def rejected(self) -> float:
        """Share of the attempts of which nothing is kept."""
        return 1.0 - self.kept / self.attempts


@dataclass(frozen=True, slots=True)
class RequestGroupRun:
    """Requests of one kind on the engines: their pace, and the seconds that all engines need."""

    asked: RequestGroup
    pace: Pace
    seconds: float

    @property
    def bound(self) -> tuple[Bound, Cause | None]:
        """What takes most of its time, and its cause on the GPU."""
        what, cause = self.pace.bound
        return ("prefill" if what == "prefill" else "decode" if what == "decode" else "waiting"), (
            cause
        )

    def to_json(self) -> dict[str, Any]:
        """The part in plain data."""
        bound, cause = self.bound
        request, step = self.asked.request, self.pace.step
        return {
            "name": self.asked.name,
            "requests": self.asked.count,
            "new_tokens": request.new,
            "cached_tokens": request.cached,
            "written_tokens": request.written,
            "seconds": self.seconds,
            "prefill_seconds_per_request": self.pace.prefill_seconds,
            "decode_seconds_per_request": self.pace.decode_seconds,
            "batch": self.pace.batch,
            "waiting_sequences": self.pace.waiting,
            "idle": self.pace.idle,
            "limit": self.pace.limit,
            "step_seconds": step.seconds,
            "step_causes": dict(step.causes),
            "prefill_causes": dict(self.pace.prefill.causes),
            "bound": bound,
            "cause": cause,
        }


@dataclass(frozen=True, slots=True)
class JobRun:
    """One job on the plan."""

    job: Job
    parts: tuple[RequestGroupRun, ...]
    gpus: int
    """GPUs that are taken for as long as it lasts."""
    interval: Interval | None = None
    """Days, as far as the ranges of the numbers behind them reach; None: no number has one."""
    drivers: tuple[tuple[str, float, float], ...] = ()
    """The numbers that move the days most: dotted path, and what the days become, as a factor, at
    the low and at the high end of its range."""

    @property
    def days(self) -> float:
        """Days on all engines."""
        return sum(part.seconds for part in self.parts) / 86400

    @property
    def gpu_hours(self) -> float:
        """GPU-hours."""
        return 24 * self.days * self.gpus

    @property
    def longest(self) -> RequestGroupRun:
        """The part that takes most of it."""
        return max(self.parts, key=lambda part: part.seconds)

    @property
    def written_per_second(self) -> float:
        """Tokens that all engines write in a second, mean over the job."""
        return self.job.written_tokens / (86400 * self.days) if self.days else 0.0

    @property
    def bound(self) -> str:
        """What takes most of its time, in words."""
        bound, cause = self.longest.bound
        return f"{BOUNDS[bound]}: {CAUSES[cause]}" if cause else BOUNDS[bound]

    def to_json(self) -> dict[str, Any]:
        """The job in plain data."""
        job = self.job
        return {
            "name": job.name,
            "kind": job.kind,
            "kept_tokens": job.kept_tokens,
            "written_tokens": job.written_tokens,
            "read_tokens": job.read_tokens,
            "attempts": job.attempts,
            "kept": job.kept,
            "rejected": job.rejected,
            "days": self.days,
            "days_range": list(self.interval) if self.interval else None,
            "gpu_hours": self.gpu_hours,
            "tokens_written_per_second": self.written_per_second,
            "bound": self.bound,
            "drivers": [
                {"path": path, "low": low, "high": high} for path, low, high in self.drivers
            ],
            "parts": [part.to_json() for part in self.parts],
        }


@dataclass(frozen=True, slots=True)
class Generation:
    """All data that is generated, one job after the other, before training starts."""

    jobs: tuple[JobRun, ...]
    model: str
    engine: str
    engines: int
    gpus: int
    """GPUs of the nodes that generate."""
    idle_gpus: int
    """Those of them that are too few for one more engine."""
    room: KvCapacity

    @property
    def days(self) -> float:
        """Days of all jobs."""
        return sum(one.days for one in self.jobs)

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of all jobs."""
        return sum(one.gpu_hours for one in self.jobs)

    @property
    def kept_tokens(self) -> float:
        """Tokens that training may read."""
        return sum(one.job.kept_tokens for one in self.jobs)

    @property
    def interval(self) -> Interval | None:
        """Days at both ends, as if all jobs erred together; None where one has no range."""
        spans = [one.interval for one in self.jobs]
        known = [span for span in spans if span is not None]
        if not known or len(known) < len(spans):
            return None
        return sum(low for low, _ in known), sum(high for _, high in known)

    def to_json(self) -> dict[str, Any]:
        """The section in plain data."""
        span = self.interval
        return {
            "days": self.days,
            "days_range": list(span) if span else None,
            "gpu_hours": self.gpu_hours,
            "kept_tokens": self.kept_tokens,
            "model": self.model,
            "engine": self.engine,
            "engines": self.engines,
            "gpus": self.gpus,
            "idle_gpus": self.idle_gpus,
            "memory": self.room.to_json(),
            "jobs": [one.to_json() for one in self.jobs],
        }
