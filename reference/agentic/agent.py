"""Agents: their system prompts and tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from reference.agentic.chance import drawn
from reference.agentic.domain import entities, table, words
from reference.agentic.operations.base import ToolSpec
from reference.agentic.repository import ToolRepository
from reference.agentic.spec import AgentsSpec

_OWNED: Final = 0.7
"""Share of the agents that read an entity with an owner, and so can continue to the owner."""
_SMALL: Final = 4
"""Agents with more tools than this have the tools of long chains."""
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
    repository: ToolRepository, spec: AgentsSpec, terse: bool, seed: int
) -> tuple[Agent, ...]:
    """The agents, in turn over the applications; all tools of an agent are of one split."""
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
    return len(tools) >= 3 and any(tool.operation == "get" for tool in tools)


def _choose(
    own: Sequence[ToolSpec], repository: ToolRepository, spec: AgentsSpec, draw: Random
) -> tuple[ToolSpec, ...]:
    """A tool that finds, one that reads, one that changes, then drawn ones."""
    least, most = spec.tools
    size = draw.randint(least, most)
    split = repository.split(own[0])
    chosen: list[ToolSpec] = []

    def take(fit: Sequence[ToolSpec]) -> None:
        fresh = [tool for tool in fit if tool not in chosen]
        if fresh and len(chosen) < size:
            chosen.append(draw.choice(fresh))

    reads = [tool for tool in own if tool.operation == "get"]
    owned = [tool for tool in reads if entities()[tool.entity].parent]
    first = draw.choice(owned if owned and draw.random() < _OWNED else reads)
    chosen.append(first)
    starts = [tool for tool in own if tool.operation in _START]
    take([tool for tool in starts if tool.entity == first.entity] or starts)
    take([tool for tool in own if tool.effect != "read"] or own)
    if size > _SMALL:
        searches = [tool for tool in own if tool.operation == "search"]
        take([tool for tool in searches if entities()[tool.entity].parent])
        take(reads)
    others = [
        tool
        for tool in repository.tools.values()
        if repository.split(tool) == split and tool.application != own[0].application
    ]
    while len(chosen) < size:
        before = len(chosen)
        take(others if others and draw.random() < spec.distractors else own)
        take(others if others and len(chosen) == before else ())
        if len(chosen) == before and all(tool in chosen for tool in own):
            break
    draw.shuffle(chosen)
    # Tools of the agent's own application come first.
    return tuple(sorted(chosen, key=lambda tool: tool.application != own[0].application))


def _system(application: str, terse: bool, draw: Random) -> str:
    work = application.replace("_", " ")
    if terse:
        return f"You help with {work}."
    role = draw.choice(table("phrases")["roles"]).format(
        n=draw.choice(words("assistant")), a=work, f=draw.choice(words("employer"))
    )
    rules = draw.sample(table("phrases")["rules"], draw.randint(2, 4))
    return " ".join([role, *rules])
