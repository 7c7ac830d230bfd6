"""Seconds and traffic of a run's operations on its cluster: what templates are made of.

A template on a role of its own: how long each step lasts when nothing is on its links and its
SMs but the template's other steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import Any, Final, Literal

from twin.arch.kernels import of_mean, piece
from twin.arch.ops import CollectiveKind, Exchange, Op, Work
from twin.collectives.base import Choice, Traffic
from twin.collectives.deepep import arriving, deepep, sm_lag
from twin.collectives.spread import Spread
from twin.collectives.traffic import chosen, phases, serial, traffic
from twin.engine.link_map import Rates, alone
from twin.engine.played import Played
from twin.engine.program import Program, Template
from twin.engine.roles import seats
from twin.engine.unroll import template_graph
from twin.hardware.host_costs import HostCosts, Part
from twin.hardware.roofline import Price, Prices, prices, with_scaling, without_launches
from twin.network.links import capacity
from twin.network.placement import Placement
from twin.planning.chunks import shape_of
from twin.planning.experts import expert_spread
from twin.planning.layer_times import host_costs
from twin.planning.mesh import REPLICAS
from twin.planning.types import Plan
from twin.scenario import Scenario
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import ClusterSpec


def played_alone(template: Template, program: Program) -> list[tuple[int, int]]:
    """Nanoseconds after its start at which every step starts and ends."""
    played = _play(template, program)
    return [*zip(played.start.tolist(), played.end.tolist(), strict=True)]


def length_alone(template: Template, program: Program) -> int:
    """Nanoseconds until its last step has ended."""
    return int(_play(template, program).end.max(initial=0))


def _play(template: Template, program: Program) -> Played:
    from twin.engine.player import play  # noqa: PLC0415  simpy, which most steps do without

    return play(template_graph(template, program), replace(program, roles=program.roles[:1]))


def rates(cluster: ClusterSpec, profile: CalibrationSpec) -> Rates:
    """Bytes per nanosecond of the cluster's links; the uplinks are those of a whole pod."""
    nic, fabric = capacity(cluster, "nic") / 1e9, cluster.fabric
    uplink, leaf = capacity(cluster, "pcie_uplink"), capacity(cluster, "leaf")
    down = fabric.nodes_per_leaf * cluster.node.gpus * nic
    return Rates(
        nvlink=capacity(cluster, "nvlink") / 1e9,
        nic=nic,
        pcie=capacity(cluster, "pcie") / 1e9,
        dram=capacity(cluster, "dram") / 1e9,
        pcie_uplink=None if uplink is None else uplink / 1e9,
        leaf=None if leaf is None else down / fabric.oversubscription,
        loss=profile.expert_contention,
    )


def nanoseconds(value: float) -> int:
    """Seconds as integer nanoseconds, rounded once."""
    return round(value * 1e9)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Some kernels: seconds at full speed, those of them that SMs bound, what the host needs to
    issue them, and seconds that the mean rank of the expert group waits for them: what the fullest
    takes longer than it."""

    seconds: float
    sm_bound: float
    host: float
    imbalance: float = 0.0

    def __add__(self, other: Kernels) -> Kernels:
        """Both, one after the other."""
        return Kernels(
            self.seconds + other.seconds,
            self.sm_bound + other.sm_bound,
            self.host + other.host,
            self.imbalance + other.imbalance,
        )


NOTHING: Final = Kernels(0.0, 0.0, 0.0)
Overlap = Literal["none", "bulk", "pieces"]


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds and traffic of the run's operations on its cluster."""

    cluster: ClusterSpec
    calibration: CalibrationSpec
    placements: dict[str, Placement]
    alone: Mapping[str, float]
    """Bytes per nanosecond of a transfer that has its links to itself, as in `Wiring`."""
    choice: Choice = "ring"
    """Of the algorithm of collectives."""
    zero: int = 1
    reshard_after_forward: bool = True
    spread: Spread | None = None
    """Of a token's experts, where copies for one node travel as one."""
    expert_load: float = 1.0
    """Rows of the fullest expert rank over the mean."""
    expert_rate: float | None = None
    """Bytes per second that the SMs of an expert all-to-all pass on; None: links bind."""
    overlap: Overlap = "none"
    """How collectives over tensor ranks run beside products."""
    gradient_bytes: int = 4
    """Of a gradient that is reduced."""
    sequence_copies: bool = False
    """What tensor ranks gather or sum is copied into order (`parallel.sequence_copies`)."""
    shard_copies: int = 1
    """Of what is sharded over replicas."""
    copies_gathered: bool = False
    """Parameters that are gathered are copied (`software.copies_gathered`)."""
    by_layer: bool = False
    """Whether steps say on which layer's rows they depend."""
    host: HostCosts = field(kw_only=True)
    """What the host needs to issue operations."""
    priced_ops: dict[tuple[int, Part, int | None], tuple[Op, Kernels]] = field(
        init=False, repr=False, compare=False, default_factory=dict[Any, Any]
    )
    """Kernels that were asked for, by the identity of their op, which is kept."""
    priced_flows: dict[tuple[CollectiveKind, float, str], tuple[Traffic, int]] = field(
        init=False, repr=False, compare=False, default_factory=dict[Any, Any]
    )
    """Collectives that were asked for."""
    stretches: dict[object, Any] = field(
        init=False, repr=False, compare=False, default_factory=dict[object, Any]
    )
    """What templates remember (`twin.engine.layer_cache`)."""
    prices: Prices = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look up the price list once."""
        profile = self.calibration if self.host.ahead else without_launches(self.calibration)
        object.__setattr__(self, "prices", prices(self.cluster.node.gpu, profile))

    @staticmethod
    def of(
        plan: Plan, alone: Mapping[str, float] | None = None, *, by_layer: bool = False
    ) -> CostModel:
        """The costs of a plan; `alone` where the links of its folded roles are wired already."""
        scenario, parallel = plan.scenario, plan.scenario.parallel
        return CostModel(
            scenario.cluster,
            with_scaling(scenario.calibration, scenario.train.fp8_scaling),
            plan.placements,
            alone or _alone(plan),
            parallel.collectives,
            parallel.zero,
            parallel.reshard_after_forward,
            _spread(plan),
            shape_of(scenario).expert_load,
            _expert_rate(scenario),
            parallel.overlap_tensor,
            scenario.train.sent_bytes,
            parallel.sequence_copies,
            parallel.shard_copies,
            scenario.software is not None and scenario.software.copies_gathered,
            by_layer,
            host=host_costs(scenario, plan.placements),
        )

    @property
    def pieces(self) -> int:
        """Into how many a collective over tensor ranks is cut, with the product beside it."""
        return self.placements["tensor"].size

    def agree(self, placement: Placement) -> tuple[Traffic, int]:
        """Traffic and latency (ns) of an all-reduce of a few numbers: up and down a binary tree,
        NVLink inside the nodes and the fabric between them (NCCL's trees for small messages); its
        bytes do not matter."""
        inside, nodes = placement.per_node, placement.size / placement.per_node
        flow = Traffic(nvlink_hops=2 * ceil(log2(inside)), nic_hops=2 * ceil(log2(nodes)))
        fabric = self.cluster.fabric
        far = not placement.in_one_pod and self.cluster.nodes > fabric.nodes_per_leaf
        _, beside = self.priced(flow)
        return flow, beside + far * nanoseconds(2 * fabric.distance)

    def forward(self, op: Op) -> float:
        """Seconds of an op's forward kernels."""
        return self.kernels(op, "forward").seconds

    def input_gradient(self, op: Op) -> float:
        """Seconds of the kernels for the gradient of an op's input."""
        return self.kernels(op, "backward").seconds

    def weight_gradient(self, op: Op) -> float:
        """Seconds of the kernels for the gradient of an op's weight."""
        return self.kernels(op, "weight").seconds

    def kernels(self, op: Op, part: Part, count: int | None = None) -> Kernels:
        """The kernels of one part of an op, forward, of the input's or of the weight's gradient:
        whole, or so many of the pieces of its rows, which the host launches with one call."""
        key = id(op), part, count
        if (known := self.priced_ops.get(key)) is None:
            known = self.priced_ops[key] = op, self._kernels(op, part, count)
        return known[1]

    def _kernels(self, op: Op, part: Part, count: int | None) -> Kernels:
        cost, times = self.cost(op, part, cut=count is not None), 1 if count is None else count
        seconds = times * cost.seconds
        return Kernels(
            seconds,
            seconds * cost.sm_bound,
            self.host.op(op, part),
            self._imbalance(op, part, cost),
        )

    def _imbalance(self, op: Op, part: Part, cost: Price) -> float:
        """Seconds that the fullest rank takes longer than the mean one."""
        if op.load == 1.0:
            return 0.0
        return max(0.0, cost.seconds - self.mean_cost(op, part).seconds)

    def mean_cost(self, op: Op, part: Part) -> Price:
        """What one part of an op costs the mean rank of its expert group."""
        work = of_mean(self.host.run(op, part, getattr(op, part)), op.load)
        return self.prices(op.kind, work, part != "forward")

    def copied(
        self, item: Exchange, kind: CollectiveKind, *, backward: bool, cut: bool = False
    ) -> Work:
        """The copy of what tensor ranks gathered, or are to sum: torch.cat of chunks
        (`_functional_collectives.all_gather_tensor`, `reduce_scatter_tensor`). In pieces a gather
        writes in order, and at the end all ranks' results are summed (`_symmetric_memory`)."""
        cats = item.group == "tensor" and kind in ("all_gather", "reduce_scatter")
        if not self.sequence_copies or not cats or (cut and kind == "all_gather"):
            return Work()
        return Work(0.0, item.payload(backward) * (1 + 1 / self.pieces if cut else 2), 1)

    def repacked(self, moved: float) -> Kernels:
        """The kernel that copies parameters or gradients between the buffer of a collective and
        their own, with so many bytes read and written (PyTorch's `split_with_sizes_copy` and
        `_chunk_cat`)."""
        if not self.copies_gathered or not moved:
            return NOTHING
        cost = self.prices("bandwidth", Work(0.0, moved, 1), False)
        return Kernels(cost.seconds, 0.0, self.host.copy())

    def reordered(
        self, item: Exchange, kind: CollectiveKind, *, backward: bool, cut: bool = False
    ) -> Kernels:
        """The kernel of that copy."""
        work = self.copied(item, kind, backward=backward, cut=cut)
        if not work.kernels:
            return NOTHING
        cost = self.prices("bandwidth", work, False)
        return Kernels(cost.seconds, cost.seconds * cost.sm_bound, self.host.copy())

    def cost(self, op: Op, part: Part, *, cut: bool = False) -> Price:
        """What one part of an op costs, whole or one piece of it."""
        work: Work = getattr(op, part)
        own = piece(work, self.pieces) if cut else self.host.run(op, part, work)
        return self.prices(op.kind, own, part != "forward")

    def collective(self, kind: CollectiveKind, size: float, group: str) -> tuple[Traffic, int]:
        """Traffic per rank and latency (ns) of a collective of `size` bytes in a group of the given
        kind."""
        key = kind, size, group
        if (known := self.priced_flows.get(key)) is None:
            known = self.priced_flows[key] = self._collective(kind, size, group)
        return known

    def _collective(self, kind: CollectiveKind, size: float, group: str) -> tuple[Traffic, int]:
        placement = self.placements[group]
        if group == "expert" and self.spread is not None:
            # The spread says itself how much more the fullest rank gets.
            own = size / self.expert_load
            flow = deepep(own, self.spread, placement)
            lag = sm_lag(arriving(own, self.spread), self.expert_rate, flow, self.cluster)
            flow, beside = self.priced(flow, placement)
            return flow, beside + nanoseconds(lag)
        copies = self.shard_copies if group in REPLICAS else 1
        found, lag = Traffic(), 0
        for one, part, place in phases(kind, size, placement, copies):
            flow, beside = self.priced(self.flow(one, part, place), place)
            found, lag = found + flow, lag + beside
        return found, lag

    def in_pieces(self, kind: CollectiveKind, size: float, group: str) -> tuple[Traffic, int]:
        """The same of one whose pieces go from rank to rank, so by a ring whatever the choice."""
        placement = self.placements[group]
        return self.priced(traffic(kind, size, placement), placement)

    def flow(self, kind: CollectiveKind, size: float, placement: Placement) -> Traffic:
        """The traffic of a collective by the run's choice of algorithm."""
        return chosen(self.cluster, self.choice, kind, size, placement)

    def priced(self, flow: Traffic, placement: Placement | None = None) -> tuple[Traffic, int]:
        """A traffic with what it takes beside its bytes (ns)."""
        return flow, nanoseconds(serial(flow, self.cluster, placement))


def _spread(plan: Plan) -> Spread | None:
    """How a token's experts spread over the expert group, where there is one."""
    placement = plan.placements.get("expert")
    return None if placement is None else expert_spread(plan.scenario, placement)


def _expert_rate(scenario: Scenario) -> float | None:
    """Of DeepEP's kernels; HybridEP's leave the copies to engines of the SMs."""
    profile = scenario.calibration
    if scenario.parallel.dispatcher != "deepep" or profile.expert_sm_rate is None:
        return None
    return profile.expert_sms * profile.expert_sm_rate or None


def _alone(plan: Plan) -> Mapping[str, float]:
    wired = rates(plan.scenario.cluster, plan.scenario.calibration)
    return alone(seats(plan), wired)
