"""Why a step takes longer than before, or than predicted: a slow stage, a slow link or data stalls,
from the ranks' records.

Each cause makes a difference of its own:

- slow stage: the stage computes longer, transfers during a pass excluded;
- slow link: even the fastest tenth of one kind of transfer got slower. Those wait for nobody; the
  others also take longer when a peer is late;
- data stall: the first stage begins its first forward later in the step.

Each explains some seconds of the excess. OURS: a cause that explains at least half is called
likely; otherwise the excess is called not explained. A transfer that hides behind kernels explains
less than its seconds, which are an upper bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Literal

import numpy as np

from twin.answers import Run
from twin.engine.program import COMPUTE
from twin.evidence.measured.run_folder import MeasuredRun, RunLayout
from twin.evidence.measured.step import SENDS, RankStep, measured_step, senders
from twin.evidence.measured.summary import MESSAGE, ActionTimes
from twin.reports.breakdown import KERNELS
from twin.reports.table import digits, duration


@dataclass(frozen=True, slots=True)
class StageTime:
    """A pipeline stage in one step: seconds of its compute stream by cause, mean over the ranks
    that were played."""

    stage: int
    breakdown_seconds: Mapping[str, float]

    @property
    def kernel_seconds(self) -> float:
        """Kernels of passes, slowed as they are by communication beside them."""
        return sum(self.breakdown_seconds.get(cause, 0.0) for cause in KERNELS)


def stages(run: Run) -> tuple[StageTime, ...]:
    """Every stage of an answered scenario."""
    grouped = run.report.provenance.fidelity == "group"
    program = run.kind.lower(run.plan, "group") if grouped else run.program
    rows: dict[int, list[Mapping[str, int]]] = defaultdict(list)
    for role, row in zip(program.roles, run.trace.breakdown_ns, strict=True):
        rows[role.stage].append(row)
    return tuple(StageTime(stage, _mean_seconds(rows[stage])) for stage in sorted(rows))


def _mean_seconds(rows: list[Mapping[str, int]]) -> dict[str, float]:
    return {cause: fmean(row[cause] for row in rows) / 1e9 for cause in rows[0]}


Kind = Literal["slow_stage", "all_stages", "slow_link", "data_stall"]
_PASSES: Final = frozenset("FBIW")
_FASTEST: Final = 10
"""Percent of the transfers of a kind."""
_ENOUGH: Final = 0.5
"""Share of the excess from which on a cause is likely."""


@dataclass(frozen=True, slots=True)
class TransferTimes:
    """One kind of transfer: seconds of its fastest tenth, and how many a rank has per step."""

    seconds: float
    per_step: float


Place = tuple[str, int]
"""The name of a kind of transfer, and its chunk; -1 of none."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a step consists of, measured or predicted: seconds of kernels by stage, transfers by
    name and chunk, and seconds before the first forward of the first stage."""

    stages: Mapping[int, float]
    wires: Mapping[Place, TransferTimes]
    wait: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """One possible cause: what of, seconds of it before (or predicted) and now, the seconds of the
    step that it explains, and their share of the excess."""

    kind: Kind
    of: str
    before: float
    now: float
    explains: float
    share: float

    @property
    def words(self) -> str:
        """The evidence in numbers."""
        grown = f"{duration(self.before)} -> {duration(self.now)}"
        return f"{self.of}: {grown}, {digits(100 * self.share)} % of the excess"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a step takes so many seconds more. `likely` is None where nothing explains it."""

    excess: float
    against: Literal["before", "prediction"]
    evidence: tuple[Evidence, ...]
    """What grew, the largest share first."""

    @property
    def likely(self) -> Evidence | None:
        """What explains at least half of the excess, and the most of it."""
        best = self.evidence[0] if self.evidence else None
        return best if best is not None and best.share >= _ENOUGH else None

    @property
    def words(self) -> str:
        """The likely cause with its evidence."""
        if self.likely is not None:
            return f"Likely cause: {self.likely.words}."
        most = f"; the most that was found is {self.evidence[0].words}" if self.evidence else ""
        return f"Not explained{most}."


def cause(
    before: Profile, now: Profile, excess: float, against: Literal["before", "prediction"]
) -> Cause:
    """What grew from one profile to the other, and how much of the excess each explains. Only what
    both know is compared."""
    found = [*_stages(before, now), *_links(before, now)]
    if now.wait > before.wait:
        of = "wait before the first forward (data)"
        found.append(("data_stall", of, before.wait, now.wait, now.wait - before.wait))
    evidence = [
        Evidence(kind, of, old, new, grown, min(1.0, grown / excess))
        for kind, of, old, new, grown in found
        if grown > 0
    ]
    return Cause(excess, against, tuple(sorted(evidence, key=lambda one: -one.share)))


_Grown = tuple[Kind, str, float, float, float]


def _stages(before: Profile, now: Profile) -> list[_Grown]:
    """The stage whose kernels grew most; all of them, where they grew alike: within half of the
    most."""
    both = [stage for stage in now.stages if before.stages.get(stage)]
    if not both:
        return []
    grown = {stage: now.stages[stage] / before.stages[stage] - 1 for stage in both}
    worst = max(both, key=grown.__getitem__)
    old, new = before.stages[worst], now.stages[worst]
    alike = len(both) > 1 and min(grown.values()) > grown[worst] / 2
    kind: Kind = "all_stages" if alike else "slow_stage"
    of = f"kernels of every stage, most of all stage {worst}" if alike else f"stage {worst}"
    return [(kind, f"{of}, kernels per step", old, new, new - old)]


def _links(before: Profile, now: Profile) -> list[_Grown]:
    found: list[_Grown] = []
    for (name, chunk), wire in now.wires.items():
        if (old := before.wires.get((name, chunk))) is not None:
            grown = (wire.seconds - old.seconds) * wire.per_step
            where = f" at chunk {chunk}" if chunk >= 0 else ""
            of = f"link of `{name}`{where}, one of {digits(wire.per_step)} per step"
            found.append(("slow_link", of, old.seconds, wire.seconds, grown))
    return found


def measured(run: MeasuredRun) -> Profile:
    """What the steps of a run consist of: medians over steps, of the slowest rank of each stage.
    A collective lasts from when all its ranks were there."""
    kernels: dict[tuple[int, int], list[int]] = defaultdict(list)
    waits: dict[int, list[int]] = defaultdict(list)
    lasted: dict[Place, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    stages = run.layout.stage
    for step in run.steps:
        for rank, line in enumerate(measured_step(run, step).ranks):
            kernels[stages[rank], rank].append(_kernel_ns(line))
            if stages[rank] == 0 and (wait := _wait_ns(line)) is not None:
                waits[rank].append(wait)
            for place, ns in _transfers(line, run.layout):
                lasted[place][rank].append(ns)
    slowest: dict[int, float] = {}
    for (stage, _), times in kernels.items():
        slowest[stage] = max(slowest.get(stage, 0.0), float(np.median(times)) / 1e9)
    wires = {place: _wire(by_rank, len(run.steps)) for place, by_rank in lasted.items()}
    wait = max((float(np.median(one)) / 1e9 for one in waits.values()), default=0.0)
    return Profile(slowest, wires, wait)


def predicted(stages: Iterable[StageTime], actions: Iterable[ActionTimes]) -> Profile:
    """What a predicted step consists of; of its transfers the faster quarter. It waits for no
    data."""
    kept = (one for one in actions if one.name not in _PASSES and one.name != "optimizer")
    wires = {(one.name, one.chunk): TransferTimes(one.low / 1e9, 0.0) for one in kept}
    return Profile({one.stage: one.kernel_seconds for one in stages}, wires, 0.0)


def _kernel_ns(line: RankStep) -> int:
    """Time in passes. Their spans are stretches of computing: transfers lie between them."""
    own = line.spans
    rows = (own.stream == COMPUTE) & np.array([name in _PASSES for name in line.names], bool)
    return int((own.end - own.start)[rows].sum())


def _wait_ns(line: RankStep) -> int | None:
    """From the rank's beginning of the step to its first forward."""
    begins = [
        int(start) for start, name in zip(line.spans.start, line.names, strict=True) if name == "F"
    ]
    return min(begins) - line.window[0] if begins else None


def _transfers(line: RankStep, layout: RunLayout) -> list[tuple[Place, int]]:
    """Every transfer of a rank, and how long it took once all its ranks were there."""
    own = line.spans
    rows = np.flatnonzero(own.stream != COMPUTE).tolist()
    chunk = senders(line, layout.chunk_map)
    return [
        (
            (MESSAGE if own.stream[row] in SENDS else line.names[row], int(chunk[row])),
            int(own.end[row] - line.begun[row]),
        )
        for row in rows
    ]


def _wire(by_rank: Mapping[int, Sequence[int]], steps: int) -> TransferTimes:
    times = [ns for one in by_rank.values() for ns in one]
    most = max(map(len, by_rank.values()))
    return TransferTimes(float(np.percentile(times, _FASTEST)) / 1e9, most / steps)
