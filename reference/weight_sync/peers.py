"""Processes that do what a controller asks: a word and its arguments over a pipe, and an answer or
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
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any, Final

from reference.cluster.launch import DEATH_SIGNAL
from twin.errors import Problem, TwinError, UsageError

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
