"""Near-duplicates among tools: MinHash on descriptions and argument schemas, masked.

What differs in names or numbers only is the same tool twice, so these are masked: names of tools
and arguments, numbers, and optionally the nouns of what the tool works on, which is harsher.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reference.agentic.domain import entities
from reference.agentic.tools.spec import ToolSpec
from reference.text.near import NearSpec, near_copies, shingles, signature


@dataclass(frozen=True, slots=True)
class Sifted:
    """Tools without near-duplicates, and what was left out, each with what it resembles."""

    kept: tuple[ToolSpec, ...]
    rejected: tuple[str, ...]


def sift(tools: Iterable[ToolSpec], spec: NearSpec, nouns: bool = False) -> Sifted:
    """The tools that resemble none before them; all where the specification turns it off."""
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
    """Description and schema as words without names and numbers; with `nouns` also without what
    the tool works on."""
    text = " ".join([tool.description, *_words(tool.parameters)])
    names = {tool.name, *_names(tool.parameters)}
    if nouns:
        names |= _nouns(tool)
    spaced = sorted({name.replace("_", " ") for name in names} | names, key=len, reverse=True)
    pattern = "|".join(re.escape(name) for name in spaced if name)
    text = re.sub(rf"\b(?:{pattern})(?:e?s)?\b", "NAME", text, flags=re.IGNORECASE)
    return re.sub(r"[0-9]+(?:\.[0-9]+)?", "0", text)


def share_near(tools: Iterable[ToolSpec], spec: NearSpec, nouns: bool = False) -> float:
    """Share of the tools that resemble an earlier one, of all pairs, 0 to 1."""
    texts = [masked(one, nouns) for one in tools]
    rows = [signature(shingles(text, spec.shingle), spec.permutations) for text in texts]
    if not rows:
        return 0.0
    own_TP = np.stack(rows)
    near = sum(
        bool(((own_TP[:at] == own_TP[at]).mean(axis=1) >= spec.threshold).any())
        for at in range(1, len(own_TP))
    )
    return near / len(own_TP)


def form_of(schema: Any) -> Any:
    """A schema without names, numbers, texts and choices: how many different ones there are says
    how varied arguments are."""
    if not isinstance(schema, Mapping):
        return type(schema).__name__
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            made[key] = sorted(str(form_of(one)) for one in value.values())
        elif key in ("items", "additionalProperties"):
            made[key] = form_of(value)
        elif key == "anyOf":
            made[key] = [str(form_of(one)) for one in value]
        elif key in ("type", "format"):
            made[key] = value
        elif key == "required":
            made[key] = len(value)
        else:
            made[key] = "..."
    return made


def _words(schema: Any) -> list[str]:
    if isinstance(schema, Mapping):
        return [word for key, value in schema.items() for word in [str(key), *_words(value)]]
    if isinstance(schema, list | tuple):
        return [word for value in schema for word in _words(value)]
    return [str(schema)]


def _names(schema: Any) -> set[str]:
    """Names of arguments, at any depth."""
    if not isinstance(schema, Mapping):
        return set()
    own = schema.get("properties", {})
    inner = [*own.values(), schema.get("items"), schema.get("additionalProperties")]
    return set(own).union(*(_names(one) for one in inner))


def _nouns(tool: ToolSpec) -> set[str]:
    entity = entities().get(tool.entity)
    if entity is None:
        return set()
    parts = {entity.name, entity.parent or "", entity.application, entity.prefix}
    return parts | {one.name for one in entity.fields}
