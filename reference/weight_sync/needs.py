"""What an inference rank takes of the full set, and where it puts it: tensors by name.

Rows of a tensor of the full set go to rows of one of the rank's own. Of matrices that ranks share,
projections out of the hidden state and tables are cut along rows (heads, words), projections back
into it along columns, as Megatron-LM does (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import torch
from torch import Tensor

from reference.convert.config import ReleasedPart as Rows
from reference.weight_sync.layout import RankLayout, Unit, WeightBucket

_BY_ROWS: Final = frozenset(
    {"q_proj", "k_proj", "v_proj", "q_b_proj", "kv_b_proj", "gate_proj", "up_proj"}
    | {"embed_tokens", "lm_head"}
)
_BY_COLUMNS: Final = frozenset({"o_proj", "down_proj"})
Box = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """Numbers of a tensor of the full set, and where they go."""

    source: Box
    target: str
    into: Box


@dataclass(frozen=True, slots=True)
class Needs:
    """Of one rank."""

    takes: Mapping[str, tuple[Take, ...]]
    """By tensor of the full set; those that the rank does not need are absent."""
    shapes: Mapping[str, tuple[tuple[int, ...], torch.dtype]]
    """The rank's own tensors."""

    @property
    def bytes(self) -> int:
        """That the rank keeps."""
        return sum(
            torch.Size(shape).numel() * dtype.itemsize for shape, dtype in self.shapes.values()
        )

    def tensors(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """The rank's own tensors, without values."""
        return {
            name: torch.empty(shape, dtype=dtype, device=device)
            for name, (shape, dtype) in self.shapes.items()
        }


def needs_of(units: Iterable[Unit], seat: RankLayout, *, tied: bool) -> Needs:
    """What a rank takes of every tensor of the full set."""
    takes: dict[str, tuple[Take, ...]] = {}
    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    for unit in units:
        if not seat.held.holds(unit, tied=tied):
            continue
        found: list[Take] = []
        reached = 0
        for rows in unit.rows:
            box = _box(rows, seat, shared=unit.expert is None)
            count = box[0].stop - box[0].start
            rest = tuple(slice(0, axis.stop - axis.start) for axis in box[1:])
            shape = (count, *(axis.stop for axis in rest))
            if seat.names == "split":
                shapes[rows.theirs] = shape, unit.dtype
                found.append(Take(box, rows.theirs, (slice(0, count), *rest)))
                continue
            into = slice(reached, reached + count), *rest
            reached += count
            stack = () if unit.expert is None else (unit.expert - seat.held.experts.start,)
            place: Box = (*(slice(expert, expert + 1) for expert in stack), *into)
            found.append(Take(box, unit.ours, place))
            deep = (len(seat.held.experts),) if stack else ()
            shapes[unit.ours] = (*deep, reached, *shape[1:]), unit.dtype
        takes[unit.name] = tuple(found)
    return Needs(takes, shapes)


def _box(rows: Rows, seat: RankLayout, *, shared: bool) -> Box:
    """Where a released tensor, or the rank's slice of it, lies in the tensor that travels."""
    box = [slice(rows.first_row, rows.first_row + rows.shape[0])]
    box += [slice(0, size) for size in rows.shape[1:]]
    axis = _axis(rows.theirs) if shared and seat.slices > 1 else None
    if axis is not None:
        each = rows.shape[axis] // seat.slices
        first = box[axis].start + seat.slice * each
        box[axis] = slice(first, first + each)
    return tuple(box)


def _axis(theirs: str) -> int | None:
    """Along which axis ranks share a dense matrix; None where each has all of it."""
    owner = theirs.removesuffix(".weight").rpartition(".")[2]
    if owner in _BY_ROWS:
        return 0
    return 1 if owner in _BY_COLUMNS else None


def viewed(memory: Tensor, unit: Unit, offset: int) -> Tensor:
    """A tensor of the full set that lies in a buffer of bytes, as a view."""
    return memory[offset : offset + unit.bytes].view(unit.dtype).view(unit.shape)


@torch.no_grad()
def reload(bucket: WeightBucket, half: Tensor, needs: Needs, own: Mapping[str, Tensor]) -> int:
    """Put what a rank needs of a bucket, which lies in `half`, into its own tensors; the bytes that
    it kept. Types may differ, shapes may not: RuntimeError."""
    kept = 0
    for unit, offset in bucket.units:
        kept += put(viewed(half, unit, offset), needs.takes.get(unit.name, ()), own)
    return kept


def put(source: Tensor, takes: Sequence[Take], own: Mapping[str, Tensor]) -> int:
    """Copy what is taken of one tensor; its bytes."""
    kept = 0
    for take in takes:
        part, target = source[take.source], own[take.target][take.into]
        target.copy_(part)  # a row of a stack of experts has one dimension more
        kept += part.nbytes
    return kept


def digest(tensor: Tensor) -> str:
    """Of the numbers of a tensor, bit for bit."""
    data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return blake2b(data.numpy().data, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Target:
    """The weights of one inference rank."""

    tensors: Mapping[str, Tensor]
    """By name; they are written in place."""
    end: Callable[[int], object] | None = None
    """Hears that all of them are of a version now; None: nobody computes with them yet, as on a
    rank of a layout that the engine does not run."""


def in_memory(device: torch.device | str = "cpu") -> Callable[[Needs], Target]:
    """Makes tensors for what a rank needs."""
    return lambda needs: Target(needs.tensors(device))
