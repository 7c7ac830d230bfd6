"""Answers to iterations of reinforcement learning, played in a process of their own and shared
between all who ask; and which scenarios have one."""

from __future__ import annotations

import shlex
from functools import lru_cache
from typing import Final

from twin.loading import load
from twin.loading.files import find_scenario, read_family
from twin.loading.tree import Branch
from twin.report.summary import Run
from twin.rl import iteration as rl
from twin.rl.iteration import IterationReport
from twin.ui.answers import Failure, away, guarded
from twin.ui.jobs import Jobs, Pending
from twin.ui.known import Known
from twin.ui.worker import Note, Worker


def iterating(known: Known) -> tuple[str, ...]:
    """Names of the scenarios that have an iteration, in the app's order."""
    return tuple(name for name, file in known.files.items() if _iterates(file, known.stamp))


@lru_cache(256)
def _iterates(file: str, as_of: int) -> bool:
    """Whether a file, as it stood at `as_of`, or one that it extends, has `rl.iteration`."""
    del as_of
    path = find_scenario(file)
    sections = (tree.children.get("rl") for tree in read_family(path).trees(path))
    return any(
        isinstance(one.node, Branch) and "iteration" in one.node.children
        for one in sections
        if one is not None
    )


def answer(file: str, as_of: int) -> Pending[IterationReport | Failure]:
    """The answer to a scenario, with the files as they stood at `as_of`; in the making, or made."""
    return _ITERATIONS.ask((file, as_of), lambda note: away(_PLAYER, play, (file,), note))


def play(file: str, note: Note) -> IterationReport | Failure:
    """The answer to a scenario, played now."""
    del note
    return guarded(lambda: _answer(file))


def _answer(file: str) -> IterationReport:
    plan = rl.plan(load(file))
    return rl.report(plan, rl.simulate(plan), Run(command=shlex.join(["twin", "run", file])))


_ITERATIONS: Final = Jobs("twin iterations")
_PLAYER: Final = Worker()
