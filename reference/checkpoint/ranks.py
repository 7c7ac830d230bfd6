"""Work that succeeds on all ranks or fails on all: nobody waits for one that has given up.

A rank that is killed cannot say so; its connections close, and torch raises a RuntimeError on those
that wait for it. Whoever waits does so no longer than the group's timeout, which has to be above
the time that reading and hashing a checkpoint takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch.distributed as dist
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
