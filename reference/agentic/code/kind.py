"""A kind of small algorithmic problem, from which a seed makes tasks, and the list of all kinds."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from string import Template
from typing import Any

Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """Texts hold `$name` where a task of the kind has a parameter."""

    name: str
    difficulty: int
    tags: tuple[str, ...]
    parameters: str
    """The function's parameters and result, as behind its name."""
    statement: str
    body: str
    """What a right function does, indented once."""
    inputs: Callable[[random.Random], Arguments]
    """Arguments of one call, by chance."""
    edges: tuple[Arguments, ...]
    """Arguments that every task of the kind is tested with."""
    mutants: tuple[tuple[str, str], ...]
    """Replacements in the body, each of which makes it wrong."""
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    """The values that a parameter of the texts may have."""
    tolerance: float = 0.0

    @property
    def signature(self) -> str:
        """The first line of the function."""
        return f"def {self.name}{self.parameters}:"

    def solution(self, chosen: Mapping[str, Any]) -> str:
        """A right function."""
        return Template(f"{self.signature}\n{self.body}").substitute(chosen)

    def wrong(self, chosen: Mapping[str, Any]) -> tuple[str, ...]:
        """A wrong function for each mutant."""
        made: list[str] = []
        for old, new in self.mutants:
            assert old in self.body, (self.name, old)
            body = self.body.replace(old, new, 1)
            made.append(Template(f"{self.signature}\n{body}").substitute(chosen))
        return tuple(made)


@cache
def kinds() -> Mapping[str, Kind]:
    """All kinds by name, in the order of their files."""
    package = importlib.import_module("reference.agentic.code.kinds")
    names = sorted(one.name for one in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return {kind.name: kind for module in modules for kind in module.KINDS}
