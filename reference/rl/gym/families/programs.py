"""Python functions with hidden tests, run in the sandbox: one-line functions in few words first,
then the problems of `reference.agentic.code` with their tools."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from reference.agentic.chance import drawn
from reference.agentic.code.environment import CodeEnvironment, Submission, answer_of, probes
from reference.agentic.code.generate import CallExample, CodeTask, function
from reference.agentic.code.generate import make as make_problem
from reference.agentic.code.problems import problem_kinds
from reference.agentic.environment import Once, Turn, Verdict
from reference.dialog import Dialog
from reference.rl.gym.environments import Item, probed, said

_PROGRAM: Final = re.compile(r"^(def|import|from) ", re.MULTILINE)
_HIDDEN: Final = 8
_HARDEST: Final = {4: (1, 2), 5: (3, 5)}
"""Difficulties of the problems, by level."""


@dataclass(frozen=True, slots=True)
class Short(Once):
    """A programming task asked in one line and answered in one message, without tools."""

    code: CodeEnvironment

    @property
    def text(self) -> str:
        """The statement behind the function's head."""
        return f"{self.code.task.signature} # {self.code.task.statement}"

    def start(self) -> Submission:
        """Nothing handed in."""
        return self.code.start()

    def judge(self, state: Submission, dialog: Dialog) -> Verdict:
        """As the programming task does; a message that is a program needs no fence."""
        text = dialog.messages[-1].content
        fenced = answer_of(state, dialog)
        program = text if fenced is None and _PROGRAM.search(text) else fenced
        return self.code.judge(Submission(program), Dialog(dialog.messages))


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    if level <= 3:
        return _short(level, seed)
    easy, hard = _HARDEST[level]
    some = [kind for kind in problem_kinds().values() if easy <= kind.difficulty <= hard]
    world = CodeEnvironment(make_problem(drawn("programs", level, seed).choice(some), seed))
    task = world.task
    solution = (Turn(calls=(("submit", {"code": task.solution}),)), Turn("Done."))
    return Item(world, lambda: solution, lambda: probed(probes(world)), task.tags)


def _short(level: int, seed: int) -> Item:
    draw = drawn("programs", level, seed)
    statement, body, inputs = _KINDS[level - 1](draw)
    signature = "def f(x):"
    solution = f"{signature} return {body}"
    right = function(solution, "f")
    values = list(dict.fromkeys(inputs(draw) for _ in range(4 * _HIDDEN)))[: _HIDDEN + 1]
    shown, *hidden = (CallExample((probe,), right(probe)) for probe in values)
    task = CodeTask(
        f"f-{level}-{seed}",
        "f",
        signature,
        statement,
        (shown,),
        tuple(hidden),
        1,
        solution=solution,
    )
    world = Short(CodeEnvironment(task))
    tried = {probe.name: probe.turns[0] for probe in probes(world.code)}
    texts = {
        name.replace("_", " "): turn.calls[0][1]["code"] if turn.calls else turn.text
        for name, turn in tried.items()
    }
    texts["head alone"] = world.opening.messages[0].content
    return Item(
        world,
        lambda: said(solution),
        lambda: {name: said(text) for name, text in texts.items()},
        (statement.split()[0],),
    )


def _number(draw: Random) -> int:
    return draw.randint(-50, 50)


def _text(draw: Random) -> str:
    return "".join(draw.choices("abcdeXYZ", k=draw.randint(3, 8)))


Simple = tuple[str, str, Callable[[Random], Any]]
"""A statement, the expression that does it, and arguments by chance."""


def _one_sign(draw: Random) -> Simple:
    word, sign = draw.choice((("plus", "+"), ("minus", "-"), ("times", "*")))
    number = draw.randint(2, 9)
    return f"x {word} {number}", f"x {sign} {number}", _number


def _two_signs(draw: Random) -> Simple:
    a, b = draw.sample(range(2, 10), 2)
    return f"x times {a} plus {b}", f"x * {a} + {b}", _number


def _strings(draw: Random) -> Simple:
    some = (
        ("length of the text x", "len(x)", _text),
        ("text x backwards", "x[::-1]", _text),
        ("text x in upper case", "x.upper()", _text),
        ("first letter of the text x", "x[0]", _text),
        ("whether the number x is even", "x % 2 == 0", _number),
        ("the number x without its sign", "abs(x)", _number),
    )
    return draw.choice(some)


_KINDS: Final = (_one_sign, _two_signs, _strings)
