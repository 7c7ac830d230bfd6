"""A small synthesis, a dialogue that is right in it, and dialogues made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from reference.agentic.environment import Budget, Trajectory, play
from reference.agentic.run import Scene, scene_of
from reference.agentic.simulated import Simulated
from reference.agentic.spec import SynthesisSpec
from reference.dialog import Call, Dialog, Message
from reference.generate.request import Sampling
from reference.generate.rules import RuleGenerator

SMALL = {
    "kept": 12,
    "repository": {
        "tools": 80,
        "categories": ["finance", "travel", "charity"],
        "near": {"shingle": 3, "permutations": 32},
    },
    "agents": {"count": 18},
}
QUIET = {"chance": {"transient": 0.0, "partial": 0.0, "edge": 0.0}}


def spec_of(**more: object) -> SynthesisSpec:
    """The small synthesis, with other words."""
    return SynthesisSpec.model_validate({**SMALL, **more})


@cache
def scene() -> Scene:
    """The small synthesis, in which tools never fail by themselves."""
    return scene_of(spec_of(**QUIET))


@cache
def environments() -> tuple[Simulated, ...]:
    """Its first tasks."""
    found = (scene().environment(at) for at in range(60))
    return tuple(one for one in found if one is not None)


def asking(**wanted: object) -> Simulated:
    """A task with facts to tell (`facts`), changes (`changes`), two goals, ..."""
    return next(one for one in environments() if _fits(one, wanted))


def _fits(environment: Simulated, wanted: dict[str, object]) -> bool:
    task = environment.task
    has = {
        "facts": bool(task.rubric.facts),
        "changes": task.tables != task.expected,
        "withheld": bool(task.withheld),
        "goals": len(task.goals),
        "depth": task.depth,
    }
    return all(has[name] == value for name, value in wanted.items())


def right(environment: Simulated) -> Trajectory:
    """A dialogue of a careful agent that does the task."""
    for seed in range(60):
        found = play(environment, RuleGenerator(), Budget(sampling=Sampling(seed=seed)))
        if found.verdict.success:
            return found
    raise AssertionError(environment.task)


def performed(environment: Simulated, said: Sequence[Message]) -> Dialog:
    """The opening, and these turns of assistant and user, with the results that the world gives."""
    opening = environment.opening
    state, messages = environment.start(), list(opening.messages)
    count = 0
    for one in said:
        calls = tuple(
            Call(f"functions.{call.name}:{count + at}", call.name, call.arguments)
            for at, call in enumerate(one.calls)
        )
        count += len(calls)
        messages.append(Message(one.role, one.content, calls))
        for call in calls:
            state, told = environment.call(state, call)
            messages.append(Message("tool", told, answers=call.id))
    return Dialog(tuple(messages), opening.tools)


def turns(dialog: Dialog) -> list[Message]:
    """What assistant and user say behind the opening."""
    return [one for one in dialog.messages[2:] if one.role != "tool"]
