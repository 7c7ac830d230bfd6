"""Jobs on one fabric: the step of each by itself on its nodes, and while the others run theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from twin.engine import lower, simulate
from twin.engine import plan as make_plan
from twin.engine.neighbours import Beside, beside, on_one_fabric
from twin.engine.program import COMPUTE, HOST
from twin.engine.trace import Trace
from twin.errors import Problem, UsageError
from twin.network.tenants import Layout, nodes_per_leaf, seen
from twin.planning.types import Plan
from twin.reports.breakdown import CAUSE_WORDS, mean
from twin.reports.table import Table, duration, headed, percent, signed_duration
from twin.scenario import Scenario

LAYOUT_WORDS: Mapping[Layout, str] = {
    "interleaved": "nodes of every job under each leaf",
    "apart": "each job on leaves of its own",
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """One of the jobs. Its step is that of median length where there are several."""

    name: str
    nodes: int
    nodes_per_leaf: int
    """Its own."""
    written_ns: int
    """The step as the scenario has it, on a fabric without others."""
    alone_ns: int
    """The step on these nodes while the others send nothing."""
    steps_ns: tuple[int, ...]
    """Its steps beside the others."""
    step_ns: int
    lost_ns: Mapping[str, int]
    """By cause, what the step takes longer than alone; sums to the difference exactly."""
    slowed_ns: Mapping[str, int]
    """By name, how much longer a rank's transfers last in a step, hidden or not."""
    uplinks: float
    """Share of the uplinks' capacity that it takes, mean over leaves and time."""

    @property
    def longer(self) -> float:
        """Share by which the others make its step longer."""
        return self.step_ns / self.alone_ns - 1

    @property
    def words(self) -> str:
        """What it loses, in a sentence."""
        lost = self.step_ns - self.alone_ns
        if lost == 0:
            return f"{self.name} loses nothing: its step takes {duration(self.step_ns / 1e9)}."
        size = f"{duration(abs(lost) / 1e9)} ({percent(abs(self.longer))})"
        step = f"{self.name} takes {duration(self.step_ns / 1e9)} per step beside the others"
        if lost < 0:
            return (
                f"{step}, {size} less than alone. Its slowed transfers leave its NICs to those "
                "that its kernels wait for."
            )
        cause = max(self.lost_ns, key=lambda one: self.lost_ns[one])
        return f"{step}, {size} more than alone. Most of it is {CAUSE_WORDS[cause].lower()}."


@dataclass(frozen=True, slots=True)
class Together:
    """Jobs on one fabric."""

    layout: Layout
    leaves: int
    shared: bool
    """Whether there are links that ranks of several jobs send over."""
    tenants: tuple[Tenant, ...]

    def named(self, *names: str) -> Together:
        """The same under other names of the jobs."""
        own = zip(self.tenants, names, strict=True)
        return replace(self, tenants=tuple(replace(one, name=name) for one, name in own))

    def sentences(self) -> list[str]:
        """What each loses, and to which links."""
        where = f"On one fabric of {self.leaves} leaves, {LAYOUT_WORDS[self.layout]}"
        if not self.shared:
            return [f"{where}, the jobs share no link that limits them: no step changes."]
        used = sum(tenant.uplinks for tenant in self.tenants)
        return [
            f"{where}, the jobs share the uplinks of leaves, {percent(used)} of which they use.",
            *(tenant.words for tenant in self.tenants),
        ]

    def tables(self) -> list[Table]:
        """Each job alone and together, and what binds."""
        heads = ("job", "nodes per leaf", "as written", "alone on these nodes", "together", "lost")
        table = headed(f"On one fabric, {LAYOUT_WORDS[self.layout]}: seconds per step", *heads)
        for one in self.tenants:
            steps = [duration(ns / 1e9) for ns in (one.written_ns, one.alone_ns, one.step_ns)]
            lost = signed_duration((one.step_ns - one.alone_ns) / 1e9)
            table.add_row(one.name, f"{one.nodes_per_leaf:,} of {one.nodes:,}", *steps, lost)
        table.caption = "together: the median of steps that follow each other"
        return [table, *self._slowed()] if self.shared else [table]

    def _slowed(self) -> list[Table]:
        heads = ("job", "transfers", "longer per step and rank")
        table = headed("Slowed on shared uplinks, hidden or not", *heads, left=(0, 1))
        for one in self.tenants:
            largest = sorted(one.slowed_ns.items(), key=lambda pair: -pair[1])[:3]
            for name, ns in largest:
                table.add_row(one.name, name.replace("_", " "), signed_duration(ns / 1e9))
        return [table] if table.rows else []

    def to_json(self) -> dict[str, Any]:
        """In nanoseconds, as the breakdown."""
        return asdict(self)


def together(
    scenarios: Sequence[Scenario], layout: Layout, progress: Callable[[float], None] | None = None
) -> Together:
    """The steps of training runs on one fabric, by events. Raises `UsageError` TW173 where their
    nodes or fabrics differ, or a leaf has no room for all."""
    fabric = scenarios[0].cluster.fabric
    own = _nodes_per_leaf(scenarios, layout)
    plans = [
        make_plan(one.model_copy(update={"cluster": seen(one.cluster, nodes)}))
        for one, nodes in zip(scenarios, own, strict=True)
    ]
    programs = on_one_fabric(plans, fabric)
    found = beside(programs, progress=progress)
    written = [simulate(lower(make_plan(one))).step_ns for one in scenarios]
    leaves = [-(-one.cluster.nodes // nodes) for one, nodes in zip(scenarios, own, strict=True)]
    return Together(
        layout,
        max(leaves) if layout == "interleaved" else sum(leaves),
        layout == "interleaved" and any("leaf" in one.alone.link_busy for one in found),
        tuple(map(_tenant, plans, own, written, found)),
    )


def _nodes_per_leaf(scenarios: Sequence[Scenario], layout: Layout) -> tuple[int, ...]:
    """Of each job, its nodes under a leaf."""
    first, *others = [scenario.cluster for scenario in scenarios]
    most = first.fabric.nodes_per_leaf
    for scenario, cluster in zip(scenarios[1:], others, strict=True):
        for part in ("node", "fabric"):
            if getattr(cluster, part) != getattr(first, part):
                names = f"`{scenarios[0].name}` and `{scenario.name}`"
                message = f"{names} are on different {part}s, so they are not on one fabric"
                fix = f"write --set cluster.{part}=NAME for both"
                raise UsageError([Problem("TW173", "", message, fix)])
    if layout == "apart":
        return (most,) * len(scenarios)
    try:
        return nodes_per_leaf(most, [scenario.cluster.nodes for scenario in scenarios])
    except ValueError as error:
        raise UsageError([Problem("TW173", "", str(error), "--together apart")]) from None


def _tenant(plan: Plan, nodes: int, written_ns: int, found: Beside) -> Tenant:
    alone, typical = found.alone, found.typical
    before, after = (mean(one.breakdown_ns, one.ranks) for one in (alone, typical))
    own = _transfers(alone)
    slowed = {name: ns - own.get(name, 0) for name, ns in _transfers(typical).items()}
    return Tenant(
        name=plan.scenario.name,
        nodes=plan.scenario.cluster.nodes,
        nodes_per_leaf=min(nodes, plan.scenario.cluster.nodes),
        written_ns=written_ns,
        alone_ns=alone.step_ns,
        steps_ns=tuple(one.step_ns for one in found.together),
        step_ns=typical.step_ns,
        lost_ns={cause: after[cause] - before[cause] for cause in after},
        slowed_ns={name: ns for name, ns in slowed.items() if ns > 0},
        uplinks=typical.link_busy.get("leaf", 0.0),
    )


def _transfers(trace: Trace) -> dict[str, int]:
    """By name, how long transfers of a rank last in a step: means over ranks."""
    spans, ranks = trace.spans, np.array(trace.ranks)
    sent = ~np.isin(spans.stream, (COMPUTE, HOST))
    weighted = (spans.end - spans.start)[sent] * ranks[spans.role[sent]]
    total = np.bincount(spans.name[sent], weighted, minlength=len(trace.names)) / ranks.sum()
    return {name: round(ns) for name, ns in zip(trace.names, total.tolist(), strict=True) if ns}
