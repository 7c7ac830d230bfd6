"""Tensors in pieces: ranges of a tensor's numbers, in the order of the flattened whole.

A rank's share of a model is always such ranges, however it is cut: some layers, some experts of a
stack [E, rows, columns], a shard of optimizer states that begins and ends inside a matrix. So one
kind of piece is enough for every layout, and what one layout saved another reads. Names are those
of the whole model.

Work that succeeds on all ranks or fails on all: nobody waits for one that has given up.

A rank that is killed cannot say so; its connections close, and torch raises a RuntimeError on those
that wait for it. Whoever waits does so no longer than the group's timeout, which has to be above
the time that reading and hashing a checkpoint takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar, cast

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from twin.errors import Problem, TwinError, UsageError

T = TypeVar("T")


_Outcome = tuple[T | None, Exception | None]
"""What a rank's work gave, or what it raised."""


def on_all(group: ProcessGroup | None, work: Callable[[], T]) -> list[T]:
    """What the work gave on every rank, in order, the same list on each; alone without a group.

    Raises on all ranks where it fails on one: its TwinError, UsageError TW310 for an OSError, else
    what it raised there and RuntimeError elsewhere.
    """
    if group is None:
        return [_value(_tried(work, 0))]
    own = _tried(work, dist.get_rank(group))
    outcomes: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(outcomes, _sendable(own, dist.get_rank(group)), group=group)
    for first in (*(one for one in outcomes if isinstance(one[1], TwinError)), own):
        _value(first)
    return [_value(one) for one in outcomes]


def on_first(group: ProcessGroup | None, work: Callable[[], T]) -> T:
    """What the work gave on the first rank, the only one that does it; errors as above."""
    if group is None:
        return _value(_tried(work, 0))
    if dist.get_rank(group) == 0:
        own = _tried(work, 0)
        dist.broadcast_object_list([_sendable(own, 0)], group=group, group_src=0)
        return _value(own)
    told: list[Any] = [None]
    dist.broadcast_object_list(told, group=group, group_src=0)
    return _value(told[0])


def refusal(error: OSError, rank: int) -> UsageError:
    """A folder that cannot be read or written, as a user should hear of it."""
    what = f"`{error.filename}`" if error.filename else "a checkpoint"
    message = f"rank {rank} cannot read or write {what}: {error.strerror or error}"
    return UsageError([Problem("TW310", "train.output", message)])


def _tried(work: Callable[[], T], rank: int) -> _Outcome[T]:
    try:
        return work(), None
    except OSError as error:
        return None, refusal(error, rank)
    except Exception as error:  # noqa: BLE001  whatever it is, the other ranks must hear of it
        return None, error


def _sendable(outcome: _Outcome[T], rank: int) -> _Outcome[T]:
    """Errors of others may not survive being sent; ours do."""
    error = outcome[1]
    if error is None or isinstance(error, TwinError):
        return outcome
    return None, RuntimeError(f"rank {rank} failed: {error!r}")


def _value(outcome: _Outcome[T]) -> T:
    value, error = outcome
    if error is not None:
        raise error
    return cast("T", value)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Numbers of a tensor that lie in a row."""

    tensor: Tensor
    """One dimension, contiguous. Saving reads it, loading fills it in place."""
    offset: int
    """The place of its first number in the flattened whole."""
    shape: tuple[int, ...]
    """Of the whole."""

    def __post_init__(self) -> None:
        if self.tensor.dim() != 1 or not self.tensor.is_contiguous():
            raise ValueError("a piece is flat and contiguous; `piece_of` makes such views")
        if not 0 <= self.offset <= self.end <= prod(self.shape):
            raise ValueError(f"no numbers {self.offset} up to {self.end} in {list(self.shape)}")

    @property
    def end(self) -> int:
        """The place behind its last number."""
        return self.offset + self.tensor.numel()

    @property
    def whole(self) -> Whole:
        """What it is a piece of."""
        return str(self.tensor.dtype).removeprefix("torch."), self.shape


Pieces = Piece | tuple[Piece, ...]
"""What a rank has of one tensor."""
Whole = tuple[str, tuple[int, ...]]
"""Data type, as torch names it, and shape of a tensor of which ranks have pieces."""


def piece_of(tensor: Tensor, offset: int = 0, shape: tuple[int, ...] | None = None) -> Piece:
    """A view of a contiguous tensor as a piece of a whole of that shape; of itself without one."""
    return Piece(tensor.detach().view(-1), offset, tuple(tensor.shape) if shape is None else shape)


def listed(pieces: Pieces) -> tuple[Piece, ...]:
    """One or several as several."""
    return (pieces,) if isinstance(pieces, Piece) else pieces


@dataclass(frozen=True, slots=True)
class HeldRanges:
    """What some ranks have of a tensor together."""

    whole: Whole
    ranges: tuple[tuple[int, int], ...]
    """First number and the one behind the last, of every piece that has any, in order."""

    @property
    def once(self) -> bool:
        """Whether each number of the whole is in one piece, and in no second."""
        places = [0, *(place for one in self.ranges for place in one), prod(self.whole[1])]
        return places[::2] == places[1::2]

    @property
    def complete(self) -> bool:
        """Whether each number of the whole is in some piece."""
        reached = 0
        for first, end in self.ranges:
            if first > reached:
                return False
            reached = max(reached, end)
        return reached == prod(self.whole[1])


def held_by(group: ProcessGroup | None, tensors: Mapping[str, Pieces]) -> dict[str, HeldRanges]:
    """What all ranks have of every tensor, the same on each rank; alone without a group.

    Raises ValueError where ranks mean different tensors by one name.
    """
    wholes: dict[str, Whole] = {}
    ranges: dict[str, list[tuple[int, int]]] = {}
    for own in on_all(group, lambda: list(_facts(tensors))):
        for name, whole, first, end in own:
            if wholes.setdefault(name, whole) != whole:
                raise ValueError(f"`{name}` is {wholes[name]} and {whole}")
            ranges.setdefault(name, []).extend([(first, end)] if end > first else [])
    return {name: HeldRanges(whole, tuple(sorted(ranges[name]))) for name, whole in wholes.items()}


def _facts(tensors: Mapping[str, Pieces]) -> Iterator[tuple[str, Whole, int, int]]:
    for name, pieces in tensors.items():
        for piece in listed(pieces):
            yield name, piece.whole, piece.offset, piece.end
