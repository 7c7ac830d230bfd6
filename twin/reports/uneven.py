"""What it costs that ranks differ, and who waits for whom.

The cost is the step by events less that of the same cluster with equal GPUs, or where GPUs are
equal and expert ranks are not, less that of a balanced router. Ranks are told apart by what they
have to do with the GPUs that do less: they are such GPUs, share a collective of every layer with
one, stand before or after one of these in a pipeline, or none of it. Expert ranks are told apart by
whether they have more rows than the mean rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twin.engine import lower, simulate
from twin.engine import plan as make_plan
from twin.engine.expert_rows import ExpertRows, expert_rows
from twin.engine.program import Group, Role
from twin.engine.roles import Ranks, roles, roles_of_ranks
from twin.engine.trace import Trace
from twin.engine.unevenness import ALL
from twin.planning.types import Plan
from twin.reports.breakdown import EXPOSED_CAUSES, mean
from twin.reports.table import Table, duration, headed, percent, signed_duration
from twin.routing.balanced import Balanced

_LAYER_GROUPS: Final[tuple[Group, ...]] = ("tensor", "context", "expert_tensor", "expert")
"""Groups whose collectives are part of layers."""
_RELATIONS: Final = (
    "GPUs that do less",
    "in their tensor, context or expert groups",
    "before or after these in a pipeline",
    "all others",
)
_ROWS: Final = ("expert ranks with more rows than the mean", "with fewer rows")


_BALANCED: Final = "a balanced router"


@dataclass(frozen=True, slots=True)
class RankKind:
    """Ranks with one relation to GPUs that do less: how many, and means of what their compute
    streams do, in nanoseconds of the step."""

    relation: str
    ranks: int
    busy_ns: int
    """Running kernels, or held up by their host."""
    exposed_ns: int
    """Waiting for transfers that are under way."""
    bubble_ns: int
    """Waiting for other ranks."""
    longer_ns: int
    """How much longer they wait, for either, than with equal GPUs."""


@dataclass(frozen=True, slots=True)
class Uneven:
    """The step beside that of equal GPUs."""

    step_ns: int
    even_ns: int
    """The step of equal ranks."""
    kinds: tuple[RankKind, ...]
    longer_ns: tuple[int, ...]
    """Of every rank, how much longer its compute stream waits than with equal GPUs."""
    less: tuple[int, ...]
    """Numbers of the GPUs that do less, or whose experts have most rows."""
    equal: str = "equal GPUs"
    """What it is compared with."""

    @property
    def words(self) -> str:
        """What it costs, in a sentence."""
        cost = self.step_ns - self.even_ns
        who = "one GPU that does" if len(self.less) == 1 else f"{len(self.less):,} GPUs that do"
        with_them = f"With {who} less" if self.less else "With kernels that vary"
        if self.equal == _BALANCED:
            with_them = "With expert ranks that differ"
        if cost == 0:
            return f"{with_them} the step takes no longer than with {self.equal}."
        share = percent(abs(cost) / self.even_ns)
        return (
            f"{with_them} the step takes {duration(abs(cost) / 1e9)} ({share}) "
            f"{'longer' if cost > 0 else 'less'} than the {duration(self.even_ns / 1e9)} of "
            f"{self.equal}."
        )

    def to_json(self) -> dict[str, Any]:
        """In nanoseconds, as the breakdown; without single ranks."""
        return {
            "even_step_ns": self.even_ns,
            "gpus": list(self.less),
            "kinds": [asdict(one) for one in self.kinds],
        }


def uneven(plan: Plan, trace: Trace) -> Uneven | None:
    """What it costs that ranks differ; None where they do not, or are not told apart."""
    scenario, cluster = plan.scenario, plan.scenario.cluster
    # A trace of every rank has as many roles; where all GPUs differ, both are one.
    ranks: Ranks = "all" if len(trace.roles) == plan.mesh.ranks else "folded"
    rows = expert_rows(plan) if ranks == "all" and not cluster.uneven else None
    if cluster.uneven:
        alike = cluster.model_copy(update={"degraded": (), "jitter": None})
        equal = scenario.model_copy(update={"cluster": alike})
    elif rows is not None:
        train = scenario.train.model_copy(update={"routing": Balanced(kind="balanced")})
        equal = scenario.model_copy(update={"train": train})
    else:
        return None
    even = simulate(lower(make_plan(equal)))
    own, role_of = roles(plan, ranks), roles_of_ranks(plan, ranks)
    related = _related(own) if rows is None else _by_rows(own, _excess(plan, rows))
    names = _RELATIONS if rows is None else _ROWS
    of_rank: list[int] = role_of.tolist()
    waits = [_waiting(row) for row in even.breakdown_ns]
    longer = [
        _waiting(row) - waits[role.stage] for role, row in zip(own, trace.breakdown_ns, strict=True)
    ]
    return Uneven(
        step_ns=trace.step_ns,
        even_ns=even.step_ns,
        kinds=_kinds(own, trace, longer, dict(enumerate(names)), related),
        longer_ns=tuple(longer[role] for role in of_rank),
        less=tuple(gpu for gpu, role in enumerate(of_rank) if own[role].shares != ALL),
        equal="equal GPUs" if rows is None else _BALANCED,
    )


def _excess(plan: Plan, rows: ExpertRows) -> dict[int, NDArray[np.float64]]:
    """Of every stage the mean excess of each expert rank over its layers with experts."""
    stage_of, found = {one.index: one.stage for one in plan.chunks}, dict[int, list[Any]]()
    for (chunk, _), excess in rows.excess.items():
        found.setdefault(stage_of[chunk], []).append(excess)
    return {stage: np.mean(every, axis=0) for stage, every in found.items()}


def _by_rows(own: Sequence[Role], excess: Mapping[int, NDArray[np.float64]]) -> list[int]:
    """Of every role its place in `_ROWS`; a stage without experts has none of them."""
    return [int(role.stage not in excess or excess[role.stage][role.expert] <= 0) for role in own]


def _waiting(row: Mapping[str, int]) -> int:
    return _exposed(row) + row["bubble"]


def _exposed(row: Mapping[str, int]) -> int:
    return sum(row[cause] for cause in EXPOSED_CAUSES)


def _kinds(
    own: Sequence[Role],
    trace: Trace,
    longer: Sequence[int],
    names: Mapping[int, str],
    related: Sequence[int],
) -> tuple[RankKind, ...]:
    """The kinds of ranks that there are, by name, and which is each role's; `longer` is of every
    role how much longer it waits."""
    found: list[RankKind] = []
    for place, relation in names.items():
        members = [role for role, kind in enumerate(related) if kind == place]
        if not members:
            continue
        ranks = [own[role].ranks for role in members]
        row = mean([trace.breakdown_ns[role] for role in members], ranks)
        exposed, bubble = _exposed(row), row["bubble"]
        busy = trace.step_ns - exposed - bubble
        later = round(sum(own[role].ranks * longer[role] for role in members) / sum(ranks))
        found.append(RankKind(relation, sum(ranks), busy, exposed, bubble, later))
    return tuple(found)


def _related(own: Sequence[Role]) -> list[int]:
    """Of every role its place in `_RELATIONS`."""
    less = [role for role in own if role.shares != ALL]
    groups = {
        (kind, one.groups[kind]) for one in less for kind in _LAYER_GROUPS if kind in one.groups
    }
    near = [any(pair in groups for pair in role.groups.items()) for role in own]
    lines = {role.peers for role, with_them in zip(own, near, strict=True) if with_them}
    lines |= {role.peers for role in less}
    return [
        0 if role.shares != ALL else 1 if with_them else 2 if role.peers in lines else 3
        for role, with_them in zip(own, near, strict=True)
    ]


def uneven_tables(found: Uneven | None) -> list[Table]:
    """Who waits, by their relation to GPUs that do less; nothing where GPUs are equal."""
    if found is None:
        return []
    title = "Ranks differ: who waits (mean of the ranks)"
    heads = ("ranks", "GPUs", "busy", "waiting for transfers", "for others", "longer by")
    table = headed(title, *heads)
    for one in found.kinds:
        spent = [duration(ns / 1e9) for ns in (one.busy_ns, one.exposed_ns, one.bubble_ns)]
        longer = signed_duration(one.longer_ns / 1e9)
        table.add_row(one.relation, f"{one.ranks:,}", *spent, longer)
    table.caption = f"{found.equal}: {duration(found.even_ns / 1e9)} per step"
    return [table]
