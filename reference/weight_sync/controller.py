"""Who asks the ranks: senders keep new weights, all of them update, one that was lost recovers.

Processes that do what a controller asks: a word and its arguments over a pipe, and an answer or
an error back. A peer whose connection closes without an answer is gone.

Messages are pickles between processes of one controller, which started them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic, time_ns
from typing import Any, Final

import torch

from reference.cluster.launch import DEATH_SIGNAL
from reference.parallel.mesh import Mesh
from reference.weight_sync.layout import (
    Buffers,
    LayoutSpec,
    SyncSpec,
    Unit,
    WeightBucket,
    buckets,
    buffers,
    full_set,
    holders,
    largest,
    seats,
    shares,
)
from reference.weight_sync.pipeline import Meeting, Stages, StageSpan
from reference.weight_sync.ranks import RankReport, UpdateOrder
from reference.weight_sync.sources import Address, dealt, saved
from twin.errors import Problem, TwinError, UsageError
from twin.spec.model import ModelSpec

END: Final = "end"
"""The word after which a peer ends."""


@dataclass(slots=True, eq=False)
class Peer:
    """A process, seen from its controller."""

    name: str
    connection: Connection
    process: BaseProcess | None = None
    gone: bool = False

    def end(self) -> None:
        """Ask it to end, and see that it did."""
        if self.connection.closed:
            return
        with suppress(OSError):
            self.connection.send((END, ()))
        if self.process is not None:
            self.process.join(1)
            if self.process.is_alive():
                self.process.kill()
                self.process.join()
        self.connection.close()


def forked(name: str, work: Callable[[Connection], None]) -> Peer:
    """A fork of this process that works at its end of a pipe; call it from one with one thread. It
    ends when this process does."""
    context = get_context("fork")
    here, there = context.Pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on: threads of torch may be there, which the child does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=_work, args=(os.getpid(), there, work), name=name)
        process.start()
    there.close()
    return Peer(name, here, process)


def serve(actor: object, connection: Connection) -> None:
    """Do what is asked, a method of the actor by its name, until the word to end, or until nobody
    is there to ask."""
    while True:
        try:
            word, arguments = connection.recv()
        except (EOFError, OSError):
            return
        if word == END:
            return
        value, problems = None, list[Problem]()
        try:
            value = getattr(actor, word)(*arguments)
        except TwinError as error:
            problems = list(error.problems)
        except Exception as error:  # noqa: BLE001  whatever it is, who asked must hear of it
            problems = [Problem("TW624", "", f"{type(error).__name__}: {error}")]
        connection.send((value, problems))


def ask(requests: Mapping[Peer, tuple[str, Sequence[Any]]], patience: float) -> dict[Peer, Any]:
    """The values of all, by request; a UsageError in the place of a value where a peer
    failed, and goes on, or is gone (TW623): one that says nothing is, after so many seconds without
    a word of anyone."""
    waiting: dict[Any, Peer] = {}
    found: dict[Peer, Any] = {}
    for peer, (word, arguments) in requests.items():
        try:
            peer.connection.send((word, tuple(arguments)))
            waiting[peer.connection] = peer
        except OSError:
            found[peer] = _gone(peer)
    last = monotonic()
    while waiting:
        ready = wait(list(waiting), max(0.0, last + patience - monotonic()))
        if not ready:
            return found | {peer: _gone(peer) for peer in waiting.values()}
        last = monotonic()
        for connection in ready:
            peer = waiting.pop(connection)
            try:
                value, problems = peer.connection.recv()
                found[peer] = UsageError(problems) if problems else value
            except (EOFError, OSError):
                found[peer] = _gone(peer)
    return found


def _gone(peer: Peer) -> UsageError:
    peer.gone = True
    fix = "start again from a checkpoint"
    return UsageError([Problem("TW623", "", f"{peer.name} is gone", fix)])


def _work(parent: int, connection: Connection, work: Callable[[Connection], None]) -> None:
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the controller ends its peers
    try:
        work(connection)
    except BaseException:  # noqa: BLE001  the last stop
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # threads of gloo may wait for peers that are gone


@dataclass(frozen=True, slots=True)
class SyncJob:
    """Whose weights go where."""

    model: ModelSpec
    dtype: torch.dtype
    mesh: Mesh
    """Of the trainer's ranks."""
    layout: LayoutSpec
    """Of the inference ranks."""
    sync: SyncSpec


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """An update, or a part of one that one rank asked for."""

    version: int
    start: int
    end: int
    """Nanoseconds of the machine's clock, as the controller saw it."""
    senders: Mapping[int, RankReport]
    receivers: Mapping[int, RankReport]
    lost: tuple[int, ...] = ()
    """Receivers whose process is gone."""
    failed: Mapping[int, tuple[Problem, ...]] = field(default_factory=dict)
    """Receivers that are there, and have no whole weights."""
    stages: Stages = "two"
    attempts: int = 1

    @property
    def seconds(self) -> float:
        """From beginning to end."""
        return (self.end - self.start) * 1e-9


class Controller:
    """The processes of a job: first senders, in the order of the trainer's ranks, then receivers in
    that of the layout."""

    def __init__(self, job: SyncJob, senders: Sequence[Peer], receivers: Sequence[Peer]) -> None:
        self.job, self.senders, self.receivers = job, list(senders), list(receivers)
        self.units = full_set(job.model, job.dtype)
        self._seats = seats(job.layout, job.model)
        assert len(self.senders) == job.mesh.ranks
        assert len(self.receivers) == len(self._seats)
        self._owned: tuple[tuple[Unit, ...], ...] = ()
        self._addresses: tuple[Address, ...] = ()
        self.kept: list[int] = [self._teach(number) for number in range(len(self._seats))]
        """Bytes that each receiver keeps."""
        self._place = self._told(self.senders[0], "meeting_place")
        self._epoch, self._there = 0, list(self.receivers)
        self.version: int | None = None

    @property
    def payload(self) -> int:
        """Bytes of the full set."""
        return sum(unit.bytes for unit in self.units)

    @property
    def buffers(self) -> Buffers:
        """What the free memory of the fullest rank allows. Raises UsageError TW622."""
        sync, everyone = self.job.sync, [*self.senders, *self._alive]
        free = [sync.free_memory]
        for peer, answer in ask(dict.fromkeys(everyone, ("free", ())), self._patience).items():
            if not isinstance(answer, UsageError):
                free.append(answer)
            elif peer in self.senders:
                raise answer
        return buffers(min(free), sync.bucket, largest(self.units))

    def buckets(self, space: Buffers) -> tuple[WeightBucket, ...]:
        """How the full set travels."""
        return buckets(self._owned, space.bytes)

    def keep(self, version: int) -> None:
        """Every sender copies its share of the weights out of the trainer's model."""
        model, mesh = self.job.model, self.job.mesh
        self._own(shares(self.units, holders(self.units, model, mesh), mesh.ranks))
        self._all(dict.fromkeys(self.senders, ("keep", (version,))))
        self.version = version

    def start(self, checkpoint: Path, version: int) -> list[int]:
        """The senders read a checkpoint together; the bytes that each read from disk."""
        pieces, owners = dealt(saved(checkpoint), self.units, len(self.senders))
        self._own(shares(self.units, owners, len(self.senders)))
        requests = {
            peer: ("read", (checkpoint, own, version))
            for peer, own in zip(self.senders, pieces, strict=True)
        }
        found = self._all(requests)
        self.version = version
        return [found[peer] for peer in self.senders]

    def update(self, stages: Stages | None = None) -> UpdateResult:
        """Send what was kept to all receivers that are there. One that is lost meanwhile holds
        nobody else up. Raises UsageError TW623 where a sender is gone."""
        assert self.version is not None, "keep weights before"
        start, attempts = time_ns(), 0
        while True:
            attempts += 1
            before = self._alive
            outcome = self._attempt(stages or self.job.sync.stages, start, attempts)
            broken = any(
                problem.code == "TW623"
                for problems in outcome.failed.values()
                for problem in problems
            )
            if not broken or len(self._alive) == len(before) or not self._alive:
                return outcome

    def recover(self, number: int, peer: Peer | None = None) -> UpdateResult:
        """A receiver, or the process in its place, reads what it needs from host copies; nobody
        else hears of it but their owners' readers."""
        assert self.version is not None, "keep weights before"
        if peer is not None:
            self.receivers[number].end()
            self.receivers[number] = peer
            self._teach(number)
        owners = {unit.name: owner for owner, own in enumerate(self._owned) for unit in own}
        start = time_ns()
        report = self._told(
            self.receivers[number], "recover", self._addresses, owners, self.version
        )
        return UpdateResult(self.version, start, time_ns(), {}, {number: report})

    def unequal(self) -> list[str]:
        """Parts of received tensors that are not, bit for bit, those of the owners' host copies; of
        all receivers that are there."""
        found: list[str] = []
        for number, peer in enumerate(self.receivers):
            if peer.gone:
                continue
            takes, held = self._told(peer, "takes"), self._told(peer, "digests")
            wanted: dict[str, list[str]] = {}
            for sender in self.senders:
                wanted |= self._told(sender, "digests", takes)
            wrong = [name for name in takes if held[name] != wanted[name]]
            found += [f"{name} of receiver {number}" for name in wrong]
        return found

    def spent(self) -> dict[int, tuple[StageSpan, ...]]:
        """What senders did since the last update: keeping, or reading."""
        found = self._all(dict.fromkeys(self.senders, ("spent", ())))
        return {number: found[peer] for number, peer in enumerate(self.senders)}

    def end(self) -> None:
        """All processes end."""
        for peer in [*self.receivers, *self.senders]:
            peer.end()

    @property
    def _patience(self) -> float:
        """Longer than that of ranks with each other, which say then what is wrong."""
        return 4 * self.job.sync.patience

    @property
    def _alive(self) -> list[Peer]:
        return [peer for peer in self.receivers if not peer.gone]

    def _own(self, owned: tuple[tuple[Unit, ...], ...]) -> None:
        """Senders take their shares, unless they have them already."""
        if owned == self._owned:
            return
        requests = {peer: ("own", (own,)) for peer, own in zip(self.senders, owned, strict=True)}
        found = self._all(requests)
        self._owned = owned
        self._addresses = tuple(found[peer] for peer in self.senders)

    def _teach(self, number: int) -> int:
        seat, tied = self._seats[number], self.job.model.tied_embeddings
        return self._told(self.receivers[number], "learn", self.units, seat, tied)

    def _attempt(self, stages: Stages, start: int, attempt: int) -> UpdateResult:
        """An update with those that are there."""
        sync, space = self.job.sync, self.buffers
        there = self._alive  # behind the question for memory, which the dead do not answer
        if there != self._there or attempt > 1:
            self._epoch, self._there = self._epoch + 1, there
        everyone, (host, port) = [*self.senders, *there], self._place
        made, version = self.buckets(space), self.version
        assert version is not None
        requests: dict[Peer, tuple[str, Sequence[Any]]] = {}
        for rank, peer in enumerate(everyone):
            place = (self._epoch, rank, len(self.senders), len(everyone), sync.patience)
            meeting = Meeting(host, port, *place)
            requests[peer] = (
                "update",
                (UpdateOrder(meeting, sync.wire, stages, made, space, version),),
            )
        found = ask(requests, self._patience)
        senders = self._senders(found)
        took, failed = dict[int, RankReport](), dict[int, tuple[Problem, ...]]()
        for number, peer in enumerate(self.receivers):
            answer = found.get(peer)
            if isinstance(answer, RankReport):
                took[number] = answer
            elif answer is not None and not peer.gone:
                failed[number] = tuple(answer.problems)
        lost = tuple(number for number, peer in enumerate(self.receivers) if peer.gone)
        return UpdateResult(version, start, time_ns(), senders, took, lost, failed, stages, attempt)

    def _senders(self, found: Mapping[Peer, Any]) -> dict[int, RankReport]:
        """Their reports. One that is gone ends the job; one that another's end has stopped has
        none."""
        reports: dict[int, RankReport] = {}
        for number, peer in enumerate(self.senders):
            answer = found[peer]
            if isinstance(answer, RankReport):
                reports[number] = answer
            elif peer.gone or any(problem.code != "TW623" for problem in answer.problems):
                raise answer
        return reports

    def _told(self, peer: Peer, word: str, *arguments: Any) -> Any:
        return self._all({peer: (word, arguments)})[peer]

    def _all(self, requests: Mapping[Peer, tuple[str, Sequence[Any]]]) -> dict[Peer, Any]:
        """The values of all; the first error is raised."""
        values = ask(requests, self._patience)
        for answer in values.values():
            if isinstance(answer, UsageError):
                raise answer
        return values
