"""Answers to weight updates. They take a fraction of a second, so they are made while the page is
drawn; what a scenario says does not depend on who asks, so they are shared."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from twin.answers import ask
from twin.kinds.weight_update.alternatives import Alternative, alternatives
from twin.kinds.weight_update.report import UpdateReport
from twin.kinds.weight_update.types import UpdateProgram, UpdateTrace
from twin.loading import load_any
from twin.scenario import UpdateScenario
from twin.ui.answers import Failure, guarded

_KEPT: Final = 64
"""Answers kept."""


@dataclass(frozen=True, slots=True)
class Update:
    """A weight update, answered."""

    scenario: UpdateScenario
    program: UpdateProgram
    trace: UpdateTrace
    report: UpdateReport
    others: tuple[Alternative, ...]


@lru_cache(_KEPT)
def answer(file: str, sets: tuple[str, ...], as_of: int) -> Update | Failure:
    """The answer to a scenario under edits, with the files as they stood at `as_of`."""
    del as_of
    return guarded(lambda: _answer(file, sets))


def _answer(file: str, sets: tuple[str, ...]) -> Update:
    scenario = load_any(file, sets)
    assert isinstance(scenario, UpdateScenario), "only weight updates are offered"
    words = (word for text in sets for word in ("--set", text))
    run = ask(scenario, command=shlex.join(["twin", "run", file, *words]))
    others = alternatives(scenario, run.report)
    return Update(scenario, run.program, run.trace, run.report, others)
