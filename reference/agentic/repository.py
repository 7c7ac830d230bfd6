"""The tool repository: every operation on every entity, without near-duplicates, balanced.

Near-duplicates are found by MinHash on descriptions and schemas. Names of tools and arguments and
numbers are masked, since tools that differ only in these are the same tool; optionally the nouns of
the entity too, which is stricter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from reference.agentic.chance import drawn, number
from reference.agentic.domain import entities
from reference.agentic.operations.base import ToolSpec, operations
from reference.agentic.spec import RepositorySpec
from reference.sandbox.schema import check_schema
from reference.text.near import NearSpec, near_copies, shingles, signature

_FIRST: Final = ("get", "search", "lookup")
"""Operations that most tasks need; they are taken first."""


@dataclass(frozen=True, slots=True)
class ToolRepository:
    """The tools, and the rejected candidates."""

    tools: Mapping[str, ToolSpec]
    candidates: int
    rejected: tuple[str, ...]
    """Near-duplicates, each with the tool that it resembles."""
    held_out: frozenset[str]
    """Applications that no training dialogue sees."""

    def split(self, tool: ToolSpec) -> str:
        """`train` or `held_out`."""
        return "held_out" if tool.application in self.held_out else "train"


def evolve(spec: RepositorySpec, seed: int, more: Sequence[ToolSpec] = ()) -> ToolRepository:
    """As many tools as the spec wants, or as there are, evenly over the applications; imported
    tools (`more`) come first. Without them the last results are cached: near-duplicates take
    seconds."""
    return _made(spec, seed, more) if more else _remembered(spec.model_dump_json(), seed)


@lru_cache(maxsize=4)
def _remembered(spec: str, seed: int) -> ToolRepository:
    return _made(RepositorySpec.model_validate_json(spec), seed, ())


def _made(spec: RepositorySpec, seed: int, more: Sequence[ToolSpec]) -> ToolRepository:
    candidates = [*more, *_candidates(spec)]
    for tool in candidates:
        check_schema(dict(tool.parameters), f"tools.{tool.name}.parameters")
    sifted = sift(candidates, spec.near, spec.mask_nouns)
    chosen = _balanced(sifted.kept, spec.tools, seed)
    applications = sorted({tool.application for tool in chosen})
    apart = frozenset(_apart(applications, spec.held_out, seed))
    by_name = {tool.name: tool for tool in chosen}
    return ToolRepository(by_name, len(candidates), sifted.rejected, apart)


def _candidates(spec: RepositorySpec) -> list[ToolSpec]:
    most = spec.most_arguments
    return [
        tool
        for entity in entities().values()
        if not spec.categories or entity.category in spec.categories
        for operation in operations().values()
        if not spec.operations or operation.name in spec.operations
        for tool in operation.tools(entity, spec.terse)
        if not most or len(tool.parameters["properties"]) <= most
    ]


def _balanced(tools: Sequence[ToolSpec], most: int, seed: int) -> list[ToolSpec]:
    """One tool of each application in turn; within an application one of each operation in turn, in
    drawn order, reading and finding first."""
    queues: dict[str, dict[str, list[ToolSpec]]] = {}
    for tool in sorted(tools, key=lambda tool: number(seed, tool.name)):
        own = queues.setdefault(tool.application, {})
        own.setdefault(tool.operation, []).append(tool)
    turns = {name: _turns(own) for name, own in queues.items()}
    chosen: list[ToolSpec] = []
    while len(chosen) < most and any(turns.values()):
        for name in sorted(turns):
            if turns[name] and len(chosen) < most:
                chosen.append(turns[name].pop(0))
    return sorted(chosen, key=lambda tool: tool.path)


def _turns(own: Mapping[str, list[ToolSpec]]) -> list[ToolSpec]:
    first = [tool for name in _FIRST for tool in own.get(name, [])[:2]]
    ordered = list(first)
    for turn in range(max(map(len, own.values()))):
        level = [queue[turn] for queue in own.values() if turn < len(queue)]
        ordered += [tool for tool in level if tool not in first]
    return ordered


def _apart(applications: Sequence[str], share: float, seed: int) -> list[str]:
    count = round(share * len(applications))
    if share and applications:
        count = max(1, count)
    return drawn("held out", seed).sample(list(applications), count)


@dataclass(frozen=True, slots=True)
class Sifted:
    """Tools without near-duplicates, and the rejected ones, each with the tool it resembles."""

    kept: tuple[ToolSpec, ...]
    rejected: tuple[str, ...]


def sift(tools: Iterable[ToolSpec], spec: NearSpec, nouns: bool = False) -> Sifted:
    """The tools that resemble no earlier tool; all tools if the spec turns it off."""
    listed = list(tools)
    if spec.off:
        return Sifted(tuple(listed), ())
    kept: list[ToolSpec] = []
    rejected: list[str] = []
    texts = ((tool.name, masked(tool, nouns)) for tool in listed)
    for tool, copy in zip(listed, near_copies(texts, spec), strict=True):
        if copy is None:
            kept.append(tool)
        else:
            rejected.append(f"{tool.name} {copy}")
    return Sifted(tuple(kept), tuple(rejected))


def masked(tool: ToolSpec, nouns: bool = False) -> str:
    """Description and schema as words without names and numbers; with `nouns` also without nouns
    of the entity."""
    text = " ".join([tool.description, *_words(tool.parameters)])
    names = {tool.name, *_names(tool.parameters)}
    if nouns:
        names |= _nouns(tool)
    spaced = sorted({name.replace("_", " ") for name in names} | names, key=len, reverse=True)
    pattern = "|".join(re.escape(name) for name in spaced if name)
    text = re.sub(rf"\b(?:{pattern})(?:e?s)?\b", "NAME", text, flags=re.IGNORECASE)
    return re.sub(r"[0-9]+(?:\.[0-9]+)?", "0", text)


def share_near(tools: Iterable[ToolSpec], spec: NearSpec, nouns: bool = False) -> float:
    """Share of the tools that resemble an earlier tool, over all pairs, 0 to 1."""
    texts = [masked(tool, nouns) for tool in tools]
    rows = [signature(shingles(text, spec.shingle), spec.permutations) for text in texts]
    if not rows:
        return 0.0
    own_TP = np.stack(rows)
    near = sum(
        bool(((own_TP[:at] == own_TP[at]).mean(axis=1) >= spec.threshold).any())
        for at in range(1, len(own_TP))
    )
    return near / len(own_TP)


def _words(schema: Any) -> list[str]:
    if isinstance(schema, Mapping):
        return [word for key, value in schema.items() for word in [str(key), *_words(value)]]
    if isinstance(schema, list | tuple):
        return [word for value in schema for word in _words(value)]
    return [str(schema)]


def _names(schema: Any) -> set[str]:
    """Names of arguments at any depth."""
    if not isinstance(schema, Mapping):
        return set()
    own = schema.get("properties", {})
    nested = [*own.values(), schema.get("items"), schema.get("additionalProperties")]
    return set(own).union(*map(_names, nested))


def _nouns(tool: ToolSpec) -> set[str]:
    entity = entities().get(tool.entity)
    if entity is None:
        return set()
    parts = {entity.name, entity.parent or "", entity.application, entity.prefix}
    return parts | {field.name for field in entity.fields}
