"""Scorers of texts: `exact`, `contains`, `numeric`, `code` (unit tests in the sandbox), `verifier`
(another generator judges); and the choice between log-likelihoods.

`code` runs a program with its unit tests. The program is the case's `prefix` (which the model
continued) with the answer, or the answer's first fenced block. Tests are expressions that must be
true. They run behind the program in one process and report with a word that the program cannot
know, so a program that prints or exits passes nothing. A program that inspects its own interpreter
can still cheat: environments of `reference.agentic.code` are stricter.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from reference.dialog import Message
from reference.generate.request import ChatRequest, Generator, Reply, Sampling, complete_many
from reference.sandbox.job import Command, RunLimits, python_text
from reference.sandbox.run import run_many
from twin.errors import Problem, TwinError, UsageError

Row = Mapping[str, Any]
"""A case as its file has it."""
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\.\d+")
_ANSWER_MARK = re.compile(r"answer is|####", re.IGNORECASE)
_FENCED = re.compile(r"```(?:python|py)?\n(.*?)(?:```|\Z)", re.DOTALL)
_LIMITS = RunLimits.model_validate({"cpu": "5s", "wall": "10s"})
_SYSTEM = "You judge an answer. Reply with one word: yes if it is right, no if it is not."
_RUN_TESTS = """\
import json, sys
said = json.loads(sys.stdin.read())
sys.stdin.close()
out, sys.stdout, sys.stderr = sys.stdout, None, None
names = {"__name__": "answer"}
try:
    exec(said["program"], names)
    passed = [bool(eval(test, names)) for test in said["tests"]]
except BaseException:
    passed = []
out.write(json.dumps([said["word"], passed]))
out.flush()
"""


@dataclass(frozen=True, slots=True)
class ScorerInput:
    """Texts with the case of each, and the generator that judges, if any."""

    rows: Sequence[Row]
    texts: Sequence[str]
    judge: Generator | None


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores texts from 0 to 1; 1 is solved."""

    about: str
    fields: tuple[str, ...]
    """Fields that a case must have."""
    judge: Callable[[ScorerInput], list[float]]
    """The score of each text."""
    answer: Callable[[str], str | None]
    """The answer in a text, as votes count it; None where it has none."""


def likeliest(nats: Sequence[float]) -> int:
    """Index of the continuation with the fewest nats, the first of equals: `acc` of
    lm-evaluation-harness (Gao, "Multiple Choice Normalization in LM Evaluation", EleutherAI blog,
    2021), which favours short continuations."""
    return min(range(len(nats)), key=lambda at: nats[at])


def likeliest_per_byte(nats: Sequence[float], texts: Sequence[str]) -> int:
    """Index of the continuation with the fewest nats per byte of its text, without the space before
    it: `acc_norm` of lm-evaluation-harness."""
    return likeliest([each / len(text.encode()) for each, text in zip(nats, texts, strict=True)])


def plain(text: str) -> str:
    """The first non-empty line, in lower case and without a final full stop."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].lower().removesuffix(".").strip() if lines else ""


def _targets(row: Row) -> list[str]:
    target = row["target"]
    return [target] if isinstance(target, str) else list(target)


def _contains(row: Row, text: str) -> bool:
    return any(target.lower() in text.lower() for target in _targets(row))


def number_of(text: str) -> Decimal | None:
    """The number that a text answers: the one behind the last `answer is` or `####`; else the first
    of its first line; else its last."""
    parts = _ANSWER_MARK.split(text)
    if len(parts) > 1:
        numbers = _NUMBER.findall(parts[-1])[:1]
    else:
        first = next((line for line in text.splitlines() if line.strip()), "")
        numbers = _NUMBER.findall(first)[:1] or _NUMBER.findall(text)[-1:]
    return Decimal(numbers[0].replace(",", "")) if numbers else None


def _numeric(row: Row, text: str) -> bool:
    """Whether the answer is the target within the case's `tolerance` (absolute; default 0)."""
    number = number_of(text)
    if number is None:
        return False
    return abs(number - Decimal(str(row["target"]))) <= Decimal(str(row.get("tolerance", 0)))


def _number_text(text: str) -> str | None:
    number = number_of(text)
    return None if number is None else f"{number.normalize():f}"


def program_of(row: Row, text: str) -> str:
    """The program of an answer."""
    fenced = _FENCED.search(text)
    return fenced[1] if fenced else f"{row.get('prefix', '')}{_body(row, text)}"


def _body(row: Row, text: str) -> str:
    """The lines of a continuation that belong to the function it continues: up to the first line
    that is not indented."""
    if not row.get("prefix"):
        return text
    lines = text.split("\n")
    end = next(
        (at for at, line in enumerate(lines) if at and line[:1] not in ("", " ", "\t", "#")),
        len(lines),
    )
    return "\n".join([*lines[:end], ""])


def _judge_programs(given: ScorerInput) -> list[float]:
    programs = [
        (program_of(row, text), tuple(row["tests"]))
        for row, text in zip(given.rows, given.texts, strict=True)
    ]
    distinct = list(dict.fromkeys(programs))
    outcomes = run_many([_test_command(*each) for each in distinct], _LIMITS)
    passed = {
        each: float(outcome.stdout.text == json.dumps([_word(each[0]), [True] * len(each[1])]))
        for each, outcome in zip(distinct, outcomes, strict=True)
    }
    return [passed[each] for each in programs]


def _test_command(program: str, tests: Sequence[str]) -> Command:
    said = {"program": program, "tests": list(tests), "word": _word(program)}
    return python_text(_RUN_TESTS, stdin=json.dumps(said).encode())


def _word(program: str) -> str:
    return hashlib.blake2b(program.encode(errors="replace"), digest_size=16).hexdigest()


def _judge_by_generator(given: ScorerInput) -> list[float]:
    if given.judge is None:
        message = "the scorer `verifier` needs a generator as judge"
        fix = "set `judge` to the address of a server"
        raise UsageError([Problem("TW587", "judge", message, fix)])
    pairs = zip(given.rows, given.texts, strict=True)
    replies = complete_many(given.judge, [_judge_request(row, text) for row, text in pairs], 8)
    return [_said_yes(reply) for reply in replies]


def _judge_request(row: Row, text: str) -> ChatRequest:
    target = f"\n\nA right answer: {row['target']}" if "target" in row else ""
    said = f"Question: {row.get('prompt', '')}{target}\n\nThe answer: {text}\n\nIs it right?"
    messages = (Message("system", _SYSTEM), Message("user", said))
    return ChatRequest(messages, (), Sampling(temperature=0.0, max_tokens=8), {"kind": "judge"})


def _said_yes(reply: Reply | TwinError) -> float:
    if isinstance(reply, TwinError):
        raise reply
    return float(reply.text.strip().lower().startswith("yes"))


def _each(right: Callable[[Row, str], bool]) -> Callable[[ScorerInput], list[float]]:
    """Judges each text by itself."""
    return lambda given: [
        float(right(row, text)) for row, text in zip(given.rows, given.texts, strict=True)
    ]


def _exact(row: Row, text: str) -> bool:
    return plain(text) in map(plain, _targets(row))


def _stripped(text: str) -> str | None:
    return text.strip() or None


def _line(text: str) -> str | None:
    return plain(text) or None


SCORERS: Final[Mapping[str, Scorer]] = {
    "exact": Scorer("the first line is the target", ("target",), _each(_exact), _line),
    "contains": Scorer("the text contains the target", ("target",), _each(_contains), _line),
    "numeric": Scorer("its number is the target", ("target",), _each(_numeric), _number_text),
    "code": Scorer("the unit tests pass", ("tests",), _judge_programs, _stripped),
    "verifier": Scorer("another generator says yes", (), _judge_by_generator, _stripped),
}
"""All scorers by name."""
