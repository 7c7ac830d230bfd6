"""Agents: what one is told, and which tools it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from reference.agentic.chance import drawn
from reference.agentic.domain import entities
from reference.agentic.spec import AgentsSpec
from reference.agentic.tools.evolve import Repository
from reference.agentic.tools.spec import ToolSpec
from reference.agentic.words import words

_ROLES: Final = (
    "You are {n}, the assistant of the {a} at {f}.",
    "{f} runs a {a}; you are its assistant {n}.",
    "As {n} you work for the {a} of {f} and answer those who call.",
    "This is the {a} of {f}. You are {n}, and you act through tools.",
)
_RULES: Final = (
    "Use the tools for every fact; never make one up.",
    "Ask where something that a tool needs was not said.",
    "Change nothing that was not asked for.",
    "Say what you did in one or two sentences.",
    "Where a tool fails for a moment, try again.",
    "Ids are internal: find them by name where you can.",
    "Never delete anything without being told to.",
    "Be brief.",
)
_OWNED: Final = 0.7
"""Share of the agents that read what belongs to something, and so can go on to that."""
_SMALL: Final = 4
"""With more tools than these an agent has those of long chains."""
_START: Final = ("lookup", "search")


@dataclass(frozen=True, slots=True)
class Agent:
    """A system prompt and tools."""

    name: str
    system: str
    tools: tuple[ToolSpec, ...]
    category: str
    application: str
    split: str


def make_agents(
    repository: Repository, spec: AgentsSpec, terse: bool, seed: int
) -> tuple[Agent, ...]:
    """The agents, in turn over the applications; all tools of one are of one split."""
    by_application: dict[str, list[ToolSpec]] = {}
    for tool in repository.tools.values():
        if tool.operation:
            by_application.setdefault(tool.application, []).append(tool)
    names = sorted(by_application)
    drawn("applications", seed).shuffle(names)
    usable = [name for name in names if _usable(by_application[name])]
    if not usable:
        return ()
    made: list[Agent] = []
    for at in range(spec.count):
        application = usable[at % len(usable)]
        draw = drawn("agent", seed, at)
        tools = _choose(by_application[application], repository, spec, draw)
        split = repository.split(tools[0])
        system = _system(application, terse, draw)
        name = f"{application}-{at}"
        made.append(Agent(name, system, tools, tools[0].category, application, split))
    return tuple(made)


def _usable(tools: Sequence[ToolSpec]) -> bool:
    has = {one.operation for one in tools}
    return "get" in has and len(tools) >= 3


def _choose(
    own: Sequence[ToolSpec], repository: Repository, spec: AgentsSpec, draw: Random
) -> tuple[ToolSpec, ...]:
    """A way to find things, one to read them, one to change them, then by lot."""
    least, most = spec.tools
    size = draw.randint(least, most)
    split = repository.split(own[0])
    chosen: list[ToolSpec] = []

    def take(fit: Sequence[ToolSpec]) -> None:
        fresh = [one for one in fit if one not in chosen]
        if fresh and len(chosen) < size:
            chosen.append(draw.choice(fresh))

    reads = [one for one in own if one.operation == "get"]
    owned = [one for one in reads if entities()[one.entity].parent]
    first = draw.choice(owned if owned and draw.random() < _OWNED else reads)
    chosen.append(first)
    starts = [one for one in own if one.operation in _START]
    take([one for one in starts if one.entity == first.entity] or starts)
    take([one for one in own if one.effect != "read"] or own)
    if size > _SMALL:
        take([one for one in own if one.operation == "search" and entities()[one.entity].parent])
        take(reads)
    others = [
        one
        for one in repository.tools.values()
        if repository.split(one) == split and one.application != own[0].application
    ]
    while len(chosen) < size:
        before = len(chosen)
        take(others if others and draw.random() < spec.distractors else own)
        take(others if others and len(chosen) == before else ())
        if len(chosen) == before and all(one in chosen for one in own):
            break
    draw.shuffle(chosen)
    # The agent is of the application of its first tools, whatever distractors come first.
    ordered = sorted(chosen, key=lambda one: one.application != own[0].application)
    return tuple(ordered)


def _system(application: str, terse: bool, draw: Random) -> str:
    work = application.replace("_", " ")
    if terse:
        return f"You help with {work}."
    role = draw.choice(_ROLES).format(
        n=draw.choice(words("assistant")), a=work, f=draw.choice(words("employer"))
    )
    rules = draw.sample(_RULES, draw.randint(2, 4))
    return " ".join([role, *rules])
