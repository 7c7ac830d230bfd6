"""Real ranks for tests: forked processes that speak gloo over this machine's loopback.

Forking shares torch's import with the parent: four ranks are up and down in half a second. What a
rank returns, or its traceback, comes back through a pipe; no rank ends before all have said so,
since gloo's peers may still read from it.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist

from reference.parallel.groups import Group
from reference.parallel.mesh import Kind
from reference.parallel.timeline import Tape

TIMEOUT = 60.0
"""Seconds for all ranks together."""


def run_ranks(
    count: int, fn: Callable[..., Any], *args: Any, join: bool = True, timeout: float = TIMEOUT
) -> list[Any]:
    """What `fn(rank, count, *args)` returned on each of so many ranks, by rank.

    The variables that torchrun sets are there; with `join` the default process group is, too. One
    rank's error ends all, and is raised here with its traceback.
    """
    context = multiprocessing.get_context("fork")
    port, pipes, ranks = _free_port(), [], []
    for rank in range(count):
        here, there = context.Pipe()
        child = context.Process(target=_child, args=(there, (rank, count, port, join), fn, args))
        with warnings.catch_warnings():
            # Python 3.12 warns of forks with threads; the child goes on with one.
            warnings.simplefilter("ignore", DeprecationWarning)
            child.start()
        there.close()
        pipes.append(here)
        ranks.append(child)
    try:
        return _results(pipes, timeout)
    finally:
        for pipe in pipes:
            pipe.close()  # the word to end
        for child in ranks:
            child.join(0.5)
            if child.is_alive():
                child.kill()
                child.join()


def groups_of(kind: Kind, every: Sequence[Sequence[int]], tape: Tape | None = None) -> Group:
    """Make several disjoint groups that hold all ranks; the one in which this rank is. Every rank
    of the world calls it alike."""
    handles = [dist.new_group(list(ranks)) if len(ranks) > 1 else None for ranks in every]
    mine = next(number for number, ranks in enumerate(every) if dist.get_rank() in ranks)
    ranks = tuple(every[mine])
    handle = handles[mine]
    assert not isinstance(handle, int)
    return Group(kind, ranks, ranks.index(dist.get_rank()), handle, tape or Tape())


def _results(pipes: list[Connection], timeout: float) -> list[Any]:
    found: dict[int, Any] = {}
    end = monotonic() + timeout
    while len(found) < len(pipes):
        left = [pipe for rank, pipe in enumerate(pipes) if rank not in found]
        ready = wait(left, end - monotonic())
        if not ready:
            silent = [rank for rank in range(len(pipes)) if rank not in found]
            raise TimeoutError(f"ranks {silent} of {len(pipes)} said nothing in {timeout:g} s")
        for pipe in ready:
            assert isinstance(pipe, Connection)
            rank = pipes.index(pipe)
            try:
                good, result = pickle.loads(pipe.recv_bytes())
            except EOFError:
                raise RuntimeError(f"rank {rank} died without a word") from None
            if not good:
                raise RuntimeError(f"rank {rank}:\n{result}")
            found[rank] = result
    return [found[rank] for rank in range(len(pipes))]


def _child(
    pipe: Connection,
    place: tuple[int, int, int, bool],
    fn: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    rank, count, port, join = place
    torch.set_num_threads(1)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(count),
        LOCAL_WORLD_SIZE=str(count),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        GLOO_SOCKET_IFNAME="lo",
    )
    try:
        if join:
            dist.init_process_group("gloo")
        answer = pickle.dumps((True, fn(rank, count, *args)))
    except BaseException:  # noqa: BLE001  the parent raises it
        answer = pickle.dumps((False, traceback.format_exc()))
    try:
        pipe.send_bytes(answer)
        pipe.recv_bytes()  # until the parent hangs up
    except (EOFError, OSError):
        pass
    os._exit(0)


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
