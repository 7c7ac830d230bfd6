"""Jobs beside each other on one fabric: what a step of each takes while the others run theirs.

Each job is a Program of its own, unrolled as it is when it runs alone. Only the links differ: the
uplinks of a leaf are one link for the ranks of all jobs under it (max-min fair shares, `fluid`).
Ranks of a role share leaves with the same ranks of every job; roles part until they do. Steps
follow each other without a break, so jobs meet at other points of each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from twin.engine.cost_model import rates
from twin.engine.events import play
from twin.engine.graph import NONE, Graph, row_starts
from twin.engine.in_a_row import beside as jobs_beside
from twin.engine.in_a_row import in_a_row
from twin.engine.link_map import Seats, Use, Wiring, links
from twin.engine.lower import lower
from twin.engine.played import Played, Progress
from twin.engine.program import MESH_GROUPS, Program
from twin.engine.roles import Positions, Ranks, positions_of, roles, seats
from twin.engine.simulate import simulate, traced
from twin.engine.trace import Trace
from twin.engine.unevenness import by_first, coloured, numbered
from twin.engine.unroll import unroll
from twin.network.links import LinkClass
from twin.planning.mesh import group_numbers, ranks_of_stages
from twin.planning.types import Plan
from twin.spec.cluster import FabricSpec

STEPS: Final = 3
"""Of the job with the longest step: its neighbours meet other parts of each."""

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Beside:
    """A job alone on its nodes, and in steps beside its neighbours."""

    alone: Trace
    together: tuple[Trace, ...]

    @property
    def typical(self) -> Trace:
        """The step of median length beside the neighbours."""
        ordered = sorted(self.together, key=lambda one: one.step_ns)
        return ordered[(len(ordered) - 1) // 2]


def on_one_fabric(
    plans: Sequence[Plan], fabric: FabricSpec, ranks: Ranks = "folded"
) -> tuple[Program, ...]:
    """The programs of jobs that have nodes under the same leaves. Each plan is made for the fabric
    as its job sees it (`network.tenants.seen`); `fabric` is the whole."""
    cluster = plans[0].scenario.cluster
    pod = cluster.node.gpus * fabric.nodes_per_leaf
    spots = _spots(plans, pod)
    leaves = 1 + max(int(own.max()) for own in spots) // pod
    whole = {"fabric": fabric, "nodes": leaves * fabric.nodes_per_leaf}
    uplink = rates(cluster.model_copy(update=whole), plans[0].scenario.calibration).leaf
    positions = [positions_of(plan, ranks) for plan in plans]
    if uplink is not None and ranks == "folded":
        positions = _alike(plans, positions, [own // pod for own in spots])
    sat = [seats(plan, ranks, at) for plan, at in zip(plans, positions, strict=True)]
    starts = row_starts([len(own.first) for own in sat]).tolist()
    programs = [lower(plan, ranks) for plan in plans]
    uses = [
        use
        for plan, program, own in zip(plans, programs, sat, strict=True)
        for use in _uses(plan, program, own, uplink)
    ]
    wiring = links(_together(sat, spots, pod), uses)
    return tuple(
        replace(
            program,
            roles=roles(plan, ranks, at),
            wiring=_part(wiring, slice(*ends), program.wiring),
        )
        for plan, program, at, ends in zip(
            plans, programs, positions, pairwise(starts), strict=True
        )
    )


def _together(sat: Sequence[Seats], spots: Sequence[Numbers], pod: int) -> Seats:
    """Where the ranks of all jobs sit on the whole fabric, so many under a leaf; the roles of a job
    follow those of the job before."""
    role_of = np.full(1 + max(int(spot.max()) for spot in spots), NONE, np.int64)
    first: list[int] = []
    for own, spot in zip(sat, spots, strict=True):
        role_of[spot] = len(first) + np.asarray(own.role_of)
        first += spot[np.asarray(own.first)].tolist()
    return replace(sat[0], role_of=role_of, first=first, shares=(), pod=pod)


def _spots(plans: Sequence[Plan], pod: int) -> list[Numbers]:
    """Of every rank of each job its GPU on the whole fabric: under each leaf one job's nodes follow
    those of the job before. A job that has no room beside those before has further leaves."""
    found: list[Numbers] = []
    first = taken = 0
    for plan in plans:
        cluster = plan.scenario.cluster
        own = cluster.node.gpus * cluster.fabric.nodes_per_leaf
        leaf, place = np.divmod(np.arange(plan.mesh.ranks), own)
        if taken + own > pod:
            first, taken = 1 + max(int(spot.max()) for spot in found) // pod, 0
        found.append((first + leaf) * pod + taken + place)
        taken += own
    return found


def _alike(
    plans: Sequence[Plan], positions: Sequence[Positions], pods: Sequence[Numbers]
) -> list[Positions]:
    """The positions, finer: places of a job have one where their ranks are in groups alike and,
    stage by stage, under leaves with equally many ranks of each kind of all jobs. `pods`: of every
    rank its leaf."""
    found = [*positions]
    stages = [ranks_of_stages(plan.mesh) for plan in plans]
    groups = [group_numbers(plan.mesh) for plan in plans]
    while True:
        before = [int(own.max()) for own in found]
        held = _held(found, [pod[ranks] for pod, ranks in zip(pods, stages, strict=True)])
        for job, own in enumerate(found):
            kinds = [coloured(own, groups[job][group][0]) for group in MESH_GROUPS]
            leaves = held[pods[job][stages[job]]]
            found[job] = by_first(numbered(np.stack([own, *kinds, *leaves], axis=1)))
        if [int(own.max()) for own in found] == before:
            return found


def _held(found: Sequence[Positions], pods: Sequence[Numbers]) -> Numbers:
    """Of every leaf a number that those with equally many ranks of each kind have in common; `pods`
    of each job is stages x places."""
    kinds = [len(pod) * (int(own.max()) + 1) for own, pod in zip(found, pods, strict=True)]
    counts = np.zeros((1 + max(int(pod.max()) for pod in pods), sum(kinds)), np.int64)
    begin = 0
    for own, pod, size in zip(found, pods, kinds, strict=True):
        stage = np.arange(len(pod))[:, None] * (size // len(pod))
        np.add.at(counts, (pod, begin + stage + own), 1)
        begin += size
    return numbered(counts)


def _uses(plan: Plan, program: Program, own: Seats, shared: float | None) -> list[Use]:
    """What the roles of a job make of their links."""
    scenario = plan.scenario
    ported = replace(rates(scenario.cluster, scenario.calibration), leaf=shared)
    messages = program.message.link if plan.mesh.pipeline > 1 else None
    each = [ported.of(own.left(role)) for role in range(len(own.first))]
    narrow = plan.uses_host or any(one.pcie < one.nic for one in each)
    return [Use(one, narrow, messages) for one in each]


def _part(whole: Wiring, job: slice, own: Wiring) -> Wiring:
    """The links as the roles of one job see them: those that they never use have no class."""
    ports = whole.ports[job]
    used = {link for port in ports for link in port.links}
    classes: list[LinkClass | None] = [None] * len(whole.classes)
    for link in used:
        classes[link] = whole.classes[link]
    return Wiring(tuple(classes), whole.capacity, ports, own.alone)


def beside(
    programs: Sequence[Program], steps: int = STEPS, progress: Progress | None = None
) -> tuple[Beside, ...]:
    """Simulate jobs that share links: each alone, and all together until the one with the longest
    step has run so many. Steps that end later are left out."""
    alone = [simulate(program, extrapolate=False) for program in programs]
    longest = max(range(len(programs)), key=lambda job: alone[job].step_ns)
    until = steps * alone[longest].step_ns
    counts = [ceil(until / max(1, one.step_ns)) + (job != longest) for job, one in enumerate(alone)]
    graphs = [unroll(program, program.microbatches) for program in programs]
    while True:
        parts = _played(graphs, programs, counts, progress)
        ends = [int(part[-1].end.max()) for part in parts]
        if min(ends) >= ends[longest]:
            break
        # Whoever is done too early runs on.
        counts = [
            count if end >= ends[longest] else ceil(count * ends[longest] / end) + 1
            for count, end in zip(counts, ends, strict=True)
        ]
    own = zip(alone, programs, graphs, parts, strict=True)
    return tuple(
        Beside(one, _steps(program, graph, part, ends[longest]))
        for one, program, graph, part in own
    )


def _played(
    graphs: Sequence[Graph],
    programs: Sequence[Program],
    counts: Sequence[int],
    progress: Progress | None,
) -> list[list[Played]]:
    """Of each job, what its steps did, on one clock."""
    every = replace(
        programs[0],
        roles=tuple(role for program in programs for role in program.roles),
        contention_by_role=tuple(one for program in programs for one in program.contentions),
    )
    rows = [in_a_row(*one) for one in zip(graphs, programs, counts, strict=True)]
    played = play(jobs_beside(rows, programs), every, progress)
    starts = row_starts([len(row) for row in rows]).tolist()
    return [
        [_cut(played, start + step * len(graph), len(graph)) for step in range(count)]
        for graph, count, start in zip(graphs, counts, starts, strict=False)
    ]


def _cut(played: Played, begin: int, size: int) -> Played:
    """Some operations of it, numbered from 0."""
    within = slice(begin, begin + size)
    cause = played.released_by[within] - begin
    return Played(
        played.ready[within],
        played.start[within],
        played.end[within],
        np.where((cause >= 0) & (cause < size), cause, NONE),
        size,
        played.shared,
    )


def _steps(
    program: Program, graph: Graph, parts: Sequence[Played], until: int
) -> tuple[Trace, ...]:
    """The steps of a job that end by a time, at least the first, each from its own beginning."""
    found: list[Trace] = []
    for part in parts:
        if found and int(part.end.max()) > until:
            break
        begin = int(part.ready.min())
        ready, start, end = (column - begin for column in (part.ready, part.start, part.end))
        found.append(traced(program, graph, replace(part, ready=ready, start=start, end=end)))
    return tuple(found)
