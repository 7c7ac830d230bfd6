"""A layout's prediction beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from twin.answers import Run
from twin.evidence.live.seal import Seal
from twin.evidence.loop.layouts import Layout
from twin.evidence.loop.memory import kept_bytes
from twin.evidence.loop.overruns import overruns
from twin.evidence.measured import Beside, MeasuredRun, beside, summary, trace
from twin.reports.breakdown import exposed_communication_ns

DRIFTED: Final = 0.05
"""Between the two halves of a run's counted steps, medians: beyond it the machine was not the same
machine. OURS."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One layout; times in seconds."""

    name: str
    mode: str
    links: str
    """Rate of its links, or `loopback`."""
    ranks: int
    beside: Beside
    steps: tuple[float, ...]
    """All that were counted, in order, those of several runs behind each other."""
    kept: tuple[float, float | None]
    """Bytes that wait for backwards at once on the fullest rank, predicted and measured."""
    overruns: float
    """Share of passes and updates that took longer than their pace; 0 where there is none."""
    sealed: bool
    """Whether this very prediction was on disk before the run began."""
    interval: tuple[float, float] | None
    """Of the step, as it was sealed; None where too few predictions like it had been checked."""
    folder: Path

    @property
    def predicted(self) -> float:
        """Seconds of a step."""
        return self.beside.predicted_ns / 1e9

    @property
    def measured(self) -> float:
        """Median seconds of a step."""
        return median(self.steps)

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted / self.measured - 1

    @property
    def hit(self) -> bool | None:
        """Whether the measured step lies in the sealed interval; None without one."""
        return (
            None if self.interval is None else self.interval[0] <= self.measured <= self.interval[1]
        )

    @property
    def drift(self) -> float:
        """The second half of the steps over the first, minus one."""
        half = len(self.steps) // 2
        if not half:
            return 0.0
        return median(self.steps[-half:]) / median(self.steps[:half]) - 1

    @property
    def drifted(self) -> bool:
        """Whether that is too much."""
        return abs(self.drift) > DRIFTED

    @property
    def bubble(self) -> tuple[float, float]:
        """Predicted and measured share of the step, mean over ranks."""
        return _share(self.beside.predicted_row, "bubble"), _share(
            self.beside.measured_row, "bubble"
        )

    @property
    def exposed(self) -> tuple[float, float]:
        """Predicted and measured seconds that compute waits for communication."""
        rows = self.beside.predicted_row, self.beside.measured_row
        predicted, measured = (exposed_communication_ns(row) / 1e9 for row in rows)
        return predicted, measured

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain data."""
        found = self.beside
        return {
            "name": self.name,
            "mode": self.mode,
            "links": self.links,
            "ranks": self.ranks,
            "predicted_step_seconds": self.predicted,
            "measured_step_seconds": self.measured,
            "step_error": self.error,
            "steps_seconds": list(self.steps),
            "drift": self.drift,
            "drifted": self.drifted,
            "predicted_kept_bytes": self.kept[0],
            "measured_kept_bytes": self.kept[1],
            "overruns": self.overruns,
            "sealed": self.sealed,
            "interval_seconds": self.interval,
            "hit": self.hit,
            "predicted_breakdown_ns": dict(found.predicted_row),
            "measured_breakdown_ns": dict(found.measured_row),
            "actions": [asdict(one) | {"error": one.error} for one in found.actions],
            "mismatches": list(found.mismatches),
            "folder": str(self.folder),
        }


def outcome(
    layout: Layout, run: Run, runs: Sequence[MeasuredRun], *, shaped: bool, sealed: Seal
) -> Outcome:
    """What came of a layout: `run` is its prediction now, `sealed` what was sealed before the
    first of its `runs`. What is beside the prediction in detail is the run whose median step is in
    the middle."""
    steps = [[real.step_ns(one) / 1e9 for one in summary(real).counted] for real in runs]
    middle = sorted(range(len(runs)), key=lambda one: median(steps[one]))[len(runs) // 2]
    real = runs[middle]
    found = summary(real)
    cluster = layout.scenario.cluster
    return Outcome(
        name=layout.name,
        mode=layout.mode,
        links=f"{cluster.node.nic.bandwidth * 8 / 1e6:,.0f} Mbps" if shaped else "loopback",
        ranks=cluster.gpus,
        beside=beside(real, found, trace(real, found.step), run.plan, run.trace),
        steps=tuple(one for own in steps for one in own),
        kept=(max(one.kept_bytes for one in run.plan.memory.stages), kept_bytes(real.folder)),
        overruns=overruns(real, found.counted, run) if layout.mode == "paced" else 0.0,
        sealed=round(sealed.seconds * 1e9) == run.trace.step_ns,
        interval=sealed.interval,
        folder=real.folder,
    )


def _share(row: Mapping[str, int], cause: str) -> float:
    return row[cause] / sum(row.values())
