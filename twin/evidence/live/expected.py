"""What a prediction says of the parts of a step, so that a measured step can be held against it:
how each stage spends it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from twin.answers import Run
from twin.engine import lower


@dataclass(frozen=True, slots=True)
class StageTime:
    """A pipeline stage in one step: seconds of its compute stream by cause, mean over the ranks
    that were played."""

    stage: int
    breakdown_seconds: Mapping[str, float]

    @property
    def kernel_seconds(self) -> float:
        """Kernels of passes, slowed as they are by communication beside them."""
        return sum(self.breakdown_seconds.get(cause, 0.0) for cause in ("compute", "contention"))


def stages(run: Run) -> tuple[StageTime, ...]:
    """Every stage of an answered scenario."""
    grouped = run.report.provenance.fidelity == "group"
    program = lower(run.plan, "group") if grouped else lower(run.plan)
    rows: dict[int, list[Mapping[str, int]]] = defaultdict(list)
    for role, row in zip(program.roles, run.trace.breakdown_ns, strict=True):
        rows[role.stage].append(row)
    return tuple(StageTime(stage, _mean(rows[stage])) for stage in sorted(rows))


def _mean(rows: list[Mapping[str, int]]) -> dict[str, float]:
    return {cause: fmean(row[cause] for row in rows) / 1e9 for cause in rows[0]}
