"""Iterations of reinforcement learning: which plans have one, and their answers, played in a
process of their own and shared between all who ask."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from twin.answers import ask
from twin.kinds.iteration.report import IterationReport
from twin.loading.files import find_scenario, read_family
from twin.loading.tree import Branch
from twin.scenario import Scenario
from twin.ui.answers import Failure, Question, away, command, guarded, question, scenario_of
from twin.ui.desk import Desk, Draft
from twin.ui.jobs import Jobs, Pending
from twin.ui.known import Known
from twin.ui.worker import Note, Worker


def iterating(desk: Desk, known: Known) -> tuple[Draft, ...]:
    """The plans on the desk that have an iteration, then the app's scenarios that have one, in its
    order."""
    own = tuple(plan for plan in desk.plans if _has_one(plan, known))
    as_written = {plan.scenario for plan in own if plan.text is None and not plan.edits}
    others = (
        Draft(name, name)
        for name, file in known.files.items()
        if name not in as_written and _iterates(file, known.stamp)
    )
    return (*own, *others)


def _has_one(plan: Draft, known: Known) -> bool:
    """Whether a plan has an iteration; one whose edits are wrong has what it had before."""
    tries = (plan, plan.original)
    found = (scenario_of(question(known, one.scenario, one.text, one.sets)) for one in tries)
    made = next((one for one in found if isinstance(one, Scenario)), None)
    return made is not None and made.rl is not None and made.rl.iteration is not None


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


def answer(asked: Question) -> Pending[IterationReport | Failure]:
    """The answer to a plan; in the making, or made."""
    return _ITERATIONS.ask(asked, lambda note: away(_PLAYER, play, (asked,), note))


def play(asked: Question, note: Note) -> IterationReport | Failure:
    """The answer to a plan, played now."""
    del note
    scenario = scenario_of(asked)
    if not isinstance(scenario, Scenario):
        return scenario
    return guarded(lambda: _answer(scenario, command(asked)))


def _answer(scenario: Scenario, told: str) -> IterationReport:
    return ask(scenario, command=told).report


_ITERATIONS: Final = Jobs("twin iterations")
_PLAYER: Final = Worker()
