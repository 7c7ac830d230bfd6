"""Over all steps of a run: which one stands for it, how they spread, and how long actions take."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from twin.errors import Problem, UsageError
from twin.evidence.measured.actions import Action, measured
from twin.evidence.measured.folder import MeasuredRun
from twin.evidence.measured.moment import moment

_WARM_UP: Final = 10
"""One in so many steps, the first ones, are warm-up: OURS. Buffers are new then, caches cold."""
_LOOKED_AT: Final = 64
"""Steps whose actions are timed, evenly over the run: OURS; more would not move a median."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run at a glance; times in nanoseconds."""

    step: int
    """The one that stands for the run: whose time is the median, or that was asked for."""
    warm_up: tuple[int, ...]
    """Steps that are not counted."""
    counted: tuple[int, ...]
    median: int
    low: int
    high: int
    """Quartiles of the steps' times."""
    least: int
    most: int
    actions: tuple[Action, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it; times in seconds."""
        seconds = ("median", "low", "high", "least", "most")
        document = asdict(self)
        return {
            "chosen": self.step,
            "counted": len(self.counted),
            "warm_up": len(self.warm_up),
            **{f"{name}_seconds": document[name] / 1e9 for name in seconds},
        }


def summary(run: MeasuredRun, step: int | None = None) -> Summary:
    """A run at a glance, with the step that stands for it: `step`, or else the median one.

    Raises `UsageError` where not every rank finished that step.
    """
    if step is not None and step not in run.steps:
        message = f"step {step} was not finished by every rank of `{run.folder}`"
        known = f"there are {len(run.steps)}, {run.steps[0]} to {run.steps[-1]}"
        raise UsageError([Problem("TW334", "", message, known)])
    cold = 0 if len(run.steps) == 1 else max(1, len(run.steps) // _WARM_UP)
    counted = run.steps[cold:]
    times = np.array([run.step_ns(one) for one in counted])
    # The lower one of two in the middle: a step that happened.
    middle = counted[int(np.argsort(times, kind="stable")[(len(times) - 1) // 2])]
    low, median, high = np.percentile(times, [25, 50, 75]).tolist()
    return Summary(
        step=middle if step is None else step,
        warm_up=run.steps[:cold],
        counted=counted,
        median=round(median),
        low=round(low),
        high=round(high),
        least=int(times.min()),
        most=int(times.max()),
        actions=measured(moment(run, one) for one in _spread(counted)),
    )


def _spread(steps: tuple[int, ...]) -> list[int]:
    """At most so many steps as are looked at, evenly over all."""
    places = np.linspace(0, len(steps) - 1, min(len(steps), _LOOKED_AT)).round().astype(int)
    return [steps[at] for at in places.tolist()]
