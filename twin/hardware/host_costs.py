"""Seconds of the host thread for everything that it issues: counts and seconds are those of the
software stack, `twin.engine.host` says when somebody waits for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from statistics import NormalDist
from typing import Literal

from twin.arch.ops import Exchange, Layer, Op, Work
from twin.spec.calibration import CalibrationSpec
from twin.spec.software import CollectorSpec, HostThreadSpec, OperationSpec

Part = Literal["forward", "backward", "weight"]
"""Forward, the gradient of the input, and that of the weight."""


@dataclass(frozen=True, slots=True)
class HostCosts:
    """Seconds of the host for everything that it issues. Without a software stack every kernel
    that the twin counts takes the calibration's `dispatch`."""

    calibration: CalibrationSpec
    software: HostThreadSpec | None = None
    cpu: float = 1.0
    """Time of the node's CPU over that of the CPU of an H100 server."""
    ranks: int = 1
    """Ranks that wait for one another in a layer."""
    casts_in_calls: bool = False
    """Casts to FP8 are launched by the call of the product they are for, as in Transformer Engine:
    one costs the host nothing more, a loop over experts what its kernels add on the device."""
    pass_messages: float = 0.0
    """Processor seconds of the messages that a pass sends and receives, a mean over chunks; they
    count where host and device are one thread, as other threads have its core meanwhile."""

    @property
    def slowness(self) -> float:
        """Time of an item over what the software says; of ranks that exchange, on the slowest."""
        if self.software is None:
            return self.cpu
        slowest = 1.0 + self.software.rank_spread * largest(self.ranks)
        return self.cpu * self.software.slowness * slowest

    @property
    def ahead(self) -> bool:
        """Whether the host issues while the device runs: on a CPU they are one thread."""
        return self.software is None or self.software.ahead

    @property
    def sync_ns(self) -> float:
        """What it takes the host to see that the device has come to a point, and to go on."""
        return 0.0 if self.software is None else self.software.sync * 1e9

    def op(self, op: Op, part: Part) -> float:
        """Seconds to issue one part of an op."""
        work: Work = getattr(op, part)
        if not work.kernels:
            return 0.0
        if self.software is None:
            kernels: float = work.kernels
            if self.casts_in_calls and op.kind == "cast":
                kernels = self._looped(kernels) - 1.0
            return kernels * self.calibration.dispatch
        if self._graphed(op.name, op.kind):
            return 0.0
        own = self._operation(op)
        if own is None:
            each = self.software.call if part == "forward" else self.software.gradient
            return self.slowness * each * work.kernels
        if part == "forward":
            each = _turns(own, op, work) * self._items(own.each_forward)
            return self.slowness * (self._items(own.forward) + each)
        each = _turns(own, op, work) * self._items(own.each_backward)
        whole = self.slowness * (self._items(own.backward) + each)
        return whole / 2 if op.weight.kernels or _frozen(op) else whole

    def run(self, op: Op, part: Part, work: Work) -> Work:
        """A work with the kernels that the software runs for it; of products as many as counted."""
        own = self._operation(op)
        if own is None or work.product is not None or not work.kernels:
            return work
        kernels = own.forward_kernels if part == "forward" else own.backward_kernels
        if kernels is None:
            return work
        return replace(work, kernels=kernels / 2 if op.weight.kernels else kernels)

    def copy(self) -> float:
        """Seconds to issue a copy."""
        if self.software is None:
            return self.calibration.dispatch
        return self.slowness * self.software.call

    def exchange(self, name: str, pieces: int = 1, *, backward: bool = False) -> float:
        """Seconds to issue a collective, whole or in pieces that one call launches."""
        if self.software is None:
            return self._looped(pieces) * self.calibration.dispatch
        if self._graphed(name):
            return 0.0
        own = self.software.operations.get(name)
        taken = pieces * self.software.collective
        if own is not None:
            taken += self._items(own.backward if backward else own.forward)
        return self.slowness * taken

    def asks(self, name: str, *, asks: bool) -> Literal["", "start", "end"]:
        """Whether the host waits for an exchange of the layer: for its end, or until it could
        start."""
        if self.software is None:
            return "end" if asks else ""
        if name not in self.software.waits:
            return ""
        return "end" if asks else "start"

    def waits_for(self, name: str) -> bool:
        """Whether the host waits for an operation, or for messages."""
        return self.software is not None and name in self.software.waits

    @property
    def microbatch(self) -> float:
        """Seconds of the host for a pass as a whole: its messages and the schedule."""
        if self.software is None:
            return 0.0
        taken = self._items(self.software.each_microbatch)
        if not self.ahead:
            taken += self.pass_messages
        return self.slowness * taken

    @property
    def checkpoint(self) -> float:
        """Seconds of the host for a layer that is computed again, beside its operations."""
        if self.software is None:
            return 0.0
        return self.slowness * self._items(self.software.each_checkpoint)

    def step(self, layers: Iterable[Layer]) -> float:
        """Seconds of the host for a step as a whole, with these layers on the rank."""
        if self.software is None:
            return 0.0
        own, each = self._items(self.software.each_step), self._items(self.software.each_weight)
        for layer in layers:
            own += each * sum(one.count for one in layer.matrices)
            known = (self._operation(op) for op in layer.items if isinstance(op, Op))
            own += sum(self._items(one.update) for one in known if one is not None)
        return self.slowness * own

    @property
    def collector(self) -> CollectorSpec | None:
        """Python's garbage collection."""
        return None if self.software is None else self.software.collector

    def kept(self, item: Op | Exchange) -> float:
        """Python's objects that an item of a layer keeps until its backward; the replay of a graph
        makes none."""
        if self.collector is None or self._graphed(item.name):
            return 0.0
        own = self._operation(item)
        if own is None or (isinstance(item, Op) and self._graphed(item.kind)):
            return 0.0
        turns = _turns(own, item, item.forward) if isinstance(item, Op) else 0
        return sum(
            number * (own.forward.get(name, 0.0) + turns * own.each_forward.get(name, 0.0))
            for name, number in self.collector.kept.items()
        )

    def _graphed(self, *names: str) -> bool:
        graphed = () if self.software is None else self.software.graphed
        return "all" in graphed or not set(names).isdisjoint(graphed)

    def _operation(self, item: Op | Exchange) -> OperationSpec | None:
        if self.software is None:
            return None
        known = self.software.operations
        return known.get(item.name) or (known.get(item.kind) if isinstance(item, Op) else None)

    def _items(self, counts: Mapping[str, float]) -> float:
        assert self.software is not None, "counts belong to a software stack"
        items = self.software.items
        return sum(count * items[name] for name, count in counts.items())

    def _looped(self, kernels: float) -> float:
        """What one call whose loop in C++ launches so many kernels takes of the host, in launches
        of PyTorch: one, and of each further kernel what it adds on the device."""
        profile = self.calibration
        further = min(1.0, profile.launch / profile.dispatch) if profile.dispatch else 0.0
        return 1.0 + max(0.0, kernels - 1.0) * further


def _frozen(op: Op) -> bool:
    """Whether a product's weight has no gradient: that of its input is one of the two products that
    stacks count."""
    return op.kind == "gemm" and op.forward.product is not None and not op.weight.kernels


def _turns(own: OperationSpec, op: Op, work: Work) -> float:
    """How often a loop in the framework runs: for each expert of a product, each kernel of a
    cast, each block of queries of attention."""
    if op.forward.product is not None:
        return op.forward.product.groups
    if op.kind == "cast":
        return work.kernels
    blocks = (size for longest, size in own.query_blocks if op.queries <= longest)
    block = next(blocks, None)
    return 1 if block is None else ceil(op.queries / block)


@cache
def largest(ranks: int) -> float:
    """The largest of so many standard normal numbers, expected (Blom 1958, Statistical Estimates
    and Transformed Beta-Variables): sums over a layer's hundreds of calls are nearly normal."""
    return NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0
