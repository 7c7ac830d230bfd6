"""Tasks by search: chains of calls that the agent's tools allow, played as they are written.

Start -> hops -> end, each the part of an operation. A chain is taken where it has the depth that is
wanted and every call of it works, so every task is solvable by what it holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from reference.agentic.agent import Agent
from reference.agentic.chance import drawn
from reference.agentic.domain import entities
from reference.agentic.operation import operations
from reference.agentic.spec import TasksSpec
from reference.agentic.tables import Tables, create_tables
from reference.agentic.tasks.manner import opening_words, persona_of, sentence
from reference.agentic.tasks.plan import (
    At,
    Fact,
    Found,
    Look,
    Meant,
    Place,
    Said,
    Source,
    Step,
    Use,
)
from reference.agentic.tasks.task import Goal, Rubric, Task
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.values import KINDS
from reference.agentic.world import ERROR, World, act, written
from reference.dialog import Call

_CHANGES: Final = 0.65
"""Share of the goals that change something, where the tools can."""
_BY_NAME: Final = 0.7
"""Share of the chains that begin with a name, not with an id."""
_COPIES: Final = 0.15
"""Share of the longer chains that carry a value from one thing to another."""
_LONG: Final = 5
"""Chains of this depth end that way: only then every call needs the one before."""
_TRIES: Final = 40
"""Chains that are tried for one depth."""


@dataclass(slots=True)
class _Draft:
    """A chain as it grows, with the world that it has been played on."""

    world: World
    tools: Mapping[str, ToolSpec]
    steps: list[Step] = field(default_factory=list[Step])
    results: list[Any] = field(default_factory=list[Any])
    said: dict[str, Said] = field(default_factory=dict[str, Said])

    def copy(self) -> _Draft:
        return replace(self, steps=[*self.steps], results=[*self.results], said=dict(self.said))


def write_task(agent: Agent, spec: TasksSpec, terse: bool, at: int, seed: int) -> Task | None:
    """Task number `at`; None where the agent's tools allow none."""
    own_seed = drawn("task", seed, at).randrange(2**31)
    draw = drawn("chain", own_seed)
    kinds = list(dict.fromkeys(one.entity for one in agent.tools if one.entity))
    tables = create_tables(kinds, spec.rows, spec.digits, own_seed)
    start = _Draft(World(tables), {one.name: one for one in agent.tools if one.operation})
    wanted = spec.depths[at % len(spec.depths)]
    for depth in range(wanted, 0, -1):
        for _ in range(_TRIES):
            draft = start.copy()
            goal = _goal(draft, agent, depth, draw, terse)
            if goal is None:
                continue
            goals = [goal]
            second = draw.random() < spec.second
            more = draft.copy()
            if second and (other := _goal(more, agent, min(depth, 2), draw, terse)) is not None:
                draft, goals = more, [goal, other]
            if _depth(draft.steps) != depth:
                continue
            back = spec.withheld
            return _task(_Frame(at, own_seed, agent, tables, back, terse), draft, goals)
    return None


@dataclass(frozen=True, slots=True)
class _Wish:
    """A goal before it is decided what the user keeps back."""

    words: str
    vague: Mapping[str, str]
    steps: tuple[int, int]
    facts: tuple[Fact, ...]


def _goal(draft: _Draft, agent: Agent, depth: int, draw: Random, terse: bool) -> _Wish | None:
    """A goal of a chain of this depth, played on the draft's world."""
    first = len(draft.steps)
    look = Look(draft.world.tables, draw, terse)
    own = [one for one in draft.tools.values() if one.application == agent.application]
    # A value that is read and written elsewhere makes two calls of the end.
    copied = depth >= _LONG or (depth > 2 and not terse and draw.random() < _COPIES)
    left = depth - (2 if copied else 1)
    at = _named(look, own)
    if left > 0 and draw.random() < _BY_NAME:
        found = _start(draft, look, own)
        if found is not None:
            at, left = found, left - 1
    seen = {at.key} if at else set[str]()
    while at is not None and left > 0:
        at, left = _hop(draft, look, own, at), left - 1
        if at is None or at.key in seen:
            return None
        seen.add(at.key)
    if at is None:
        return None
    if copied:
        return _copy(draft, look, own, at, first)
    # Changes first in most tasks: there are more ways to read than to change.
    changes = draw.random() < _CHANGES
    mixed = draw.sample(own, len(own))
    for tool in sorted(mixed, key=lambda one: (one.effect == "read") == changes):
        end = operations()[tool.operation].end
        use = end(tool, look, at) if end else None
        if use is not None and _play(draft, tool, use):
            facts = _facts(use, len(draft.steps) - 1)
            span = (first, len(draft.steps))
            return _Wish(use.words, use.vague, span, facts) if _news(draft, use, facts) else None
    return None


def _copy(draft: _Draft, look: Look, own: list[ToolSpec], at: At, first: int) -> _Wish | None:
    """A value of what was found, given to another thing that the user names."""
    entity, rows = at.entity, look.tables[at.entity.name]
    reads = [one for one in own if (one.operation, one.entity) == ("get", entity.name)]
    writes = [one for one in own if (one.operation, one.entity) == ("assign", entity.name)]
    others = [key for key in rows if key != at.key]
    if not reads or not writes or not others:
        return None
    write, other = look.draw.choice(writes), look.draw.choice(others)
    one = entity.field(write.binding["field"])
    words = f"the {one.words} of {at.words}"
    if not _play(draft, reads[0], Use({entity.id_name: at.source}, words, f"reads {words}")):
        return None
    said = Said("other", other, other, f"other {entity.words}")
    given: dict[str, Source] = {
        entity.id_name: said,
        one.name: Found(len(draft.steps) - 1, (one.name,)),
    }
    asked = f"give {entity.words} {other} the same {one.words} as {at.words}"
    if not _play(draft, write, Use(given, asked, f"sets the {one.words}")):
        return None
    return _Wish(asked, {}, (first, len(draft.steps)), ())


def _named(look: Look, own: list[ToolSpec]) -> At | None:
    """Something whose id the user says."""
    kinds = sorted({one.entity for one in own})
    kinds = list(dict.fromkeys([*kinds, *(entities()[one].parent or one for one in kinds)]))
    kinds = [kind for kind in kinds if look.tables.get(kind)]
    if not kinds:
        return None
    entity = entities()[look.draw.choice(kinds)]
    key = look.draw.choice(list(look.tables[entity.name]))
    said = Said(f"{entity.name}.id", key, key, f"{entity.words} id")
    return At(entity, key, said, f"{entity.words} {key}")


def _start(draft: _Draft, look: Look, own: list[ToolSpec]) -> At | None:
    for tool in look.draw.sample(own, len(own)):
        start = operations()[tool.operation].start
        use = start(tool, look) if start else None
        if use is not None and _play(draft, tool, use):
            return _found(draft, use)
    return None


def _hop(draft: _Draft, look: Look, own: list[ToolSpec], at: At) -> At | None:
    for tool in look.draw.sample(own, len(own)):
        hop = operations()[tool.operation].hop
        use = hop(tool, look, at) if hop else None
        if use is not None and _play(draft, tool, use):
            return _found(draft, use)
    return None


def _found(draft: _Draft, use: Use) -> At:
    key = value_at(draft.results[-1], use.finds)
    return At(entities()[use.entity], key, Found(len(draft.steps) - 1, use.finds), use.words)


def _play(draft: _Draft, tool: ToolSpec, use: Use) -> bool:
    """Whether the call works and finds what it should; it is a step of the draft then."""
    step = Step(tool.name, use.arguments, use.purpose)
    given = arguments_of(step, draft.results)
    said = {one.slot: one for one in use.arguments.values() if isinstance(one, Said)}
    if given is None or any(draft.said.get(slot, one) != one for slot, one in said.items()):
        return False
    call = Call("", tool.name, written(given))
    world, told = act(draft.world, call, draft.tools, None, 0)
    if told.startswith(ERROR):
        return False
    if tool.effect != "read" and world.tables == draft.world.tables:
        return False
    result = json.loads(told)
    if use.finds and not isinstance(value_at(result, use.finds), str):
        return False
    draft.world = world
    draft.steps.append(step)
    draft.results.append(result)
    draft.said.update(said)
    return True


def _facts(use: Use, step: int) -> tuple[Fact, ...]:
    return tuple(Fact(label, step, place, kind, choice) for label, place, kind, choice in use.facts)


def _news(draft: _Draft, use: Use, facts: tuple[Fact, ...]) -> bool:
    """Whether what is to be told cannot be read in what the user says."""
    said = f"{use.words} {' '.join(one.text for one in draft.said.values())}".casefold()
    for fact in facts:
        value = value_at(draft.results[fact.step], fact.place)
        if value is None or spoken(value, fact.kind).casefold() in said.split():
            return False
    return True


def arguments_of(step: Step, results: list[Any]) -> dict[str, Any] | None:
    """What the step's call is given; None where a result does not hold it."""
    made: dict[str, Any] = {}
    for name, source in step.arguments.items():
        value = _value(source, results)
        if value is None:
            return None
        made[name] = value
    return made


def _value(source: Source, results: list[Any]) -> Any:
    if isinstance(source, Said | Meant):
        return source.value
    return value_at(results[source.step], source.place)


def value_at(result: Any, place: Place) -> Any:
    """What stands at a place of a result; None where nothing does."""
    for at in place:
        if isinstance(result, dict):
            result = result.get(at)
        elif isinstance(result, list) and isinstance(at, int) and at < len(result):
            result = result[at]
        else:
            return None
    return result


def spoken(value: Any, kind: str) -> str:
    """A value as an answer says it."""
    return KINDS[kind].say(value) if kind in KINDS and value is not None else str(value)


def _depth(steps: list[Step]) -> int:
    """The longest chain of calls of which each needs one before it."""
    deep: list[int] = []
    for step in steps:
        needs = [deep[one.step] for one in step.arguments.values() if isinstance(one, Found)]
        deep.append(1 + max(needs, default=0))
    return max(deep)


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a task has besides its chain."""

    number: int
    seed: int
    agent: Agent
    tables: Tables
    withheld: float
    terse: bool


def _task(frame: _Frame, draft: _Draft, wishes: list[_Wish]) -> Task:
    draw = drawn("manner", frame.seed)
    persona = persona_of(draw, frame.terse)
    vague = {slot: words for one in wishes for slot, words in one.vague.items()}
    back = sorted(vague) if draw.random() < frame.withheld else []
    withheld = frozenset(draw.sample(back, min(1, len(back))))
    goals: list[Goal] = []
    for wish in wishes:
        words = wish.words
        for slot, said in draft.said.items():
            words = words.replace(f"<{slot}>", vague[slot] if slot in withheld else said.text)
        dressed = opening_words(words, persona, draw) if not goals else sentence(words, persona)
        goals.append(Goal(dressed, wish.steps, wish.facts))
    facts = [fact for one in wishes for fact in one.facts]
    told = [spoken(value_at(draft.results[one.step], one.place), one.kind) for one in facts]
    rubric = Rubric(
        tuple(told),
        tuple(one.tool for one in draft.steps),
        tuple(one.purpose for one in draft.steps),
        2 * len(draft.steps) + 4,
    )
    return Task(
        f"{frame.agent.name}.{frame.number}",
        frame.seed,
        frame.agent,
        _depth(draft.steps),
        tuple(goals),
        tuple(draft.steps),
        draft.said,
        withheld,
        persona,
        rubric,
        frame.tables,
        draft.world.tables,
    )
