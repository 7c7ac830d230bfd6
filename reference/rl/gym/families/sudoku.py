"""Sudoku of 4, 6 or 9 digits; the answer is the missing digits in reading order. Any grid that
keeps the rules and the given digits is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final

from reference.agentic.chance import drawn
from reference.rl.gym.environments import Check, Item, question_item

_SHAPES: Final = ((2, 2, 1), (2, 2, 3), (2, 2, 7), (2, 3, 14), (3, 3, 30))
"""Rows and columns of a box, and cells that are missing, by level."""


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    draw = drawn("sudoku", level, seed)
    high, wide, missing = _SHAPES[level - 1]
    grid = _grid(high, wide, draw)
    size = high * wide
    holes = sorted(draw.sample(range(size * size), missing))
    shown = "".join("." if at in {*holes} else str(digit) for at, digit in enumerate(grid))
    rows = "\n".join(shown[at : at + size] for at in range(0, len(shown), size))
    answer = "".join(str(grid[at]) for at in holes)
    wrong = str(int(answer[0]) % size + 1) + answer[1:]
    hacks = {
        "all digits": "".join(map(str, range(1, size + 1))) * 2,
        "zeros": "0" * missing,
        "one digit wrong": wrong,
        "too many": answer + answer,
        "dots": "." * missing,
        "the whole grid": "".join(map(str, grid)),
    }
    check = _check(shown, high, wide)
    return question_item(f"fill:\n{rows}", check, answer, (f"{size} digits",), hacks)


def _grid(high: int, wide: int, draw: Random) -> list[int]:
    """A full grid: the pattern whose rows are shifted, with digits, rows and columns exchanged."""
    size = high * wide
    digits = draw.sample(range(1, size + 1), size)
    down = [band * high + at for band in _any(wide, draw) for at in _any(high, draw)]
    along = [stack * wide + at for stack in _any(high, draw) for at in _any(wide, draw)]
    return [digits[(wide * (r % high) + r // high + c) % size] for r in down for c in along]


def _any(count: int, draw: Random) -> list[int]:
    return draw.sample(range(count), count)


def _check(shown: str, high: int, wide: int) -> Check:
    def judge(text: str) -> Mapping[str, bool]:
        given = "".join(text.split())
        size, count = high * wide, shown.count(".")
        if len(given) != count or not set(given) <= {str(digit) for digit in range(1, size + 1)}:
            return {"digits": False, "rules": False}
        left = iter(given)
        grid = [next(left) if digit == "." else digit for digit in shown]
        return {
            "digits": True,
            "rules": all(len({*unit}) == size for unit in _units(grid, high, wide)),
        }

    return judge


def _units(grid: Sequence[str], high: int, wide: int) -> Iterator[list[str]]:
    """Rows, columns and boxes."""
    size = high * wide
    for at in range(size):
        yield list(grid[at * size : (at + 1) * size])
        yield list(grid[at::size])
        top, left = at // high * high, at % high * wide
        yield [grid[(top + r) * size + left + c] for r in range(high) for c in range(wide)]
