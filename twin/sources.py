"""Where numbers come from: sources, and the ledger of the catalog numbers that a scenario uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["datasheet", "measured", "fitted", "assumed"]
"""How a number is known: published by the maker or author, measured by someone on the real thing,
fitted to such measurements, or assumed."""

KINDS: tuple[Kind, ...] = ("datasheet", "measured", "fitted", "assumed")

Written = str | int | float | bool | None
"""A value as it stands in a file."""


@dataclass(frozen=True, slots=True)
class Source:
    """A citation: what says so, where it can be read, and when it was published or measured."""

    id: str
    title: str
    url: str
    date: str


@dataclass(frozen=True, slots=True)
class Sourced:
    """A number as written, how it is known, its source (None only for what someone assumed), and
    the range in which it may lie."""

    value: Written
    kind: Kind
    source: Source | None = None
    range: tuple[Written, Written] | None = None
    note: str = ""


Ledger = Mapping[str, Sourced]
"""Dotted path of a field -> where its number comes from."""
