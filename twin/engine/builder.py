"""A template while it is made: kernels become segments, collectives become steps.

Neighbouring kernels are fused into one segment; a collective closes the segment. Each step waits
for the one before, but for what runs beside a collective.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from twin.arch.kernels import ELEMENT
from twin.arch.ops import CollectiveKind, Exchange, Layer, Weights
from twin.engine.cost_model import NOTHING, CostModel, Kernels, nanoseconds
from twin.engine.host import in_thread, with_host
from twin.engine.program import (
    COMPUTE,
    CONTEXT,
    DATA,
    EXPERT,
    GATHER,
    IMBALANCE,
    TENSOR,
    Group,
    Step,
    Template,
)
from twin.optimizers.base import dense_weights
from twin.planning.memory import PARAMETER_BYTES

_STREAM_OF: Final = {
    "tensor": TENSOR,
    "context": CONTEXT,
    "expert": EXPERT,
    "expert_tensor": EXPERT,
}
"""The stream of a layer's collectives, by their group."""
_NAMES: Final[dict[CollectiveKind, str]] = {
    "all_gather": "all_gather_weights",
    "reduce_scatter": "reduce_scatter_gradients",
    "all_reduce": "all_reduce_gradients",
}


@dataclass(slots=True)
class Builder:
    """Collects kernels into segments and collectives into steps; each waits for the one before."""

    costs: CostModel
    steps: list[Step] = field(default_factory=list[Step])
    name: str = ""
    kernels_of: str = "forward"
    """The pass that kernels belong to: the name of the last segment."""
    pending: Kernels = NOTHING
    waiting: bool = False
    """Whether the open segment runs while the exchange before it is on its way."""
    tail: tuple[int, ...] = ()
    """Steps that the next one waits for."""
    before: tuple[int, ...] = ()
    """What the last exchange waited for."""
    owed: Kernels = NOTHING
    """What follows the collective that runs beside."""
    aside: tuple[int, ...] = ()
    """A collective that runs beside the segments until `join`."""
    ends: list[int] = field(default_factory=list[int])
    """Where layers are gathered: the pass's first kernel, then the last one of each layer."""
    reducing: tuple[int, ...] = ()
    """Reductions of the gradients of the layer before."""
    layer: int = 0
    """Place in the chunk of the layer that is added."""
    rows: tuple[tuple[int, float], ...] = ()
    """Of the open segment, as of a step."""

    def compute(self, name: str, kernels: Kernels, *, aside: bool = False) -> None:
        """Add kernels under a segment's name; those `aside` do not wait for the exchange before
        them."""
        self.kernels_of = name
        if (name, aside) != (self.name, self.waiting):
            self.close()
            self.name, self.waiting = name, aside
        self.pending += kernels
        if kernels.imbalance and self.costs.by_layer:
            self.rows = (*self.rows, (self.layer, kernels.imbalance * 1e9))

    def ask(self) -> None:
        """The host waits for the open segment."""
        if self.name:
            self.close()
            self.steps[-1] = replace(self.steps[-1], asks="end")

    def close(self) -> None:
        """End the open segment. What the fullest rank takes longer in it is a step of its own: the
        others wait for that at their next exchange."""
        if self.name:
            done = self.pending
            bound = done.sm_bound / done.seconds if done.seconds else 0.0
            late = nanoseconds(done.imbalance)
            step = Step(
                self.name,
                COMPUTE,
                nanoseconds(done.seconds) - late,
                self.before if self.waiting else self.tail,
                host_ns=done.host * 1e9,
                # Segments of one share in a thousand are alike: fewer paces to work out.
                sm_bound=round(bound, 3),
                rows=self.rows,
            )
            place = self._append(step)
            self.tail = (*self.tail, place) if self.waiting else (place,)
            if late:
                fullest = replace(
                    step, name=IMBALANCE, duration_ns=late, after=(place,), host_ns=0.0
                )
                self.tail = (*self.tail[:-1], self._append(fullest))
        self.name, self.pending, self.waiting, self.rows = "", NOTHING, False, ()

    def exchange(
        self, item: Exchange, kind: CollectiveKind, *, backward: bool = False, cut: bool = False
    ) -> None:
        """Add a collective of the layer after the open segment, whole or `cut` into pieces."""
        copy = NOTHING if cut else self.costs.reordered(item, kind, backward=backward)
        if kind == "reduce_scatter":
            self.copy(copy)
        if (step := self._collective(item, kind, backward=backward, cut=cut)) is not None:
            self.before, self.tail = self.steps[step].after, (step,)
        if kind == "all_gather":
            self.copy(copy)

    def copy(self, kernels: Kernels) -> None:
        """Add what brings a tensor into order, if anything does."""
        if kernels.host or kernels.seconds:
            self.compute(self.kernels_of, kernels)

    def beside(self, item: Exchange, kind: CollectiveKind) -> None:
        """Add a collective beside the segments that follow, until one that joins it."""
        if (step := self._collective(item, kind, backward=True)) is not None:
            self.aside = (*self.aside, step)
            copy = self.costs.reordered(item, kind, backward=True)
            self.owed += copy

    def join(self) -> None:
        """What follows waits for the collective beside it."""
        if self.aside:
            self.close()
            self.tail, self.aside = (*self.tail, *self.aside), ()
            self.copy(self.owed)
            self.owed = NOTHING

    def gather(self, layer: Layer, name: str) -> None:
        """Gather a layer's sharded parameters while the layer before it runs, so that two layers
        are whole at most. The first of a pass waits for its turn: an FSDP root's gathers wait for
        the kernels before it (torch, `_root_pre_forward`)."""
        if self._gather(_bytes_of(layer.used, PARAMETER_BYTES), name, GATHER):
            self.copy(self.costs.repacked(2.0 * PARAMETER_BYTES * layer.used.total))

    def gather_bucket(self, sizes: Mapping[Group, float], name: str) -> None:
        """Gather the new weights of a bucket of layers while the bucket before it runs."""
        if self.ends:
            self.end_layer()
        self._gather(sizes, name, DATA)

    def _gather(self, sizes: Mapping[Group, float], name: str, stream: int) -> tuple[int, ...]:
        if not self.ends:
            self.compute(name, NOTHING)
            self.close()
            self.ends.append(len(self.steps) - 1)
        self.close()
        after = (self.ends[max(0, len(self.ends) - 2)],)
        gathers = self._over_replicas("all_gather", sizes, stream, after)
        self.tail = (*self.tail, *gathers)
        return gathers

    def end_layer(self) -> None:
        """The kernels of a gathered layer are all there."""
        self.close()
        self.ends.append(max(i for i, step in enumerate(self.steps) if step.stream == COMPUTE))

    def reduce(self, layer: Layer) -> None:
        """Reduce-scatter the gradients of a layer behind its kernels. The next layer's wait for the
        reduction before this one, so that gradients of two layers are whole at most (as in torch's
        FSDP2). One kernel casts bf16 gradients on their way into its buffer."""
        width = ELEMENT + self.costs.gradient_bytes
        self.copy(self.costs.repacked(float(width * layer.learned.total)))
        self.close()
        sizes = _bytes_of(layer.learned, self.costs.gradient_bytes)
        reducing = self._over_replicas("reduce_scatter", sizes, DATA, self.tail)
        self.tail, self.reducing = (*self.tail, *self.reducing), reducing

    def reduce_bucket(self, sizes: Mapping[Group, float]) -> None:
        """Reduce the gradients of a bucket of layers behind their kernels; no kernel waits."""
        self.close()
        kind = "reduce_scatter" if self.costs.zero else "all_reduce"
        self._over_replicas(kind, sizes, DATA, self.tail)

    def _over_replicas(
        self,
        kind: CollectiveKind,
        sizes: Mapping[Group, float],
        stream: int,
        after: tuple[int, ...],
    ) -> tuple[int, ...]:
        """A collective of so many bytes in each group."""
        found: list[int] = []
        for group, size in sizes.items():
            if size and self.costs.placements[group].size > 1:
                flow, delay = self.costs.collective(kind, size, group)
                sms = self.costs.calibration.collective_sms
                issued = self.costs.host.exchange(_NAMES[kind]) * 1e9
                step = Step(_NAMES[kind], stream, delay, after, flow, group, issued, sms=sms)
                found.append(self._append(step))
        return tuple(found)

    def _collective(
        self, item: Exchange, kind: CollectiveKind, *, backward: bool, cut: bool = False
    ) -> int | None:
        size, costs = item.payload(backward), self.costs
        priced = costs.in_pieces if cut or item.circle else costs.collective
        flow, delay = priced(kind, size, item.place)
        if flow.nvlink_bytes == 0 and flow.nic_bytes == 0:
            return None
        self.close()
        profile, stream = costs.calibration, _STREAM_OF[item.group]
        sms = profile.expert_sms if item.group == "expert" else profile.collective_sms
        # Copy engines pass pieces on inside a node; NICs are fed, and sums made, by kernels.
        copied = cut and kind == "all_gather" and flow.nic_bytes == 0
        step = Step(
            *(item.name, stream, delay, self.tail, flow, item.group),
            host_ns=1e9 * costs.host.exchange(item.name, self._calls(item, cut), backward=backward),
            sms=0 if copied else sms,
            rows=((self.layer, 0.0),) if costs.by_layer and item.group == "expert" else (),
            asks=self._asks(item, backward=backward),
        )
        return self._append(step)

    def _calls(self, item: Exchange, cut: bool) -> int:
        """Transfers that the host issues for an exchange."""
        return max(1, (self.costs.pieces if cut else item.circle) - 1)

    def _asks(self, item: Exchange, *, backward: bool) -> Literal["", "start", "end"]:
        """Whether the host waits for an exchange: a dispatcher that merges copies counts rows in
        the dispatch itself, and its backward knows them."""
        counted = item.name != "dispatch" or self.costs.spread is not None
        if backward or not counted:
            return ""
        return self.costs.host.asks(item.name, asks=item.asks)

    def _append(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def done(self) -> Template:
        """The finished template; an empty chunk still passes its message on, in no time."""
        self.close()
        if not self.steps:
            self._append(Step("empty", COMPUTE, 0, ()))
        host = self.costs.host
        self.steps[-1] = replace(
            self.steps[-1], host_ns=self.steps[-1].host_ns + host.microbatch * 1e9
        )
        if not host.ahead:
            return in_thread(tuple(self.steps), host.sync_ns)
        return with_host(tuple(self.steps), self.costs.alone, host.sync_ns)


def _bytes_of(weights: Weights, width: int) -> dict[Group, float]:
    """Bytes of dense weights, and of experts, by who has the same."""
    return {"data": width * dense_weights(weights), "expert_data": width * weights.expert}
