"""Layers to templates: what one pass of one micro-batch through one chunk does on one rank, in
order.

Neighbouring kernels are fused into one segment; a collective closes the segment. The backward pass
walks the layers in reverse; what the memory policy does not keep is computed again first, layer by
layer, as activation checkpointing does (Chen et al. 2016; Korthikanti et al. 2022, section 4.2): a
fully recomputed layer runs its whole forward again, with its collectives; attention cores are
recomputed inside their own layer. Schedules that put weight gradients off run the backward in two
passes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from twin.arch.ops import Exchange, Layer, Op, Work
from twin.arch.recompute import again, checkpointed
from twin.engine import layer_cache
from twin.engine.buckets import NO_BUCKETS, Buckets
from twin.engine.builder import Builder
from twin.engine.cost_model import CostModel, Kernels
from twin.engine.program import Template
from twin.engine.tensor_overlap import (
    BulkSum,
    Circled,
    Direction,
    Gathered,
    Scattered,
    Unit,
    backward_units,
    cut,
    exchanges,
    forward_units,
    serves_weights,
)


def forward_pass(
    layers: Iterable[Layer], costs: CostModel, gathered: Buckets = NO_BUCKETS
) -> Template:
    """Forward of one micro-batch through a chunk, which gathers the new weights of buckets."""
    builder = Builder(costs)
    for place, layer in enumerate(layers):
        if place in gathered:
            builder.gather_bucket(gathered[place], "forward")
        add = partial(_forward_layer, layer, builder)
        builder.layer = place
        layer_cache.add(layer, "forward", builder, add)
    return builder.done()


def _forward_layer(layer: Layer, builder: Builder) -> None:
    with _whole(layer, builder, "forward", gathered=builder.costs.zero >= 3):
        _forward(layer, builder, "forward")


def backward_pass(
    layers: Iterable[Layer], costs: CostModel, reduced: Buckets = NO_BUCKETS
) -> Template:
    """Whole backward of one micro-batch through a chunk, with what its layers compute again; it
    reduces the gradients of buckets."""
    return _reversed(layers, costs, "backward", reduced)


def input_pass(layers: Iterable[Layer], costs: CostModel) -> Template:
    """Backward for the input only: what recomputation brings back stays for `weight_pass`."""
    return _reversed(layers, costs, "backward_input")


def weight_pass(
    layers: Iterable[Layer], costs: CostModel, reduced: Buckets = NO_BUCKETS
) -> Template:
    """Gradients of a chunk's weights, put off after `input_pass`, with the gathers that only they
    need; it reduces the gradients of buckets."""
    builder = Builder(costs, kernels_of="backward_weight")
    for place, layer in reversed([*enumerate(layers)]):
        add = partial(_weights_of_layer, layer, builder)
        builder.layer = place
        layer_cache.add(layer, "backward_weight", builder, add)
        if place in reduced:
            builder.reduce_bucket(reduced[place])
    return builder.done()


def _weights_of_layer(layer: Layer, builder: Builder) -> None:
    for item in reversed(layer.items):
        if isinstance(item, Op):
            if item.weight.kernels:
                builder.join()
            _compute(builder, "backward_weight", builder.costs.kernels(item, "weight"))
        elif serves_weights(item):
            builder.beside(item, "all_gather")
    if builder.costs.zero >= 2:
        builder.reduce(layer)


def recomputed(layer: Layer, costs: CostModel) -> float:
    """Seconds of the kernels that the backward pass of a layer runs again, on the mean rank."""
    recompute = layer.policy.recompute
    names, part = again(layer, recompute), checkpointed(layer, recompute)
    units = list(forward_units(part, costs.overlap)) if part else []
    pieces = cut(units)
    ops = [item for item in layer.items if isinstance(item, Op) and item.name in names]
    copied = sum(seconds for _, seconds in _copies(units, costs, "forward"))
    return copied + sum(
        kernels.seconds - kernels.imbalance
        for op in ops
        for kernels in [costs.kernels(op, "forward", costs.pieces if op.name in pieces else None)]
    )


def copies(layer: Layer, costs: CostModel, *, whole: bool) -> list[tuple[Work, float]]:
    """What a forward and a backward of a layer bring into order, and seconds of it; `whole` as of
    `backward_units`."""
    forward = forward_units(layer, costs.overlap)
    backward = backward_units(layer, costs.overlap, whole=whole)
    return [*_copies(forward, costs, "forward"), *_copies(backward, costs, "backward")]


def _copies(
    units: Iterable[Unit], costs: CostModel, direction: Direction
) -> Iterator[tuple[Work, float]]:
    backward = direction == "backward"
    for unit in units:
        cut_up = isinstance(unit, Gathered | Scattered)
        for item in exchanges(unit):
            kind = item.backward if backward else item.forward
            if kind is not None:
                work = costs.copied(item, kind, backward=backward, cut=cut_up)
                yield work, costs.reordered(item, kind, backward=backward, cut=cut_up).seconds


def _reversed(
    layers: Iterable[Layer], costs: CostModel, name: str, reduced: Buckets = NO_BUCKETS
) -> Template:
    builder = Builder(costs, kernels_of=name)
    for place, layer in reversed([*enumerate(layers)]):
        add = partial(_reversed_layer, layer, builder, name)
        builder.layer = place
        layer_cache.add(layer, name, builder, add)
        if place in reduced:
            builder.reduce_bucket(reduced[place])
    return builder.done()


def _reversed_layer(layer: Layer, builder: Builder, name: str) -> None:
    costs, recompute = builder.costs, layer.policy.recompute
    gathered = costs.zero >= 3 and costs.reshard_after_forward
    with _whole(layer, builder, name, gathered=gathered):
        part, repeated = checkpointed(layer, recompute), again(layer, recompute)
        if part is not None:
            if costs.host.checkpoint:
                builder.compute("recompute", Kernels(0.0, 0.0, costs.host.checkpoint))
            _forward(part, builder, "recompute")
            repeated -= {item.name for item in part.items}
        _backward(layer, builder, repeated, name)
    if costs.zero >= 2 and name == "backward":
        builder.reduce(layer)


@contextmanager
def _whole(layer: Layer, builder: Builder, name: str, *, gathered: bool) -> Generator[None]:
    """Around the kernels of a layer: its parameters are gathered before them."""
    if gathered:
        builder.gather(layer, name)
    yield
    if gathered:
        builder.end_layer()


def _forward(layer: Layer, builder: Builder, name: str) -> None:
    for item in forward_units(layer, builder.costs.overlap):
        if isinstance(item, Op):
            _compute(builder, name, builder.costs.kernels(item, "forward"), aside=item.aside)
            if builder.costs.host.waits_for(item.name):
                builder.ask()
        elif isinstance(item, Gathered | Scattered):
            _in_pieces(item, builder, name, "forward")
        elif isinstance(item, Circled):
            _in_a_ring(item, builder, name, "forward")
        elif isinstance(item, Exchange) and item.forward is not None:
            builder.exchange(item, item.forward)


def _backward(layer: Layer, builder: Builder, repeated: frozenset[str], name: str) -> None:
    """Kernels in reverse; where a gather serves only a weight's gradient, the input's gradient is
    computed beside it. `backward_input` leaves weights out."""
    costs, whole = builder.costs, name == "backward"
    for item in backward_units(layer, costs.overlap, whole=whole):
        if isinstance(item, Op):
            _gradients(item, builder, repeated, name)
        elif isinstance(item, BulkSum):
            _beside(item, builder, repeated, name)
        elif isinstance(item, Gathered | Scattered | Circled):
            _back_in_pieces(item, builder, repeated, name)
        elif serves_weights(item):
            if whole:
                builder.beside(item, "all_gather")
        elif item.backward is not None:
            builder.exchange(item, item.backward, backward=True)


def _back_in_pieces(
    unit: Gathered | Scattered | Circled, builder: Builder, repeated: frozenset[str], name: str
) -> None:
    for op in unit.ops:
        _again(op, builder, repeated, name)
    if isinstance(unit, Circled):
        _in_a_ring(unit, builder, name, "backward")
        return
    _in_pieces(unit, builder, name, "backward")
    for op in unit.ops if name == "backward" else ():
        builder.compute(name, builder.costs.kernels(op, "weight"))


def _gradients(op: Op, builder: Builder, repeated: frozenset[str], name: str) -> None:
    """Of an op's input and, unless weights are left out, of its weight."""
    _again(op, builder, repeated, name)
    _compute(builder, name, builder.costs.kernels(op, "backward"), aside=op.aside)
    if name == "backward":
        if builder.aside and op.weight.kernels:
            builder.join()
        _compute(builder, name, builder.costs.kernels(op, "weight"), aside=op.aside)


def _compute(builder: Builder, name: str, kernels: Kernels, *, aside: bool = False) -> None:
    """Add kernels; where there are none, the open segment stays as it is."""
    if kernels.host or kernels.seconds or (name, aside) != (builder.name, builder.waiting):
        builder.compute(name, kernels, aside=aside)


def _again(op: Op, builder: Builder, repeated: frozenset[str], name: str) -> None:
    """Run an op's forward once more, where the memory policy says so."""
    if op.name in repeated:
        builder.compute(name, builder.costs.kernels(op, "forward"), aside=op.aside)


def _beside(unit: BulkSum, builder: Builder, repeated: frozenset[str], name: str) -> None:
    """Gradients of inputs, and their sum over ranks beside the gradients of weights."""
    costs = builder.costs
    if unit.gather is not None:
        builder.beside(unit.gather, "all_gather")
    for op in unit.ops:
        _again(op, builder, repeated, name)
        builder.compute(name, costs.kernels(op, "backward"))
    builder.join()
    if unit.exchange.backward is not None:
        builder.exchange(unit.exchange, unit.exchange.backward, backward=True)
    for op in unit.ops:
        builder.compute(name, costs.kernels(op, "weight"), aside=True)


def _in_pieces(
    unit: Gathered | Scattered, builder: Builder, name: str, direction: Direction
) -> None:
    """Pieces of ops: those that have to wait for all transfers last, or that all wait for first."""
    costs, gathers, backward = builder.costs, isinstance(unit, Gathered), direction == "backward"
    kind = "all_gather" if gathers else "reduce_scatter"
    first = [] if gathers else [costs.kernels(op, direction, 1) for op in unit.ops]
    beside = [costs.kernels(op, direction, costs.pieces - 1) for op in unit.ops]
    last = [costs.kernels(op, direction, 1) for op in unit.ops] if gathers else []
    for kernels in first:
        builder.compute(name, kernels)
    builder.exchange(unit.exchange, kind, backward=backward, cut=True)
    for kernels in beside:
        builder.compute(name, kernels, aside=True)
    for kernels in last:
        builder.compute(name, kernels)
    builder.copy(costs.reordered(unit.exchange, kind, backward=backward, cut=True))


def _in_a_ring(unit: Circled, builder: Builder, name: str, direction: Direction) -> None:
    """A kernel in as many pieces as ranks: all but the last beside what the ring passes on."""
    costs, ranks, backward = builder.costs, unit.exchange.circle, direction == "backward"
    whole, launch = costs.kernels(unit.ops[0], direction), costs.calibration.launch
    last = replace(whole, seconds=whole.seconds / ranks, sm_bound=whole.sm_bound / ranks, host=0.0)
    rest = replace(
        whole,
        seconds=whole.seconds - last.seconds + (ranks - 1) * launch,
        sm_bound=whole.sm_bound - last.sm_bound,
        host=ranks * whole.host,
    )
    builder.exchange(unit.exchange, "all_gather", backward=backward)
    builder.compute(name, rest, aside=True)
    builder.compute(name, last)
