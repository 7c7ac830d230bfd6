"""The nouns of a task: where an argument comes from, the steps that solve it, what is told."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reference.agentic.domain import Entity
from reference.agentic.tables import Tables

Place = tuple[str | int, ...]
"""A path into a result; `*` stands for each item of a list."""


@dataclass(frozen=True, slots=True)
class Said:
    """A value that the user says, with the words that say it."""

    slot: str
    value: Any
    text: str
    label: str = ""
    """What one asks for, such as `new rent`."""


@dataclass(frozen=True, slots=True)
class Meant:
    """A value that follows from the words of the goal, such as the order of a list."""

    value: Any


@dataclass(frozen=True, slots=True)
class Found:
    """A value in the result of an earlier step."""

    step: int
    place: Place


Source = Said | Meant | Found


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the chain."""

    tool: str
    arguments: Mapping[str, Source]
    purpose: str = ""
    """A checkpoint of the rubric, such as `finds the parcel`."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What the answer must say: a value in a step's result."""

    label: str
    step: int
    place: Place
    kind: str = ""
    """Kind of the value, which says how it is spoken."""
    choice: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What the author of a task sees: rows, chance, and how short words are to be."""

    tables: Tables
    draw: random.Random
    terse: bool


@dataclass(frozen=True, slots=True)
class At:
    """One thing that a chain has come to: its id, where that comes from, and words for it."""

    entity: Entity
    key: str
    source: Source
    words: str


@dataclass(frozen=True, slots=True)
class Use:
    """A call as a part of a task. A start or a hop says `words` for the thing that it finds, whose
    id is at `finds`; an end says what the user asks for, with `<slot>` where a said value goes."""

    arguments: Mapping[str, Source]
    words: str
    purpose: str
    finds: Place = ()
    entity: str = ""
    facts: tuple[tuple[str, Place, str, bool], ...] = field(default=())
    """Label, place, kind, and whether it is one of few words."""
    vague: Mapping[str, str] = field(default_factory=dict[str, str])
    """Said values that the user may keep back at first, and what is said instead."""
