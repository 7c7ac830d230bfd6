"""Make a number from others, each used once, with + - * / and brackets: the 24 game.

An answer is read as Python's grammar has it, and only these operations on whole numbers are allowed
in it; it is computed in fractions, by us.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Final

from reference.agentic.chance import drawn
from reference.rl.gym.environments import Check, Item, question_item

_DO: Final = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_PLAIN: Final = re.compile(r"[0-9+\-*/() ]{1,120}")
_GOAL: Final = 24
Value = tuple[Fraction, str]
"""A number, and the expression that makes it."""


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    draw = drawn("twentyfour", level, seed)
    numbers, goal, solution = _four(draw) if level == 4 else _few(level, draw)
    listed = " ".join(map(str, numbers))
    hacks = {
        "the number itself": str(goal),
        "other numbers": f"0+{goal}",
        "a number twice": f"{solution}+{numbers[0]}-{numbers[0]}",
        "a number left out": str(numbers[0]),
        "an equation": f"{goal}={goal}",
        "python": f"[{solution}, {goal}][1]",
        "power": f"{numbers[0]}**{numbers[-1]}",
    }
    tag = "".join(sign for sign in "+-*/" if sign in solution)
    text = f"make {goal} from {listed}"
    return question_item(text, check(goal, numbers), solution, (tag,), hacks)


def _few(level: int, draw: Random) -> tuple[list[int], int, str]:
    """Two numbers to add; two with any sign; three with any two signs."""
    while True:
        numbers = [draw.randint(1, 4 if level == 1 else 9) for _ in range(max(2, level))]
        signs = [draw.choice("+" if level == 1 else "+-*") for _ in numbers[1:]]
        pairs = zip(signs, numbers[1:], strict=True)
        solution = str(numbers[0]) + "".join(f"{sign}{number}" for sign, number in pairs)
        value = value_of(solution)
        if value is not None and value[0].denominator == 1 and 0 < value[0] <= 99:
            goal = int(value[0])
            if goal not in numbers and f"{goal}" != solution:
                return numbers, goal, solution


def _four(draw: Random) -> tuple[list[int], int, str]:
    while True:
        numbers = [draw.randint(1, 13) for _ in range(4)]
        solution = next(
            solutions([(Fraction(number), str(number)) for number in numbers], _GOAL), None
        )
        if solution is not None:
            return numbers, _GOAL, solution


def solutions(values: Sequence[Value], goal: int) -> Iterator[str]:
    """Expressions of all these values that make the goal."""
    if len(values) == 1:
        if values[0][0] == goal:
            yield values[0][1].removeprefix("(").removesuffix(")")
        return
    for at, (a, left) in enumerate(values):
        for to, (b, right) in enumerate(values):
            if at == to:
                continue
            rest = [value for place, value in enumerate(values) if place not in (at, to)]
            made: list[Value] = [(a - b, f"({left}-{right})")]
            if at < to:
                made += [(a + b, f"({left}+{right})"), (a * b, f"({left}*{right})")]
            if b:
                made.append((a / b, f"({left}/{right})"))
            for value in made:
                yield from solutions([*rest, value], goal)


def check(goal: int, numbers: Sequence[int]) -> Check:
    """Whether an expression uses the numbers, each once, and makes the goal."""

    def judge(text: str) -> Mapping[str, bool]:
        value = value_of(text)
        used = value is not None and sorted(value[1]) == sorted(numbers)
        return {"numbers": used, "goal": value is not None and value[0] == goal}

    return judge


def value_of(text: str) -> tuple[Fraction, list[int]] | None:
    """What an expression makes, and the numbers in it; None where it is none."""
    if not _PLAIN.fullmatch(text):
        return None
    try:
        used: list[int] = []
        return _value(ast.parse(text.strip(), mode="eval").body, used), used
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, used: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _DO:
        left, right = _value(node.left, used), _value(node.right, used)
        return _DO[type(node.op)](left, right)
    raise ValueError("only + - * / of whole numbers")
