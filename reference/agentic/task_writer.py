"""Tasks by search: chains of calls that the agent's tools allow, played while they are written.

A chain has a start, hops and an end, each planned by an operation. It is taken if it has the wanted
depth and every call works, so every task can be solved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from reference.agentic.agent import Agent
from reference.agentic.chance import drawn
from reference.agentic.domain import Tables, create_tables, entities, spoken, table, words
from reference.agentic.operations.base import (
    FromResult,
    PlannedCall,
    Source,
    Stated,
    Subject,
    TaskView,
    ToldFact,
    ToolSpec,
    operations,
)
from reference.agentic.spec import TasksSpec
from reference.agentic.world import ERROR, World, act, written
from reference.dialog import Call
from reference.generate.skills.act import value_at


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One call of the chain."""

    tool: str
    arguments: Mapping[str, Source]
    purpose: str = ""
    """A checkpoint of the rubric, such as `finds the parcel`."""


@dataclass(frozen=True, slots=True)
class Persona:
    """A user and their way of talking."""

    name: str
    style: str
    patient: bool
    """Asks once more if the agent gives up."""


@dataclass(frozen=True, slots=True)
class UserGoal:
    """One request of the user; the second comes after the answer to the first."""

    words: str
    steps: tuple[int, int]
    """Its first step, and the one after its last."""
    facts: tuple[ToldFact, ...]


@dataclass(frozen=True, slots=True)
class TaskRubric:
    """What a good dialogue has besides the right end state."""

    facts: tuple[str, ...]
    """Values that the answer must state, as they are said."""
    tools: tuple[str, ...]
    """Expected tools, in the order of the chain."""
    checkpoints: tuple[str, ...]
    most_calls: int
    """More calls than this count as spraying."""


@dataclass(frozen=True, slots=True)
class ToolTask:
    """One task in one world."""

    id: str
    seed: int
    agent: Agent
    depth: int
    """Length of the longest chain of calls in which each needs the result before it."""
    goals: tuple[UserGoal, ...]
    steps: tuple[ChainStep, ...]
    stated: Mapping[str, Stated]
    """All values that the user states, by slot."""
    withheld: frozenset[str]
    """Slots that the user states only when asked."""
    persona: Persona
    rubric: TaskRubric
    tables: Tables
    """The world before the task."""
    expected: Tables
    """The world after the chain."""

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """The agent's tools by name."""
        return {tool.name: tool for tool in self.agent.tools}


_CHANGES: Final = 0.65
"""Share of the goals that change something, if the tools can."""
_BY_NAME: Final = 0.7
"""Share of the chains that begin with a name, not an id."""
_COPIES: Final = 0.15
"""Share of the longer chains that copy a value from one row to another."""
_LONG: Final = 5
"""Chains of this depth end with a copy: only then every call needs the one before."""
_TRIES: Final = 40
"""Chains tried per depth."""


@dataclass(slots=True)
class _Draft:
    """A growing chain, with the world that it is played in."""

    world: World
    tools: Mapping[str, ToolSpec]
    steps: list[ChainStep] = field(default_factory=list[ChainStep])
    results: list[Any] = field(default_factory=list[Any])
    stated: dict[str, Stated] = field(default_factory=dict[str, Stated])

    def copy(self) -> _Draft:
        return replace(self, steps=[*self.steps], results=[*self.results], stated=dict(self.stated))


def write_task(agent: Agent, spec: TasksSpec, terse: bool, at: int, seed: int) -> ToolTask | None:
    """Task number `at`; None if the agent's tools allow none."""
    own_seed = drawn("task", seed, at).randrange(2**31)
    draw = drawn("chain", own_seed)
    names = list(dict.fromkeys(tool.entity for tool in agent.tools if tool.entity))
    tables = create_tables(names, spec.rows, spec.digits, own_seed)
    start = _Draft(World(tables), {tool.name: tool for tool in agent.tools if tool.operation})
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
            frame = _Frame(at, own_seed, agent, tables, spec.withheld, terse)
            return _task(frame, draft, goals)
    return None


@dataclass(frozen=True, slots=True)
class _Wish:
    """A goal before it is decided what the user withholds."""

    words: str
    vague: Mapping[str, str]
    steps: tuple[int, int]
    facts: tuple[ToldFact, ...]


def _goal(draft: _Draft, agent: Agent, depth: int, draw: Random, terse: bool) -> _Wish | None:
    """A goal with a chain of this depth, played in the draft's world."""
    first = len(draft.steps)
    view = TaskView(draft.world.tables, draw, terse)
    own = [tool for tool in draft.tools.values() if tool.application == agent.application]
    # A copied value makes two calls of the end.
    copied = depth >= _LONG or (depth > 2 and not terse and draw.random() < _COPIES)
    left = depth - (2 if copied else 1)
    at = _named(view, own)
    if left > 0 and draw.random() < _BY_NAME:
        found = _start(draft, view, own)
        if found is not None:
            at, left = found, left - 1
    seen = {at.key} if at else set[str]()
    while at is not None and left > 0:
        at, left = _hop(draft, view, own, at), left - 1
        if at is None or at.key in seen:
            return None
        seen.add(at.key)
    if at is None:
        return None
    if copied:
        return _copy(draft, view, own, at, first)
    # Changes first in most tasks, since there are more ways to read.
    changes = draw.random() < _CHANGES
    mixed = draw.sample(own, len(own))
    for tool in sorted(mixed, key=lambda tool: (tool.effect == "read") == changes):
        call = operations()[tool.operation].end(tool, view, at)
        if call is not None and _play(draft, tool, call):
            facts = tuple(replace(fact, step=len(draft.steps) - 1) for fact in call.facts)
            span = (first, len(draft.steps))
            news = _is_news(draft, call, facts)
            return _Wish(call.words, call.vague, span, facts) if news else None
    return None


def _copy(
    draft: _Draft, view: TaskView, own: list[ToolSpec], at: Subject, first: int
) -> _Wish | None:
    """A value of the subject, copied to another row that the user names."""
    entity, rows = at.entity, view.tables[at.entity.name]
    reads = [tool for tool in own if (tool.operation, tool.entity) == ("get", entity.name)]
    writes = [tool for tool in own if (tool.operation, tool.entity) == ("assign", entity.name)]
    others = [key for key in rows if key != at.key]
    if not reads or not writes or not others:
        return None
    write, other = view.draw.choice(writes), view.draw.choice(others)
    field = entity.field(write.binding["field"])
    words = f"the {field.words} of {at.words}"
    if not _play(
        draft, reads[0], PlannedCall({entity.id_name: at.source}, words, f"reads {words}")
    ):
        return None
    given: dict[str, Source] = {
        entity.id_name: Stated("other", other, other, f"other {entity.words}"),
        field.name: FromResult(len(draft.steps) - 1, (field.name,)),
    }
    request = f"give {entity.words} {other} the same {field.words} as {at.words}"
    if not _play(draft, write, PlannedCall(given, request, f"sets the {field.words}")):
        return None
    return _Wish(request, {}, (first, len(draft.steps)), ())


def _named(view: TaskView, own: list[ToolSpec]) -> Subject | None:
    """A row whose id the user states."""
    names = sorted({tool.entity for tool in own})
    names = list(dict.fromkeys([*names, *(entities()[name].parent or name for name in names)]))
    names = [name for name in names if view.tables.get(name)]
    if not names:
        return None
    entity = entities()[view.draw.choice(names)]
    key = view.draw.choice(list(view.rows(entity)))
    stated = Stated(f"{entity.name}.id", key, key, f"{entity.words} id")
    return Subject(entity, key, stated, f"{entity.words} {key}")


def _start(draft: _Draft, view: TaskView, own: list[ToolSpec]) -> Subject | None:
    for tool in view.draw.sample(own, len(own)):
        call = operations()[tool.operation].start(tool, view)
        if call is not None and _play(draft, tool, call):
            return _reached(draft, call)
    return None


def _hop(draft: _Draft, view: TaskView, own: list[ToolSpec], at: Subject) -> Subject | None:
    for tool in view.draw.sample(own, len(own)):
        call = operations()[tool.operation].hop(tool, view, at)
        if call is not None and _play(draft, tool, call):
            return _reached(draft, call)
    return None


def _reached(draft: _Draft, call: PlannedCall) -> Subject:
    key = value_at(draft.results[-1], call.finds)
    source = FromResult(len(draft.steps) - 1, call.finds)
    return Subject(entities()[call.entity], key, source, call.words)


def _play(draft: _Draft, tool: ToolSpec, planned: PlannedCall) -> bool:
    """Whether the call works and finds its row; then it becomes a step of the draft."""
    step = ChainStep(tool.name, planned.arguments, planned.purpose)
    given = arguments_of(step, draft.results)
    stated = {one.slot: one for one in planned.arguments.values() if isinstance(one, Stated)}
    if given is None or any(draft.stated.get(slot, one) != one for slot, one in stated.items()):
        return False
    call = Call("", tool.name, written(given))
    world, text = act(draft.world, call, draft.tools, None, 0)
    if text.startswith(ERROR):
        return False
    if tool.effect != "read" and world.tables == draft.world.tables:
        return False
    result = json.loads(text)
    if planned.finds and not isinstance(value_at(result, planned.finds), str):
        return False
    draft.world = world
    draft.steps.append(step)
    draft.results.append(result)
    draft.stated.update(stated)
    return True


def _is_news(draft: _Draft, call: PlannedCall, facts: tuple[ToldFact, ...]) -> bool:
    """Whether the user's words do not state the facts already."""
    texts = [call.words, *(value.text for value in draft.stated.values())]
    said = " ".join(texts).casefold().split()
    for fact in facts:
        value = value_at(draft.results[fact.step], fact.place)
        if value is None or spoken(value, fact.kind).casefold() in said:
            return False
    return True


def arguments_of(step: ChainStep, results: list[Any]) -> dict[str, Any] | None:
    """The arguments of the step's call; None if a result lacks a value."""
    made = {name: _source_value(source, results) for name, source in step.arguments.items()}
    return None if None in made.values() else made


def _source_value(source: Source, results: list[Any]) -> Any:
    if not isinstance(source, FromResult):
        return source.value
    return value_at(results[source.step], source.place)


def _depth(steps: list[ChainStep]) -> int:
    """Length of the longest chain of calls in which each needs a result before it."""
    deep: list[int] = []
    for step in steps:
        sources = step.arguments.values()
        needs = [deep[source.step] for source in sources if isinstance(source, FromResult)]
        deep.append(1 + max(needs, default=0))
    return max(deep)


@dataclass(frozen=True, slots=True)
class _Frame:
    """The parts of a task besides its chain."""

    number: int
    seed: int
    agent: Agent
    tables: Tables
    withheld: float
    terse: bool


def _task(frame: _Frame, draft: _Draft, wishes: list[_Wish]) -> ToolTask:
    draw = drawn("manner", frame.seed)
    persona = persona_of(draw, frame.terse)
    vague = {slot: text for wish in wishes for slot, text in wish.vague.items()}
    slots = sorted(vague) if draw.random() < frame.withheld else []
    withheld = frozenset(draw.sample(slots, min(1, len(slots))))
    goals: list[UserGoal] = []
    for wish in wishes:
        text = wish.words
        for slot, value in draft.stated.items():
            text = text.replace(f"<{slot}>", vague[slot] if slot in withheld else value.text)
        said = opening_words(text, persona, draw) if not goals else sentence(text, persona)
        goals.append(UserGoal(said, wish.steps, wish.facts))
    facts = [fact for wish in wishes for fact in wish.facts]
    told = [spoken(value_at(draft.results[fact.step], fact.place), fact.kind) for fact in facts]
    rubric = TaskRubric(
        tuple(told),
        tuple(step.tool for step in draft.steps),
        tuple(step.purpose for step in draft.steps),
        2 * len(draft.steps) + 4,
    )
    return ToolTask(
        f"{frame.agent.name}.{frame.number}",
        frame.seed,
        frame.agent,
        _depth(draft.steps),
        tuple(goals),
        tuple(draft.steps),
        draft.stated,
        withheld,
        persona,
        rubric,
        frame.tables,
        draft.world.tables,
    )


def persona_of(draw: Random, terse: bool) -> Persona:
    """A user; a terse one if `terse`."""
    name = draw.choice(words("user"))
    style = draw.choice(list(table("phrases")["styles"]))
    patient = draw.random() < 0.5
    return Persona(name, "terse" if terse else style, patient and not terse)


def opening_words(goal: str, persona: Persona, draw: Random) -> str:
    """The goal in the user's first message."""
    if persona.style == "terse":
        return sentence(goal, persona)
    form = draw.choice(table("phrases")["styles"][persona.style])
    said = form.format(g=goal, n=persona.name)
    return said[0].upper() + said[1:] if persona.style != "hurried" else said


def sentence(goal: str, persona: Persona) -> str:
    """A goal in a later message."""
    if persona.style == "terse":
        return f"{goal[0].upper()}{goal[1:]}."
    lead = {"polite": "Thank you. Please also ", "hurried": "and also ", "formal": "Further: "}
    return f"{lead.get(persona.style, 'One more thing: ')}{goal}."
