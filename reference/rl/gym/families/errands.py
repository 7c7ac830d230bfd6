"""Tools called over several turns: a store of numbers first, then the simulated applications of
`reference.agentic`, each judged by the world's end state."""

from __future__ import annotations

from typing import Final

from reference.agentic.chance import drawn
from reference.agentic.environment import Budget, Turn, play
from reference.agentic.run import Scene, preset_scene
from reference.agentic.simulated import Simulated
from reference.evaluate.worlds.store import store
from reference.generate.request import Sampling
from reference.generate.rules import RuleGenerator
from reference.rl.gym.environments import Item, NarrowedEnvironment, Turns, texts, tricks, turns_of

_STEPS: Final = (0, 0, 1, 2)
"""Calls that an errand needs at least, by level; 0: the store."""
_EACH: Final = 64
"""Numbers of errands that belong to one seed; some agents have none of the wanted length."""
_TRIES: Final = 40


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    return _stored(level, seed) if level < 3 else _errand(level, seed)


def _stored(level: int, seed: int) -> Item:
    draw = drawn("errands", level, seed)
    names = draw.sample([a + b for a in "bdfgklmnpst" for b in "aeiou"], 3)
    held, other = draw.sample(range(1, 100), 2)
    holds = {names[0]: held}
    kind = "put" if level == 1 else draw.choice(("get", "drop", "swap"))
    name, new = names[0], names[1]
    get, put = ("get", {"name": name}), ("put", {"name": new, "value": held})
    # The calls of the solution, its last words, and what is held then.
    calls, says, goal = {
        "put": ([("put", {"name": new, "value": other})], "", {**holds, new: other}),
        "get": ([get], str(held), holds),
        "drop": ([("drop", {"name": name})], "", {}),
        "swap": ([get, put], "", {**holds, new: held}),
    }[kind]
    request = texts("errands")["requests"][kind].format(name=name, new=new, other=other)
    solution = (*(Turn(calls=(call,)) for call in calls), Turn(says or "done"))
    row = {"holds": holds, "goal": goal, "asked": request, "says": says}
    world = NarrowedEnvironment(store(row), ("put",) if level == 1 else ("put", "get", "drop"))
    guess = (Turn(f"It is {held}."), Turn(str(held)))
    return Item(
        world,
        lambda: solution,
        lambda: {**tricks(world), "answers without a call": guess},
        (kind,),
    )


def _errand(level: int, seed: int) -> Item:
    world = _found(preset_scene("nano"), _STEPS[level - 1], seed)
    tags = tuple(sorted({world.task.tools[step.tool].operation for step in world.task.steps}))
    return Item(world, lambda: _solved(world), lambda: tricks(world), tags)


def _found(played: Scene, steps: int, seed: int) -> Simulated:
    """The first errand of the seed's that takes so many calls."""
    for at in range(seed * _EACH, (seed + 1) * _EACH):
        world = played.environment(at)
        if world is not None and len(world.task.steps) == steps:
            return world
    raise AssertionError((steps, seed))


def _solved(world: Simulated) -> Turns:
    """What rules that know the plan do, with a seed that lets them make no mistake."""
    for seed in range(_TRIES):
        played = play(world, RuleGenerator(), Budget(sampling=Sampling(seed=seed)))
        if played.verdict.success:
            return turns_of(played.dialog)
    raise AssertionError(world.task.id)
