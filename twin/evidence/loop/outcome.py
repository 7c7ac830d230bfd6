"""A layout's prediction compared with what was measured, and the score over many layouts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twin.answers import Run
from twin.engine.program import COMPUTE
from twin.evidence.live.seal import Seal
from twin.evidence.loop.layouts import ReferenceLayout
from twin.evidence.measured.compare import StepComparison, compare_steps
from twin.evidence.measured.run_folder import TIMELINE, MeasuredRun
from twin.evidence.measured.step import RankStep, measured_step, trace
from twin.evidence.measured.summary import summary
from twin.interop.export.throttle_profile import stretches
from twin.loading.files import read_bytes
from twin.reports.breakdown import exposed_communication_ns

_KEPT: Final = '"name": "activations"'
"""In the line, which is looked for among many others."""


def kept_bytes(run: Path) -> int | None:
    """The most bytes of layers that waited for backwards at once on any rank, on its device and
    host; None where no rank says."""
    found = [
        int(json.loads(line)["bytes"])
        for path in sorted((run / TIMELINE).glob("rank-*.jsonl"))
        for line in read_bytes(path).decode().splitlines()
        if line.startswith('{"kind": "memory"') and _KEPT in line
    ]
    return max(found, default=None)


MOST: Final = 1.05
"""Times its pace that a pass may take before it counts: sleep is as exact as that. OURS."""
LATE: Final = 0.01
"""Share of passes that may count. Beyond it a run measures this machine, and no layout. OURS."""


def overruns(real: MeasuredRun, steps: tuple[int, ...], predicted: Run) -> float:
    """The share of a run's passes, in some of its steps, that took longer than predicted."""
    pace = pace_of(predicted)
    late = [
        sum(found) > MOST * sum(pace[key])
        for key, passes in computed(real, steps).items()
        for found in passes
        if sum(pace[key])  # a chunk may hold nothing
    ]
    return sum(late) / len(late) if late else 0.0


Stretches = tuple[int, ...]
"""Nanoseconds of computing of a pass, between its transfers, in order."""


def pace_of(predicted: Run) -> dict[tuple[str, int], Stretches]:
    """The stretches that a plan has, by kind and chunk."""
    return {key: stretches(template) for key, template in predicted.program.passes.items()}


def computed(real: MeasuredRun, steps: tuple[int, ...]) -> dict[tuple[str, int], list[Stretches]]:
    """The stretches of every pass in some of a run's steps, by kind and chunk."""
    found: dict[tuple[str, int], list[Stretches]] = {}
    for step in steps:
        for line in measured_step(real, step).ranks:
            for (name, chunk, _), lengths in _passes(line).items():
                found.setdefault((name, chunk), []).append(tuple(lengths))
    return found


def _passes(line: RankStep) -> dict[tuple[str, int, int], list[int]]:
    """Nanoseconds of computing of each pass of a rank, by kind, chunk and micro-batch."""
    found: dict[tuple[str, int, int], list[int]] = {}
    own = line.spans
    passes = (own.stream == COMPUTE) & (own.microbatch >= 0)
    for row in map(int, np.argsort(own.start, kind="stable")):
        if passes[row]:
            place = line.names[row], int(own.chunk[row]), int(own.microbatch[row])
            found.setdefault(place, []).append(int(own.end[row] - own.start[row]))
    return found


DRIFTED: Final = 0.05
"""Between the two halves of a run's counted steps, medians: beyond it the machine was not the same
machine. OURS."""


def drift(steps: Sequence[float]) -> float:
    """The second half of some steps over the first, minus one."""
    half = len(steps) // 2
    return median(steps[-half:]) / median(steps[:half]) - 1 if half else 0.0


@dataclass(frozen=True, slots=True)
class LayoutOutcome:
    """One layout; times in seconds."""

    name: str
    mode: str
    links: str
    """Rate of its links, or `loopback`."""
    ranks: int
    comparison: StepComparison
    steps: tuple[float, ...]
    """All that were counted, in order, those of several runs behind each other."""
    kept: tuple[float, float | None]
    """Bytes that wait for backwards at once on the fullest rank, predicted and measured."""
    overruns: float
    """Share of passes that took longer than their pace; 0 where there is none."""
    sealed: bool
    """Whether this very prediction was on disk before the run began."""
    interval: tuple[float, float] | None
    """Of the step, as it was sealed; None where too few predictions like it had been checked."""
    folder: Path
    slowed: float = 1.0
    """How many times slower than the layout's GPU the ranks' pace was."""
    sealed_seconds: float | None = None
    """Of a step, as it was sealed before the first run: at the machine's pace then, where a profile
    follows it; None where nothing was."""
    tries: int = 1
    """Paces that were tried until passes held it."""

    @property
    def held(self) -> bool:
        """Whether passes held their pace. Otherwise the run is no measurement."""
        return self.overruns <= LATE

    @property
    def predicted(self) -> float:
        """Seconds of a step."""
        return self.comparison.predicted_ns / 1e9

    @property
    def measured(self) -> float:
        """Median seconds of a step."""
        return median(self.steps)

    @property
    def error(self) -> float:
        """Predicted over measured, minus one."""
        return self.predicted / self.measured - 1

    @property
    def sealed_error(self) -> float | None:
        """Of what was sealed."""
        return None if self.sealed_seconds is None else self.sealed_seconds / self.measured - 1

    @property
    def hit(self) -> bool | None:
        """Whether the measured step lies in the sealed interval; None without one."""
        return (
            None if self.interval is None else self.interval[0] <= self.measured <= self.interval[1]
        )

    @property
    def drift(self) -> float:
        """The second half of the steps over the first, minus one."""
        return drift(self.steps)

    @property
    def drifted(self) -> bool:
        """Whether that is too much."""
        return abs(self.drift) > DRIFTED

    @property
    def bubble(self) -> tuple[float, float]:
        """Predicted and measured share of the step, mean over ranks."""
        return _share(self.comparison.predicted_row, "bubble"), _share(
            self.comparison.measured_row, "bubble"
        )

    @property
    def exposed(self) -> tuple[float, float]:
        """Predicted and measured seconds that compute waits for communication."""
        rows = self.comparison.predicted_row, self.comparison.measured_row
        predicted, measured = (exposed_communication_ns(row) / 1e9 for row in rows)
        return predicted, measured

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain data."""
        found = self.comparison
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
            "held": self.held,
            "slowed": self.slowed,
            "tries": self.tries,
            "sealed": self.sealed,
            "sealed_step_seconds": self.sealed_seconds,
            "sealed_error": self.sealed_error,
            "interval_seconds": self.interval,
            "hit": self.hit,
            "predicted_breakdown_ns": dict(found.predicted_row),
            "measured_breakdown_ns": dict(found.measured_row),
            "actions": [asdict(one) | {"error": one.error} for one in found.actions],
            "mismatches": list(found.mismatches),
            "folder": str(self.folder),
        }


def compare_runs(
    layout: ReferenceLayout, run: Run, runs: Sequence[MeasuredRun], *, shaped: bool, sealed: Seal
) -> LayoutOutcome:
    """What came of a layout: `run` is its prediction now, `sealed` what was sealed before the
    first of its `runs`. What is beside the prediction in detail is the run whose median step is in
    the middle."""
    steps = [[real.step_ns(one) / 1e9 for one in summary(real).counted] for real in runs]
    middle = sorted(range(len(runs)), key=lambda one: median(steps[one]))[len(runs) // 2]
    real = runs[middle]
    found = summary(real)
    cluster = layout.scenario.cluster
    return LayoutOutcome(
        name=layout.name,
        mode=layout.mode,
        links=f"{cluster.node.nic.bandwidth * 8 / 1e6:,.0f} Mbps" if shaped else "loopback",
        ranks=cluster.gpus,
        comparison=compare_steps(real, found, trace(real, found.step), run.plan, run.trace),
        steps=tuple(one for own in steps for one in own),
        kept=(max(one.kept_bytes for one in run.plan.memory.stages), kept_bytes(real.folder)),
        overruns=overruns(real, found.counted, run) if layout.mode == "paced" else 0.0,
        sealed=round(sealed.seconds * 1e9) == run.trace.step_ns,
        interval=sealed.interval,
        sealed_seconds=sealed.seconds,
        folder=real.folder,
    )


def _share(row: Mapping[str, int], cause: str) -> float:
    return row[cause] / sum(row.values())


@dataclass(frozen=True, slots=True)
class LayoutScore:
    """Over the layouts of one mode; errors are absolute shares of the measured step."""

    mode: str
    layouts: int
    median_error: float
    largest_error: float
    rank_correlation: float | None
    """Spearman's, of predicted and measured steps; None for fewer than three, or where all are
    equal."""
    drifted: int
    unsealed: int
    """Whose prediction was not on disk before the run, or is another now."""
    hits: int
    """Whose measured step lies in the sealed interval."""
    intervals: int
    """That had one."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def score(outcomes: Sequence[LayoutOutcome]) -> tuple[LayoutScore, ...]:
    """The score of each mode. Drifted runs count like the others, and those that did not hold
    their pace do not."""
    held = [one for one in outcomes if one.held]
    modes = dict.fromkeys(one.mode for one in held)
    return tuple(_of(mode, [one for one in held if one.mode == mode]) for mode in modes)


def _of(mode: str, outcomes: Sequence[LayoutOutcome]) -> LayoutScore:
    errors = [abs(one.error) for one in outcomes]
    return LayoutScore(
        mode=mode,
        layouts=len(outcomes),
        median_error=median(errors),
        largest_error=max(errors),
        rank_correlation=_spearman(outcomes),
        drifted=sum(one.drifted for one in outcomes),
        unsealed=sum(not one.sealed for one in outcomes),
        hits=sum(one.hit is True for one in outcomes),
        intervals=sum(one.hit is not None for one in outcomes),
    )


def _spearman(outcomes: Sequence[LayoutOutcome]) -> float | None:
    """Spearman's coefficient (1904): Pearson's, of ranks."""
    if len(outcomes) < 3:
        return None
    predicted = _ranks([one.predicted for one in outcomes])
    measured = _ranks([one.measured for one in outcomes])
    if predicted.std() == 0 or measured.std() == 0:
        return None
    return float(np.corrcoef(predicted, measured)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Places in order; those of equal values are the mean of theirs."""
    ordered, found = np.sort(values), np.array(values)
    return (np.searchsorted(ordered, found) + np.searchsorted(ordered, found, "right")) / 2
