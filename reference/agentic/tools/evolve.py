"""Category -> application -> tools: every operation on every kind of things, sifted, evened out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from reference.agentic.chance import drawn, number
from reference.agentic.domain import entities
from reference.agentic.operation import operations
from reference.agentic.spec import RepositorySpec
from reference.agentic.tools.near import sift
from reference.agentic.tools.spec import ToolSpec
from reference.sandbox.schema import check_schema

_FIRST: Final = ("get", "search", "lookup")
"""Operations without which an application has few tasks: these are taken first."""


@dataclass(frozen=True, slots=True)
class Repository:
    """The tools, and what became of the other candidates."""

    tools: Mapping[str, ToolSpec]
    candidates: int
    rejected: tuple[str, ...]
    """Near-duplicates, each with what it resembles."""
    held_out: frozenset[str]
    """Applications that no training dialogue sees."""

    def split(self, tool: ToolSpec) -> str:
        """`train` or `held_out`."""
        return "held_out" if tool.application in self.held_out else "train"


def evolve(spec: RepositorySpec, seed: int, more: Sequence[ToolSpec] = ()) -> Repository:
    """As many tools as the spec names, or as there are, evenly over the applications; `more` are
    imported ones, which come first. Without them the last few answers are kept in memory: the sift
    takes seconds."""
    return _made(spec, seed, more) if more else _remembered(spec.model_dump_json(), seed)


@lru_cache(maxsize=4)
def _remembered(spec: str, seed: int) -> Repository:
    return _made(RepositorySpec.model_validate_json(spec), seed, ())


def _made(spec: RepositorySpec, seed: int, more: Sequence[ToolSpec]) -> Repository:
    candidates = [*more, *_candidates(spec)]
    for one in candidates:
        check_schema(dict(one.parameters), f"tools.{one.name}.parameters")
    found = sift(candidates, spec.near, spec.mask_nouns)
    chosen = _even(found.kept, spec.tools, seed)
    applications = sorted({one.application for one in chosen})
    apart = frozenset(_apart(applications, spec.held_out, seed))
    return Repository({one.name: one for one in chosen}, len(candidates), found.rejected, apart)


def _candidates(spec: RepositorySpec) -> list[ToolSpec]:
    kinds = [
        one for one in entities().values() if not spec.categories or one.category in spec.categories
    ]
    chosen = [
        tool
        for kind in kinds
        for operation in operations().values()
        for tool in operation.tools(kind, spec.terse)
        if not spec.most_arguments or len(tool.parameters["properties"]) <= spec.most_arguments
    ]
    return [one for one in chosen if not spec.operations or one.operation in spec.operations]


def _even(tools: Sequence[ToolSpec], most: int, seed: int) -> list[ToolSpec]:
    """One of each application in turn; within one, one of each operation in turn, by lot, but what
    reads and finds first."""
    queues: dict[str, dict[str, list[ToolSpec]]] = {}
    for one in sorted(tools, key=lambda one: number(seed, one.name)):
        own = queues.setdefault(one.application, {})
        own.setdefault(one.operation, []).append(one)
    turns = {name: _turns(own) for name, own in queues.items()}
    chosen: list[ToolSpec] = []
    while len(chosen) < most and any(turns.values()):
        for name in sorted(turns):
            if turns[name] and len(chosen) < most:
                chosen.append(turns[name].pop(0))
    return sorted(chosen, key=lambda one: one.path)


def _turns(own: Mapping[str, list[ToolSpec]]) -> list[ToolSpec]:
    first = [one for name in _FIRST for one in own.get(name, [])[:2]]
    ordered = list(first)
    for turn in range(max(map(len, own.values()))):
        level = [queue[turn] for queue in own.values() if turn < len(queue)]
        ordered += [one for one in level if one not in first]
    return ordered


def _apart(applications: Sequence[str], share: float, seed: int) -> list[str]:
    count = round(share * len(applications))
    if share and applications:
        count = max(1, count)
    return drawn("held out", seed).sample(list(applications), count)
