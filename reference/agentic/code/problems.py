"""Kinds of small algorithmic problems, from which seeds make tasks: rows of `problems/*.yaml`,
and here what their `inputs` are drawn by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from string import Template
from typing import Any, Final

from reference.files import yaml_table

Arguments = tuple[Any, ...]
DrawInput = Callable[[Random], Arguments]


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """One kind of problem. Its texts hold `$name` where a task has a parameter."""

    name: str
    difficulty: int
    tags: tuple[str, ...]
    statement: str
    solution: str
    """A right function, from `def` on."""
    edges: tuple[Arguments, ...]
    """Arguments that every task of the kind is tested with."""
    mutants: tuple[tuple[str, str], ...]
    """Replacements in the function's body, each of which makes it wrong."""
    inputs: DrawInput
    """Draws the arguments of one call."""
    choices: Mapping[str, tuple[Any, ...]]
    """The values that a parameter of the texts may have."""

    @property
    def signature(self) -> str:
        """The first line of the function."""
        return self.solution.partition("\n")[0]

    def solved(self, chosen: Mapping[str, Any]) -> str:
        """A right function with these parameters."""
        return Template(self.solution).substitute(chosen)

    def wrong(self, chosen: Mapping[str, Any]) -> tuple[str, ...]:
        """A wrong function for each mutant."""
        signature, _, body = self.solution.partition("\n")
        made: list[str] = []
        for old, new in self.mutants:
            assert old in body, (self.name, old)
            text = f"{signature}\n{body.replace(old, new, 1)}"
            made.append(Template(text).substitute(chosen))
        return tuple(made)


@cache
def problem_kinds() -> Mapping[str, ProblemKind]:
    """All kinds by name, in the order of their files."""
    folder = Path(__file__).with_name("problems")
    rows = {
        name: row
        for path in sorted(folder.glob("*.yaml"))
        for name, row in yaml_table(path).items()
    }
    return {name: _kind(name, **row) for name, row in rows.items()}


def _kind(name: str, tags: Any, edges: Any, mutants: Any, inputs: str, **row: Any) -> ProblemKind:
    return ProblemKind(
        name=name,
        tags=tuple(tags),
        edges=tuple(map(tuple, edges)),
        mutants=tuple(map(tuple, mutants)),
        inputs=eval(f"lambda draw: {inputs}", _NAMES),
        **{"choices": {}, **row},
    )


def _grid(draw: Random) -> list[list[int]]:
    wide = draw.randint(1, 5)
    return [[draw.randint(0, 9) for _ in range(wide)] for _ in range(draw.randint(1, 5))]


def _graph(draw: Random) -> tuple[int, list[list[int]]]:
    count = draw.randint(2, 7)
    edges = [draw.sample(range(count), 2) for _ in range(draw.randint(0, 9))]
    return count, edges


def _directed(draw: Random) -> Arguments:
    count, edges = _graph(draw)
    forward = [sorted(edge) for edge in edges]
    return count, [edge[::-1] for edge in forward] if draw.random() < 0.5 else edges


def _numbers(draw: Random, low: int = -9, high: int = 9) -> list[int]:
    return [draw.randint(low, high) for _ in range(draw.randint(0, 12))]


def _letters(draw: Random, alphabet: str = "abc", most: int = 10) -> str:
    return "".join(draw.choice(alphabet) for _ in range(draw.randint(0, most)))


def _sentence(draw: Random) -> Arguments:
    chosen = [draw.choice(("red", "tea", "Ant", "be", "stone", "to")) for _ in range(7)]
    return (" ".join(chosen[: draw.randint(0, 7)]),)


def _brackets(draw: Random) -> Arguments:
    text = ""
    waiting: list[str] = []
    for _ in range(draw.randint(0, 10)):
        if waiting and draw.random() < 0.5:
            text += waiting.pop()
        else:
            pair = draw.choice(("()", "[]", "{}"))
            text += pair[0]
            waiting.append(pair[1])
    text += "".join(reversed(waiting))
    at = draw.randint(0, max(0, len(text) - 1))
    return (text if draw.random() < 0.6 else text[:at] + text[at + 1 :],)


_DRAWS: Final = (_grid, _graph, _directed, _numbers, _letters, _sentence, _brackets)
_NAMES: Final[dict[str, Any]] = {made.__name__.lstrip("_"): made for made in _DRAWS}
"""What an expression of `inputs` may use beside `draw`."""
