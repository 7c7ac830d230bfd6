"""Seconds that a pass of one micro-batch keeps each part of a rank busy in a layer, by which layers
are split over chunks.

Kernels, the host thread, copies to host memory, and what ZeRO gathers and reduces run beside each
other. So a stage takes as long as its busiest part. Kernels wait for the exchanges between them:
kernels and exchanges in a row are one part more. Exchanges of experts hide where passes run in
pairs; those over tensor ranks hide where `overlap_tensor` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Final, Literal, TypeAlias, TypeVar

from twin.arch.ops import CollectiveKind, Exchange, Layer, Op, Weights, Work, backwards
from twin.arch.recompute import again, checkpointed
from twin.collectives.deepep import deepep
from twin.collectives.spread import Spread
from twin.collectives.traffic import alone, chosen, phases
from twin.hardware.host_costs import HostCosts
from twin.hardware.roofline import Prices, prices, with_scaling
from twin.network.links import capacity, sharers
from twin.network.placement import Placement
from twin.optimizers.base import dense_weights
from twin.planning.experts import expert_load, expert_spread
from twin.planning.footprint import PARAMETER_BYTES, sent_by_op
from twin.planning.memory import boundary_bytes
from twin.planning.mesh import REPLICAS
from twin.planning.pair_times import (
    CONTEXT,
    EXPERT,
    GATHER,
    REDUCE,
    TENSOR,
    Piece,
    Pieces,
)
from twin.planning.pair_times import KERNELS as RUNS
from twin.planning.stages import Busy
from twin.scenario import Scenario
from twin.schedules.base import Pass

T = TypeVar("T")

KERNELS: Final = 0
"""The place of kernels in `Busy`; the host, copies, kernels with the exchanges that they wait for,
and ZeRO's gathers and reductions follow."""

PassParts: TypeAlias = tuple[float, ...]
"""Seconds of a pass, by the places below."""
WAITED, PAIRED, HOST, TO_HOST, FROM_HOST, SOCKET, BESIDE, GATHERED, SHARDS, STOPS = range(10)
"""Kernels and exchanges that they wait for; exchanges that only a pair hides; the host thread;
copies each way, and the memory of a socket, which both ways share; exchanges over tensor ranks
beside kernels; ZeRO's gathers; these and its reductions; the host thread once more, of layers in
which it waits for the device."""
Way: TypeAlias = Literal["forward", "backward", "weight"]
BESIDE_KERNELS: Final = 2
WORKS: Final = {"tensor": TENSOR, "context": CONTEXT, "expert": EXPERT, "expert_tensor": EXPERT}
"""The work that exchanges of a group are."""
PASSES: Final[tuple[Pass, ...]] = ("F", "B", "I", "W")
"""The passes of a layer, as `Scale.passes` orders them."""


def each_once(layers: Sequence[Layer], of: Callable[[Layer], T]) -> list[T]:
    """What a function gives for every layer. Layers of one kind are one shared object: it is asked
    once for each kind."""
    known = {key: of(layer) for key, layer in {id(layer): layer for layer in layers}.items()}
    return [known[id(layer)] for layer in layers]


@dataclass(frozen=True, slots=True)
class Scale:
    """What weighs the layers of a scenario."""

    scenario: Scenario
    placements: Mapping[str, Placement]
    host: HostCosts
    spread: Spread | None
    """Of a token's experts, where copies for one node travel as one."""
    known: dict[int, tuple[Layer, tuple[PassParts, ...]]] = field(
        default_factory=dict[int, tuple[Layer, tuple[PassParts, ...]]]
    )
    """Passes of layers, each weighed once."""

    @staticmethod
    def of(scenario: Scenario, placements: Mapping[str, Placement]) -> Scale:
        """With the run's host and dispatcher."""
        spread = expert_spread(scenario, placements["expert"])
        return Scale(scenario, placements, host_costs(scenario, placements), spread)

    def weigh(self, layers: Sequence[Layer]) -> list[Busy]:
        """The times of every layer."""
        return each_once(layers, self.busy)

    def busy(self, layer: Layer) -> Busy:
        """The times of one layer: forward, backward, and what the memory policy runs again."""
        forward, backward, *_ = self.passes(layer)
        parts = tuple(map(add, forward, backward))
        kernels = layer_seconds(layer, self.scenario)
        if not self.host.ahead:
            kernels += _issued(layer, self.host, "F")
            kernels += _issued(layer, self.host, "B")
        copies = max(parts[TO_HOST], parts[SOCKET])
        return kernels, parts[HOST], copies, parts[WAITED], parts[SHARDS]

    def passes(self, layer: Layer) -> tuple[PassParts, ...]:
        """The parts of each of `PASSES` through one layer."""
        if id(layer) not in self.known:
            self.known[id(layer)] = layer, tuple(self._pass(layer, kind) for kind in PASSES)
        return self.known[id(layer)][1]

    def _pass(self, layer: Layer, kind: Pass) -> PassParts:
        kernels = _kernels(layer, self.scenario, kind)
        issued = _issued(layer, self.host, kind)
        if not self.host.ahead:
            kernels, issued = kernels + issued, 0.0
        copied, socket = _copied(layer, self.scenario) if kind != "W" else (0.0, 0.0)
        waited, paired, beside = self._exchanged(layer, kind)
        return (
            kernels + waited,
            paired,
            issued,
            copied if kind == "F" else 0.0,
            copied if kind in "BI" else 0.0,
            socket,
            beside,
            gathered := self._gathered(layer, kind),
            gathered + self._reduced(layer, kind),
            self._stops(layer, kind, issued),
        )

    def _stops(self, layer: Layer, kind: Pass, issued: float) -> float:
        """Seconds of the host in a pass in which it waits for the device."""
        asked = _asked(layer, self.host, kind) if self.host.ahead else 0
        return issued + asked * self.host.sync_ns / 1e9 if asked else 0.0

    def pieces(self, layer: Layer, kind: Pass) -> Pieces:
        """What a pass through a layer is made of, in its order, as pairs take it apart."""
        profile, priced = self.scenario.calibration, priced_for(self.scenario)
        found: list[Piece] = []
        if gathered := self._gathered(layer, kind):
            found.append(Piece(GATHER, gathered, sms=profile.collective_sms))
        for item, way in walked(layer, kind):
            if isinstance(item, Op):
                price = priced(item.kind, work_of(item, way), way != "forward")
                same = found and found[-1].work == RUNS and found[-1].aside == item.aside
                before = found.pop() if same else Piece(RUNS, 0.0, aside=item.aside)
                bound = before.bound + price.seconds * price.sm_bound
                found.append(before._replace(seconds=before.seconds + price.seconds, bound=bound))
            elif self._hidden(item, way, kind) < BESIDE_KERNELS and (
                taken := self._taken(item, way)
            ):
                asks = self.host.ahead and self.host.asks(item.name, asks=item.asks) == "end"
                experts = item.group == "expert"
                wait = profile.expert_wait if experts else 0.0
                sms = profile.expert_sms if experts else profile.collective_sms
                piece = Piece(WORKS[item.group], taken + wait, sms=sms)
                found.append(piece._replace(asked=asks and way == "forward"))
        if reduced := self._reduced(layer, kind):
            found.append(Piece(REDUCE, reduced, sms=profile.collective_sms))
        return tuple(found)

    def _exchanged(self, layer: Layer, kind: Pass) -> tuple[float, float, float]:
        """Seconds of a layer's exchanges, each on idle links: those that kernels wait for, those
        that only pairs hide, and those beside kernels."""
        found = [0.0, 0.0, 0.0]
        for item, way in walked(layer, kind):
            if isinstance(item, Exchange):
                found[self._hidden(item, way, kind)] += self._taken(item, way)
        return found[0], found[1], found[2]

    def _taken(self, item: Exchange, way: Way) -> float:
        """Seconds of an exchange, on idle links."""
        kind = item.forward if way == "forward" else item.backward
        return self.seconds(kind, item.payload(way == "backward"), item.place)

    def _hidden(self, item: Exchange, way: Way, kind: Pass) -> int:
        """Whether an exchange of a pass runs beside kernels: 0 no, 1 of pairs, 2 always."""
        parallel = self.scenario.parallel
        if item.circle:
            return BESIDE_KERNELS
        if item.for_weights:
            # Beside the input's gradient, where that is of the same pass.
            return BESIDE_KERNELS if kind == "B" else 0
        if item.group == "tensor":
            beside = parallel.overlap_tensor == "pieces"
            # Sums of the input's gradient run beside the weights'.
            beside |= (way, kind, parallel.overlap_tensor) == ("backward", "B", "bulk")
            return BESIDE_KERNELS if beside else 0
        return 1 if item.group != "context" and parallel.schedule.pairs else 0

    def _gathered(self, layer: Layer, kind: Pass) -> float:
        """Seconds in which ZeRO gathers a layer's weights."""
        parallel = self.scenario.parallel
        if parallel.zero < 3 or kind == "W" or (kind != "F" and not parallel.reshard_after_forward):
            return 0.0
        return self.over_replicas("all_gather", layer.used, PARAMETER_BYTES)

    def _reduced(self, layer: Layer, kind: Pass) -> float:
        """Seconds in which ZeRO reduces a layer's gradients."""
        if self.scenario.parallel.zero < 2 or kind not in "BW":
            return 0.0
        width = self.scenario.train.sent_bytes
        return self.over_replicas("reduce_scatter", layer.learned, width)

    def over_replicas(self, kind: CollectiveKind, weights: Weights, width: float) -> float:
        """Seconds of a collective of weights over the ranks that hold the same ones, with so many
        bytes each."""
        dense = self.seconds(kind, width * dense_weights(weights), "data")
        return dense + self.seconds(kind, width * weights.expert, "expert_data")

    def seconds(self, kind: CollectiveKind | None, size: float, group: str) -> float:
        """Seconds of a collective over a group, on idle links."""
        placement, parallel = self.placements[group], self.scenario.parallel
        if kind is None or placement.size == 1 or not size:
            return 0.0
        if group == "expert" and self.spread is not None:
            # The spread says itself how much more the fullest rank gets.
            flow = deepep(size / expert_load(self.scenario), self.spread, placement)
            return alone(flow, self.scenario.cluster, placement)
        copies = parallel.shard_copies if group in REPLICAS else 1
        return sum(self._alone(*one) for one in phases(kind, size, placement, copies))

    def _alone(self, kind: CollectiveKind, size: float, placement: Placement) -> float:
        cluster, choice = self.scenario.cluster, self.scenario.parallel.collectives
        return alone(chosen(cluster, choice, kind, size, placement), cluster, placement)


def host_costs(scenario: Scenario, placements: Mapping[str, Placement]) -> HostCosts:
    """What the host of a rank takes for everything that it issues."""
    return HostCosts(
        scenario.calibration,
        None if scenario.software is None else scenario.software.host,
        cpu=scenario.cluster.node.host.slowness,
        ranks=max(placements[group].size for group in ("tensor", "expert")),
        casts_in_calls=scenario.train.fp8_scaling != "block"
        or scenario.train.precision in ("nvfp4", "mxfp4"),
        pass_messages=_pass_messages(scenario, placements["pipeline"]),
    )


def _pass_messages(scenario: Scenario, placement: Placement) -> float:
    """Processor seconds of a pass's messages. Chunks have one to each neighbour: the first and the
    last have one neighbour, all others two."""
    host, parallel = scenario.software and scenario.software.host, scenario.parallel
    if not host or host.message is None or placement.size == 1:
        return 0.0
    chunks = parallel.pipeline * parallel.virtual
    neighbours = (2 * chunks - 2) / chunks
    rate = capacity(scenario.cluster, "nvlink" if placement.per_node > 1 else "nic")
    return neighbours * host.message.seconds(boundary_bytes(scenario), rate)


def layer_seconds(layer: Layer, scenario: Scenario) -> float:
    """Seconds of a layer's kernels."""
    return _kernels(layer, scenario, "F") + _kernels(layer, scenario, "B")


def priced_for(scenario: Scenario) -> Prices:
    """The price list of a scenario's kernels."""
    profile = with_scaling(scenario.calibration, scenario.train.fp8_scaling)
    return prices(scenario.cluster.node.gpu, profile)


def walked(layer: Layer, kind: Pass) -> Iterator[tuple[Op | Exchange, Way]]:
    """A layer's operations and exchanges in the order of a pass, with what the memory policy runs
    again."""
    if kind == "F":
        for item in layer.items:
            yield item, "forward"
        return
    back = kind in "BI"
    part = checkpointed(layer, layer.policy.recompute) if back else None
    repeated = again(layer, layer.policy.recompute) if back else frozenset[str]()
    for item in part.items if part is not None else ():
        yield item, "forward"
        repeated -= {item.name}
    for item in backwards(layer.items):
        late = isinstance(item, Exchange) and item.for_weights
        if back and item.name in repeated and isinstance(item, Op):
            yield item, "forward"
        if (kind == "B" or late == (kind == "W")) and (back or late):
            yield item, "backward"
        if kind in "BW" and isinstance(item, Op):
            yield item, "weight"


def _kernels(layer: Layer, scenario: Scenario, kind: Pass) -> float:
    """Seconds of a layer's kernels in one pass."""
    priced, total = priced_for(scenario), 0.0
    for op, way in walked(layer, kind):
        if isinstance(op, Op):
            total += priced(op.kind, work_of(op, way), way != "forward").seconds
    return total


def work_of(op: Op, way: Way) -> Work:
    """The work of an operation in one direction."""
    return {"forward": op.forward, "backward": op.backward, "weight": op.weight}[way]


def _issued(layer: Layer, host: HostCosts, kind: Pass) -> float:
    """Seconds in which the host issues a layer's kernels and collectives in one pass."""
    back = kind in "BI"
    part = checkpointed(layer, layer.policy.recompute) if back else None
    repeated = again(layer, layer.policy.recompute) if back else frozenset[str]()
    total = 0.0 if part is None else host.checkpoint
    for item in (*(layer.items if kind == "F" else ()), *(part.items if part else ())):
        if isinstance(item, Op):
            total += host.op(item, "forward")
        elif item.forward:
            total += host.exchange(item.name)
    for item in layer.items if kind != "F" else ():
        if isinstance(item, Op):
            total += host.op(item, "backward") if back else 0.0
            total += host.op(item, "weight") if kind in "BW" else 0.0
            alone_again = item.name in repeated and (part is None or item not in part.items)
            total += host.op(item, "forward") if alone_again else 0.0
        elif item.backward and back:
            total += host.exchange(item.name, backward=True)
    return total


def _asked(layer: Layer, host: HostCosts, kind: Pass) -> int:
    """How often the host waits for the device in one pass."""
    part = checkpointed(layer, layer.policy.recompute) if kind in "BI" else None
    total = 0
    for item in (*(layer.items if kind == "F" else ()), *(part.items if part else ())):
        if isinstance(item, Op):
            total += host.waits_for(item.name)
        elif item.forward:
            total += bool(host.asks(item.name, asks=item.asks))
    return total


def _copied(layer: Layer, scenario: Scenario) -> tuple[float, float]:
    """Seconds in which activations go to host memory, or come back: of the GPU's PCIe, and of the
    memory of a socket, which its GPUs share."""
    size = sum(sent_by_op(layer, layer.policy).values())
    cluster = scenario.cluster
    memory = sharers(cluster, "dram") / capacity(cluster, "dram")
    return size / capacity(cluster, "pcie"), size * memory
