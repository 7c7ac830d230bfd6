"""Kinds of small algorithmic problems, from which seeds make tasks: texts in `problems/*.yaml`, and
here the inputs that are drawn for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from string import Template
from typing import Any, Final

from reference.yaml_tables import yaml_table

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


def _kind(name: str, tags: Any, edges: Any, mutants: Any, **row: Any) -> ProblemKind:
    return ProblemKind(
        name=name,
        tags=tuple(tags),
        edges=tuple(map(tuple, edges)),
        mutants=tuple(map(tuple, mutants)),
        inputs=_INPUTS[name],
        **{"choices": {}, **row},
    )


def _grid(draw: Random) -> list[list[int]]:
    wide = draw.randint(1, 5)
    return [[draw.randint(0, 9) for _ in range(wide)] for _ in range(draw.randint(1, 5))]


def _islands(draw: Random) -> Arguments:
    return ([[int(height > 4) for height in row] for row in _grid(draw)],)


def _graph(draw: Random) -> tuple[int, list[list[int]]]:
    count = draw.randint(2, 7)
    edges = [draw.sample(range(count), 2) for _ in range(draw.randint(0, 9))]
    return count, edges


def _way(draw: Random) -> Arguments:
    count, edges = _graph(draw)
    return count, edges, 0, count - 1


def _directed_graph(draw: Random) -> Arguments:
    count, edges = _graph(draw)
    forward = [sorted(edge) for edge in edges]
    return count, [edge[::-1] for edge in forward] if draw.random() < 0.5 else edges


def _coins(draw: Random) -> Arguments:
    return draw.sample(range(2, 9), draw.randint(1, 3)), draw.randint(0, 24)


def _sack(draw: Random) -> Arguments:
    items = [[draw.randint(1, 7), draw.randint(1, 9)] for _ in range(draw.randint(0, 6))]
    return items, draw.randint(0, 15)


def _numbers(draw: Random, low: int = -9, high: int = 9) -> list[int]:
    return [draw.randint(low, high) for _ in range(draw.randint(0, 12))]


def _list(draw: Random) -> Arguments:
    return (_numbers(draw),)


def _spans(draw: Random) -> Arguments:
    starts = [draw.randint(0, 30) for _ in range(draw.randint(0, 7))]
    return ([[start, start + draw.randint(0, 6)] for start in starts],)


def _multiples(draw: Random) -> Arguments:
    shared = draw.randint(1, 12)
    return shared * draw.randint(1, 60), shared * draw.randint(1, 60)


def _range(draw: Random) -> Arguments:
    low = draw.randint(1, 120)
    return low, low + draw.randint(0, 40)


def _integer(low: int, high: int) -> DrawInput:
    return lambda draw: (draw.randint(low, high),)


def _letters(draw: Random, alphabet: str = "abc", most: int = 10) -> str:
    return "".join(draw.choice(alphabet) for _ in range(draw.randint(0, most)))


def _text(alphabet: str, most: int) -> DrawInput:
    return lambda draw: (_letters(draw, alphabet, most),)


def _near_palindrome(draw: Random) -> Arguments:
    half = _letters(draw, "abA ", 4)
    return (half + draw.choice(("", "b", ", ", "xa")) + half[::-1],)


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


def _coded_runs(draw: Random) -> Arguments:
    runs = (f"{draw.choice('abcx')}{draw.randint(1, 12)}" for _ in range(draw.randint(0, 5)))
    return ("".join(runs),)


def _path(draw: Random) -> Arguments:
    parts = [draw.choice(("a", "b", "..", ".", "", "cd")) for _ in range(draw.randint(0, 8))]
    return ("/" + "/".join(parts),)


_INPUTS: Final[Mapping[str, DrawInput]] = {
    "transpose": lambda draw: (_grid(draw),),
    "spiral": lambda draw: (_grid(draw),),
    "count_islands": _islands,
    "cheapest_path": lambda draw: (_grid(draw),),
    "fewest_steps": _way,
    "has_cycle": _directed_graph,
    "component_sizes": _graph,
    "fewest_coins": _coins,
    "ways_to_climb": _integer(0, 24),
    "best_load": _sack,
    "count_queens": _integer(1, 7),
    "subset_sums": lambda draw: (
        draw.sample(range(1, 13), draw.randint(0, 7)),
        draw.randint(0, 18),
    ),
    "second_largest": _list,
    "count_pairs": lambda draw: (_numbers(draw, -3, 4), draw.randint(-2, 3)),
    "rotate": lambda draw: (_numbers(draw), draw.randint(-8, 8)),
    "running_maximum": _list,
    "best_sum": _list,
    "merge_sorted": lambda draw: (sorted(_numbers(draw)), sorted(_numbers(draw))),
    "merge_spans": _spans,
    "missing_number": lambda draw: (draw.sample(range(-2, 14), draw.randint(0, 15)),),
    "longest_rise": _list,
    "water_held": lambda draw: (_numbers(draw, low=0),),
    "digit_sum": _integer(-(10**6), 10**6),
    "sum_of_multiples": _integer(0, 400),
    "greatest_divisor": _multiples,
    "count_primes": _integer(0, 600),
    "prime_factors": _integer(1, 5000),
    "halving_steps": _integer(1, 300),
    "to_base": _integer(-5000, 5000),
    "perfect_numbers": _range,
    "count_vowels": _text("aeiouAEIOUxyzB ", 20),
    "is_palindrome": _near_palindrome,
    "run_lengths": _text("aab", 16),
    "expand_runs": _coded_runs,
    "balanced": _brackets,
    "shift_letters": _text("abyzABYZ 1,", 14),
    "reverse_words": _sentence,
    "most_common_word": _sentence,
    "edit_distance": lambda draw: (_letters(draw, most=7), _letters(draw, most=7)),
    "shared_sequence": lambda draw: (_letters(draw, most=9), _letters(draw, most=9)),
    "simple_path": _path,
}
