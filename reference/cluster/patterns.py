"""What is measured over a cluster's links: messages, gloo's collectives, and those of `posted`.

Bytes of a pattern are the payload as the twin counts it: a message of one rank; the whole tensor,
gathered or not yet scattered; of an all-to-all what one rank sends, its own share included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import torch
import torch.distributed as dist

from reference.parallel import gloo_collectives

Call: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who takes part, seen from one of them, and a second process group of the same ranks."""

    rank: int
    size: int
    second: dist.ProcessGroup | None = None


def message(ranks: Ranks, size: int) -> Call:
    """From rank 0 to rank 1; others look on."""
    x_X = _bytes(size)
    if ranks.rank == 0:
        return lambda: dist.send(x_X, 1)
    if ranks.rank == 1:
        return lambda: dist.recv(x_X, 0)
    return lambda: None


def receive_first(ranks: Ranks, size: int) -> Call:
    """Both ways between neighbours on one connection, receives posted before sends."""
    return _both_ways(ranks, size, receive_first=True, groups=1)


def send_first(ranks: Ranks, size: int) -> Call:
    """Both ways between neighbours on one connection, receives posted after sends."""
    return _both_ways(ranks, size, receive_first=False, groups=1)


def two_groups(ranks: Ranks, size: int) -> Call:
    """Both ways between neighbours, each with a connection of its own, sends posted first."""
    return _both_ways(ranks, size, receive_first=False, groups=2)


def _both_ways(ranks: Ranks, size: int, *, receive_first: bool, groups: int) -> Call:
    x_X, y_X = _bytes(size), _bytes(size)
    other = ranks.rank ^ 1
    ways = [None, ranks.second if groups == 2 else None]
    if ranks.rank % 2:
        ways.reverse()

    def run() -> None:
        works: list[dist.Work | None] = []
        if receive_first:
            works.append(dist.irecv(y_X, other, group=ways[1]))
        works.append(dist.isend(x_X, other, group=ways[0]))
        if not receive_first:
            works.append(dist.irecv(y_X, other, group=ways[1]))
        for work in works:
            if work is not None:
                work.wait()

    return run


def all_to_all(ranks: Ranks, size: int) -> Call:
    """gloo's, with equal shares."""
    del ranks
    x_X, y_X = _bytes(size), _bytes(size)
    return lambda: dist.all_to_all_single(y_X, x_X)


def all_to_all_uneven(ranks: Ranks, size: int) -> Call:
    """gloo's, where shares differ by as much as 1 to N."""
    sent, received, x_X, y_X = _uneven(ranks, size)
    return lambda: dist.all_to_all_single(y_X, x_X, received, sent)


def all_to_all_posted(ranks: Ranks, size: int) -> Call:
    """Of messages, receives first, with equal shares."""
    del ranks
    x_X, y_X = _bytes(size), _bytes(size)
    return lambda: gloo_collectives.all_to_all(y_X, x_X).wait()


def all_to_all_posted_uneven(ranks: Ranks, size: int) -> Call:
    """Of messages, receives first, shares as `all_to_all_uneven`."""
    sent, received, x_X, y_X = _uneven(ranks, size)
    return lambda: gloo_collectives.all_to_all(y_X, x_X, received, sent).wait()


def all_reduce(ranks: Ranks, size: int) -> Call:
    """gloo's."""
    whole_X, _ = _values(ranks, size)
    return lambda: dist.all_reduce(whole_X)


def reduce_scatter(ranks: Ranks, size: int) -> Call:
    """gloo's."""
    whole_X, part_X = _values(ranks, size)
    return lambda: dist.reduce_scatter_single(part_X, whole_X)


def reduce_scatter_posted(ranks: Ranks, size: int) -> Call:
    """Of messages, receives first."""
    whole_X, part_X = _values(ranks, size)
    return lambda: gloo_collectives.reduce_scatter(part_X, whole_X)


def all_gather(ranks: Ranks, size: int) -> Call:
    """gloo's."""
    whole_X, part_X = _values(ranks, size)
    return lambda: dist.all_gather_single(whole_X, part_X)


def all_gather_posted(ranks: Ranks, size: int) -> Call:
    """Of messages, receives first."""
    whole_X, part_X = _values(ranks, size)
    return lambda: gloo_collectives.all_gather(whole_X, part_X)


def broadcast(ranks: Ranks, size: int) -> Call:
    """gloo's, from rank 0."""
    whole_X, _ = _values(ranks, size)
    return lambda: dist.broadcast(whole_X, 0)


PATTERNS: Final[Mapping[str, Callable[[Ranks, int], Call]]] = MappingProxyType(
    {
        one.__name__: one
        for one in (
            message,
            receive_first,
            send_first,
            two_groups,
            all_to_all,
            all_to_all_uneven,
            all_to_all_posted,
            all_to_all_posted_uneven,
            all_reduce,
            reduce_scatter,
            reduce_scatter_posted,
            all_gather,
            all_gather_posted,
            broadcast,
        )
    }
)


def _bytes(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.uint8)


def _values(ranks: Ranks, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor of so many bytes, and a part of it for each rank."""
    part = size // 4 // ranks.size
    return torch.zeros(part * ranks.size), torch.zeros(part)


def _uneven(ranks: Ranks, size: int) -> tuple[list[int], list[int], torch.Tensor, torch.Tensor]:
    """Rows (bytes) to and from each rank, and tensors of them: rank a sends rank b 1 + (a + b) mod
    N shares, so that every rank sends `size` in all, and receives as much."""
    numbers = range(ranks.size)
    share = size // sum(1 + other for other in numbers)
    sent = [share * (1 + (ranks.rank + other) % ranks.size) for other in numbers]
    return sent, sent, _bytes(sum(sent)), _bytes(sum(sent))  # symmetric: b sends a as many
