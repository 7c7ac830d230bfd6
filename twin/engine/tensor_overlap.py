"""Collectives over tensor ranks beside products: whole ones beside others, or in pieces beside
those that they feed or that feed them.

`bulk`: the gradient of a product's input is summed over ranks beside the gradient of its weights,
as Megatron-LM always does (`LinearWithGradAccumulationAndAsyncCommunication`). Under sequence
parallelism the input is gathered again, for the weight's gradient, beside the input's gradient;
that needs no option here.

`pieces` adds to it that with t tensor ranks the rows of a product are t pieces, of which a rank has
one (Wang et al. 2023, "Overlap communication with dependent computation via decomposition in large
deep learning models", ASPLOS, section 3; Transformer Engine's userbuffers; PyTorch's async tensor
parallelism):

- Gather, then product: the rank multiplies its own piece while the others come round a ring. With
  even pieces that ends when a transfer beside t - 1 pieces of the product, and then the last piece,
  would: after max(product, transfer + product / t).
- Product, then reduce-scatter: the mirror. The first piece is multiplied alone; each travels while
  the next is multiplied.
- Gradients of what a gather feeds stay `bulk`, whole products beside whole tensors, as is
  Transformer Engine's default. Where weights' gradients are put off, the input's gradient is
  summed in pieces instead. Of several products that read one tensor (queries, keys and values, or
  gate and up, apart) nothing runs beside the sum: PyTorch fuses it with a single product only
  (`_inductor/fx_passes/micro_pipeline_tp.py`, `_find_producer_matmul`), and the norm behind waits.

A gather in pieces inside a node goes by copy engines and holds no SMs (`use_ce` there); sums take
`collective_sms`. Pieces are for attention and feed-forward blocks: embedding and head are no
modules of Transformer Engine. OURS: sums in t pieces round a ring, as in Wang et al.; Transformer
Engine's default (`pipeline`) has 4, the last of which nothing hides. All pieces are taken to be
even, which breaks where contention slows only some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard

from twin.arch.ops import CollectiveKind, Exchange, Item, Layer, Op, Work, backwards
from twin.arch.recompute import TRANSFORMER
from twin.engine.cost_model import Overlap

Direction = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """A gather in pieces and the ops up to the product that it feeds, which run piece by piece."""

    exchange: Exchange
    ops: tuple[Op, ...]

    @property
    def items(self) -> int:
        """How many items of the layer it is."""
        return len(self.ops) + 1


@dataclass(frozen=True, slots=True)
class Scattered:
    """A product and its sum over ranks, in pieces; ops between the two have no kernels here."""

    ops: tuple[Op, ...]
    exchange: Exchange

    @property
    def items(self) -> int:
        """How many items of the layer it is."""
        return len(self.ops) + 1


@dataclass(frozen=True, slots=True)
class BulkSum:
    """The backward pass of ops before a whole sum of their input's gradient, which runs beside
    their weights' gradients; `gather` brings these their input."""

    gather: Exchange | None
    ops: tuple[Op, ...]
    exchange: Exchange

    @property
    def items(self) -> int:
        """How many items of the layer it is."""
        return len(self.ops) + (1 if self.gather is None else 2)


@dataclass(frozen=True, slots=True)
class Circled:
    """A kernel that does a piece with what each rank of a ring passes on."""

    exchange: Exchange
    ops: tuple[Op]

    @property
    def items(self) -> int:
        """How many items of the layer it is."""
        return 2


Unit = Item | Gathered | Scattered | BulkSum | Circled
_Rule = Callable[[Sequence[Item], int, Direction], Gathered | Scattered | BulkSum | Circled | None]
"""What finds a unit that starts at a position of a pass."""


def forward_units(layer: Layer, overlap: Overlap) -> list[Unit]:
    """A layer's items in the order of its forward pass; what runs in pieces is one unit."""
    rules = (_circled, *((_gathered, _scattered) if _cuts(layer, overlap) else ()))
    return [*_units(layer.items, "forward", rules)]


def backward_units(layer: Layer, overlap: Overlap, *, whole: bool) -> list[Unit]:
    """The same of its backward pass; `whole` ones have the gradients of weights, beside which sums
    of the input's run."""
    rules: list[_Rule] = [_circled, *([_gathered] if _cuts(layer, overlap) else [])]
    if whole and overlap != "none":
        rules.append(_beside)
    elif _cuts(layer, overlap):
        rules.append(_scattered)
    return [*_units(backwards(layer.items), "backward", rules)]


def _cuts(layer: Layer, overlap: Overlap) -> bool:
    return overlap == "pieces" and layer.kind in TRANSFORMER


def cut(units: Iterable[Unit]) -> frozenset[str]:
    """Names of the ops that run in pieces."""
    found = (unit.ops for unit in units if isinstance(unit, Gathered | Scattered))
    return frozenset(op.name for ops in found for op in ops)


def exchanges(unit: Unit) -> tuple[Exchange, ...]:
    """The collectives of a unit."""
    if isinstance(unit, BulkSum):
        return (unit.exchange,) if unit.gather is None else (unit.gather, unit.exchange)
    if isinstance(unit, Gathered | Scattered | Circled):
        return (unit.exchange,)
    return (unit,) if isinstance(unit, Exchange) else ()


def _units(items: Sequence[Item], direction: Direction, rules: Iterable[_Rule]) -> Iterator[Unit]:
    at = 0
    while at < len(items):
        found = (unit for rule in rules if (unit := rule(items, at, direction)) is not None)
        unit = next(found, None)
        yield unit or items[at]
        at += 1 if unit is None else unit.items


def serves_weights(item: Item) -> TypeGuard[Exchange]:
    """A gather of backward only over tensor ranks: the input again, for the weight's gradient."""
    return isinstance(item, Exchange) and item.for_weights


def _circled(items: Sequence[Item], at: int, direction: Direction) -> Circled | None:
    """A ring and the kernel that it feeds, which is before it in backward order."""
    pair = items[at : at + 2] if direction == "forward" else items[at : at + 2][::-1]
    match [*pair]:
        case [Exchange(circle=ranks) as exchange, Op() as op] if ranks:
            return Circled(exchange, (op,))
        case _:
            return None


def _gathered(items: Sequence[Item], at: int, direction: Direction) -> Gathered | None:
    """A gather and the ops up to the first product, if there is one before the next exchange."""
    first = items[at]
    if not _is(first, direction, "all_gather") or serves_weights(first):
        return None
    ops = _ops(items, at + 1)
    for count, op in enumerate(ops, 1):
        if _work(op, direction).product is not None:
            return Gathered(first, ops[:count])
    return None


def _scattered(items: Sequence[Item], at: int, direction: Direction) -> Scattered | None:
    """A product and the sum over ranks behind it, if it has no kernels in between."""
    ops = _ops(items, at)
    if not ops or _work(ops[0], direction).product is None:
        return None
    behind = items[at + len(ops)] if at + len(ops) < len(items) else None
    if behind is None or not _is(behind, direction, "reduce_scatter"):
        return None
    if any(_work(op, direction).kernels for op in ops[1:]):
        return None
    return Scattered(ops, behind)


def _beside(items: Sequence[Item], at: int, direction: Direction) -> BulkSum | None:
    """From a gather for weights' gradients, or else a product, to the sum of the input's."""
    first = items[at]
    gather = first if serves_weights(first) else None
    ops = _ops(items, at if gather is None else at + 1)
    end = at + len(ops) + (gather is not None)
    if gather is None and (not ops or _work(ops[0], direction).product is None):
        return None
    last = items[end] if end < len(items) else None
    if last is None or not _sums(last, direction) or _apart(items[:end]):
        return None
    return BulkSum(gather, ops, last)


def _apart(items: Sequence[Item]) -> bool:
    """Whether a backward pass up to here ends with several products that read one tensor forward:
    their gradients are added up before ranks sum them."""
    widths: list[int] = []
    for item in reversed(items):
        if isinstance(item, Exchange):
            break
        if item.forward.product is not None:
            widths.append(item.forward.product.k)
        elif item.forward.kernels and item.kind != "cast":
            break
    return len(widths) > 1 and len(set(widths)) == 1


def _sums(item: Item, direction: Direction) -> TypeGuard[Exchange]:
    return _is(item, direction, "reduce_scatter") or _is(item, direction, "all_reduce")


def _ops(items: Sequence[Item], at: int) -> tuple[Op, ...]:
    """The ops from a position on, up to the next exchange."""
    found: list[Op] = []
    for item in items[at:]:
        if isinstance(item, Exchange):
            break
        found.append(item)
    return tuple(found)


def _is(item: Item, direction: Direction, kind: CollectiveKind) -> TypeGuard[Exchange]:
    """Whether it is such a collective over tensor ranks."""
    if not isinstance(item, Exchange) or item.group != "tensor":
        return False
    return (item.forward if direction == "forward" else item.backward) == kind


def _work(op: Op, direction: Direction) -> Work:
    return op.forward if direction == "forward" else op.backward
