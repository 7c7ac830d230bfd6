"""A small repository that can be given a bug, and the list of all of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

BugKind = Literal["boundary", "condition", "state", "argument", "missing case", "arithmetic"]
"""One too many or too few; a test left out or turned round; something kept or forgotten between
calls; a wrong argument, field or order; an input that was not thought of; a wrong formula."""


@dataclass(frozen=True, slots=True)
class Bug:
    """One replacement in one file that makes it wrong, and what somebody who met it reports."""

    kind: BugKind
    path: str
    good: str
    """Stands once in the file."""
    bad: str
    issue: str
    """What was done, what came, what was expected; never where it is."""


@dataclass(frozen=True, slots=True)
class Project:
    """Texts, paths included, hold `$name` where repositories of the project differ."""

    name: str
    about: str
    words: Mapping[str, tuple[str, ...]]
    """The values that each name may have; `package` is one of them."""
    sources: Mapping[str, str]
    """Files of the package, below its folder."""
    tests: str
    """The visible tests, which the right repository passes."""
    checks: tuple[str, ...]
    """Hidden tests: Python texts, each of which sets `result`."""
    bugs: tuple[Bug, ...]


@cache
def projects() -> Mapping[str, Project]:
    """All projects by name."""
    package = importlib.import_module("reference.agentic.software.projects")
    names = sorted(one.name for one in pkgutil.iter_modules(package.__path__))
    return {name: importlib.import_module(f"{package.__name__}.{name}").PROJECT for name in names}
