"""Starts a program on every rank of a local cluster, and ends them together.

torch is loaded once and every rank is a fork of this process, with one thread: four ranks start in
tenths of a second where fresh interpreters need seconds. A rank finds what `torchrun` would set
(RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT), its card in
GLOO_SOCKET_IFNAME, and in CLUSTER_RATE the rate of its link, empty where none is held. Output of
rank 0 is passed on; of the others it is kept, to be told if they fail.

When one rank fails, the others have some seconds to notice and end; what is left is killed. A
signal to the launcher goes to all ranks once, which may end in order; a second one kills them. If
the launcher is killed, the kernel kills the ranks.
"""

from __future__ import annotations

import ctypes
import multiprocessing as mp
import os
import runpy
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Final

from reference.cluster.namespaces import LOOPBACK, LocalCluster, Seat, laid_out
from twin import units

PORT: Final = 29500
"""Where the ranks of namespaces meet; nothing else listens there."""
GRACE: Final = 2.0
"""Seconds that ranks have to notice that another one failed."""
PATIENCE: Final = 60.0
"""Seconds that ranks have to end after a signal: a checkpoint may be written."""
LAST_LINES: Final = 20
DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG, see prctl(2)."""
LOST: Final = (
    "Connection closed by peer",
    "Connection reset by peer",
    "gloo/transport",
    "TCPStore",
)
"""What ranks say that lost another one: they are not at fault."""


@dataclass(frozen=True, slots=True)
class RankProgram:
    """What every rank runs: a module, as `python -m` would, or a file that ends in `.py`."""

    name: str
    arguments: Sequence[str] = ()
    pinned: bool = False
    """Each rank on a core of its own, in turn."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A rank that failed: its exit code, negative for a signal, and the last that it said."""

    rank: int
    node: int
    code: int
    last_lines: tuple[str, ...]

    def __str__(self) -> str:
        how = f"exit code {self.code}"
        if self.code < 0:
            how = f"signal {signal.Signals(-self.code).name}"
        return f"rank {self.rank} on node {self.node} ended with {how}"


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """How a program ended on all ranks."""

    code: int
    """0, the code of the rank at fault (1 for a signal), or 128 + the signal to the launcher."""
    fault: Failure | None = None


@dataclass(slots=True)
class _Rank:
    rank: int
    process: BaseProcess
    output: int
    """The reading end of what it says; -1 where that has ended."""
    lines: deque[bytes] = field(default_factory=lambda: deque(maxlen=LAST_LINES))

    def listen(self) -> None:
        """Take what it said; rank 0's is passed on."""
        said = os.read(self.output, 1 << 16)
        if not said:
            os.close(self.output)
            self.output = -1
        if self.rank == 0:
            os.write(2, said)
        last = self.lines.pop() if self.lines and not self.lines[-1].endswith(b"\n") else b""
        self.lines.extend((last + said).splitlines(keepends=True))


def launch(cluster: LocalCluster, program: RankProgram, *, shaped: bool = True) -> LaunchResult:
    """Run the program on all ranks; over loopback where not `shaped`.

    Forks: call it from a process with one thread. Raises TwinError (TW320) where the system refuses
    namespaces.
    """
    _load_torch()
    loopback = nullcontext((LOOPBACK,) * cluster.ranks)
    with laid_out(cluster) if shaped else loopback as seats, _signals() as received:
        port = PORT if shaped else _free_port()
        rate = units.format_quantity(cluster.rate, "bytes_per_s") if cluster.rate and shaped else ""
        environment = {
            "MASTER_ADDR": seats[0].address,
            "MASTER_PORT": str(port),
            "CLUSTER_RATE": rate,
        }
        ranks = []
        try:
            for rank, seat in enumerate(seats):
                own = {**environment, **_place(cluster, rank, seat)}
                ranks.append(_start(rank, seat, program, own))
            return _watch(cluster, ranks, received)
        finally:
            _end(ranks)


def _load_torch() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it misses names of hosts that have none
    import torch.distributed  # noqa: PLC0415  after its threads are said, and not for `--help`

    torch.set_num_threads(1)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((LOOPBACK.address, 0))
        return listener.getsockname()[1]


def _place(cluster: LocalCluster, rank: int, seat: Seat) -> dict[str, str]:
    numbers = {
        "RANK": rank,
        "LOCAL_RANK": rank % cluster.ranks_per_node,
        "GROUP_RANK": cluster.node_of(rank),
        "WORLD_SIZE": cluster.ranks,
        "LOCAL_WORLD_SIZE": cluster.ranks_per_node,
    }
    return {"GLOO_SOCKET_IFNAME": seat.interface, **{key: str(one) for key, one in numbers.items()}}


def _start(rank: int, seat: Seat, program: RankProgram, environment: Mapping[str, str]) -> _Rank:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    start: Any = mp.get_context("fork").Process
    process: BaseProcess = start(
        target=_run,
        args=(os.getpid(), rank, seat, program, environment, writing),
        name=f"rank {rank}",
    )
    process.start()
    os.close(writing)
    return _Rank(rank, process, reading)


def _run(
    parent: int,
    rank: int,
    seat: Seat,
    program: RankProgram,
    environment: Mapping[str, str],
    output: int,
) -> None:
    """The life of a rank."""
    os.setpgid(0, 0)  # Ctrl-C reaches the launcher, which passes it on once
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _speak(rank, output)
    if program.pinned:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    os.environ.update(environment)
    seat.enter()
    sys.argv = [program.name, *program.arguments]
    if program.name.endswith(".py"):
        runpy.run_path(program.name, run_name="__main__")
    else:
        runpy.run_module(program.name, run_name="__main__", alter_sys=True)


def _speak(rank: int, output: int) -> None:
    """Errors go to the launcher, and what else others than rank 0 say."""
    os.dup2(output, 2)
    if rank:
        os.dup2(output, 1)
    os.close(output)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM that came, while the context lasts."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(cluster: LocalCluster, ranks: Sequence[_Rank], received: Sequence[int]) -> LaunchResult:
    """Until all have ended, or have to be ended."""
    failed: list[_Rank] = []
    passed_on, deadline = 0, float("inf")
    running = list(ranks)
    while running and time.monotonic() < deadline and len(received) < 2:
        _listen(ranks, running)
        over = [rank for rank in running if rank.process.exitcode is not None]
        running = [rank for rank in running if rank not in over]
        failed += [rank for rank in over if rank.process.exitcode]
        if failed and not received:
            deadline = min(deadline, time.monotonic() + GRACE)
        if len(received) > passed_on:
            passed_on, deadline = len(received), time.monotonic() + PATIENCE
            for rank in running:
                if rank.process.pid is not None and rank.process.exitcode is None:
                    os.kill(rank.process.pid, received[0])
    _listen(ranks, (), last=True)
    if received:
        return LaunchResult(128 + received[0])
    return _outcome(cluster, failed)


def _listen(ranks: Sequence[_Rank], running: Sequence[_Rank], *, last: bool = False) -> None:
    """Take what ranks say, until one ends or a moment has passed; at last what is there."""
    while True:
        speaking = {rank.output: rank for rank in ranks if rank.output >= 0}
        ends = [rank.process.sentinel for rank in running]
        ready = wait([*speaking, *ends], 0.0 if last else 0.2)
        for end in ready:
            if isinstance(end, int) and end in speaking:
                speaking[end].listen()
        if not last or not ready:
            return


def _outcome(cluster: LocalCluster, failed: Sequence[_Rank]) -> LaunchResult:
    """Who is at fault: of those that failed the first that did not only lose another."""
    if not failed:
        return LaunchResult(0)
    failures = [_failure(cluster, rank) for rank in failed]
    own = [failure for failure in failures if not _lost_another(failure)]
    fault = (own or failures)[0]
    return LaunchResult(fault.code if fault.code > 0 else 1, fault)


def _failure(cluster: LocalCluster, rank: _Rank) -> Failure:
    lines = tuple(line.decode(errors="replace").rstrip("\n") for line in rank.lines)
    return Failure(rank.rank, cluster.node_of(rank.rank), rank.process.exitcode or 0, lines)


def _lost_another(failure: Failure) -> bool:
    return any(sign in line for line in failure.last_lines for sign in LOST)


def _end(ranks: Sequence[_Rank]) -> None:
    for rank in ranks:
        rank.process.kill()
    for rank in ranks:
        rank.process.join()
        if rank.output >= 0:
            os.close(rank.output)
