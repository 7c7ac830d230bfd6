"""Work that succeeds on all ranks or fails on all: nobody waits for one that has given up.

A rank that is killed cannot say so; its connections close, and torch raises a RuntimeError on those
that wait for it. Whoever waits does so no longer than the group's timeout, which has to be above
the time that reading and hashing a checkpoint takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch.distributed as dist
from torch.distributed import ProcessGroup

from twin.errors import Problem, TwinError, UsageError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


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
    _value(own)
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


def _tried(work: Callable[[], T], rank: int) -> _Done[T] | _Failed:
    try:
        return _Done(work())
    except OSError as error:
        return _Failed(refusal(error, rank))
    except Exception as error:  # noqa: BLE001  whatever it is, the other ranks must hear of it
        return _Failed(error)


def _sendable(outcome: _Done[T] | _Failed, rank: int) -> _Done[T] | _Failed:
    """Errors of others may not survive being sent; ours do."""
    if isinstance(outcome, _Done) or isinstance(outcome.error, TwinError):
        return outcome
    return _Failed(RuntimeError(f"rank {rank} failed: {outcome.error!r}"))


def _value(outcome: _Done[T] | _Failed) -> T:
    if isinstance(outcome, _Failed):
        raise outcome.error
    return outcome.value
