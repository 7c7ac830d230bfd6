"""Rollouts over the toy worlds, for tests."""

from __future__ import annotations

from typing import Any

from reference.dialog import Call, Message
from reference.rl.environments import EnvironmentsSpec, InProcess
from reference.rl.records import Response, opening
from reference.rl.rollout import Rollout, RolloutSpec
from reference.rl.tasks import RlTask, TasksSpec, tasks_of
from tests.reference.inference.small import VOCABULARY

SUMS = tasks_of([TasksSpec(source="sums", count=8)])
CHARACTERS = tasks_of([TasksSpec(source="characters", count=3)])


def adds(*steps: int) -> Message:
    """A message that calls `add` for each of some numbers."""
    calls = tuple(Call(f"functions.add:{at}", "add", f'{{"n": {n}}}') for at, n in enumerate(steps))
    return Message("assistant", calls=calls)


def steps_to(goal: int) -> list[Message]:
    """The messages that reach a goal by threes, two calls at a time, and say so."""
    numbers = [3] * (goal // 3) + ([goal % 3] if goal % 3 else [])
    pairs = [numbers[at : at + 2] for at in range(0, len(numbers), 2)]
    return [*(adds(*pair) for pair in pairs), Message("assistant", "done")]


def responses(tasks: dict[str, RlTask], each: int = 1) -> list[Response]:
    """Answers to all tasks that have not begun; seeds are numbers from 0."""
    found: list[Response] = []
    for group, task in enumerate(tasks.values()):
        said = task.environment.opening
        prompt = opening(VOCABULARY, said)
        for index in range(each):
            place: dict[str, Any] = {"group": group, "index": index, "seed": len(found)}
            facts: dict[str, Any] = {"task": task.name, "kind": task.kind, "prompt": prompt}
            state = task.environment.start()
            found.append(Response(**place, **facts, dialog=said, state=state))
    return found


def rollout(
    engine: Any, tasks: dict[str, RlTask], *, context: int = 2000, **fields: Any
) -> Rollout:
    """A rollout in this process; `latency`, `at_once` and `spread` are the environments'."""
    slow = {name: fields.pop(name) for name in ("latency", "at_once", "spread") if name in fields}
    spec = RolloutSpec.model_validate({"cap": 2000, "slice": 0, "repeat": {"window": 0}, **fields})
    environments = EnvironmentsSpec.model_validate(slow)
    return Rollout(engine, InProcess(tasks), spec, environments, context)
