"""A program passes its unit tests, in the sandbox.

The program is the case's `prefix` (what the model went on from) with the answer, or the answer's
first fenced block. Tests are expressions of its names, each of which must be true. They are run
behind the program in one process and told over a word that the program cannot know, so that a
program which prints or exits passes nothing. A program that looks into its own interpreter can
still cheat: environments of `reference.agentic.code` are stricter.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

from reference.evaluate.scorers.scorer import Judging, Row, Scorer
from reference.sandbox.job import Command, RunLimits, python_text
from reference.sandbox.run import run_many

_FENCED = re.compile(r"```(?:python|py)?\n(.*?)(?:```|\Z)", re.DOTALL)
_LIMITS = RunLimits.model_validate({"cpu": "5s", "wall": "10s"})
_RUN = """\
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


def program_of(row: Row, text: str) -> str:
    """The program that an answer makes."""
    fenced = _FENCED.search(text)
    return fenced[1] if fenced else f"{row.get('prefix', '')}{_body(row, text)}"


def _body(row: Row, text: str) -> str:
    """Of a continuation what belongs to the function that it goes on with: up to the first line
    that is not indented."""
    if not row.get("prefix"):
        return text
    lines = text.split("\n")
    end = next(
        (at for at, line in enumerate(lines) if at and line[:1] not in ("", " ", "\t", "#")),
        len(lines),
    )
    return "\n".join([*lines[:end], ""])


def _judge(judging: Judging) -> list[float]:
    asked = [
        (program_of(row, text), tuple(row["tests"]))
        for row, text in zip(judging.rows, judging.texts, strict=True)
    ]
    differ = list(dict.fromkeys(asked))
    outcomes = run_many([_command(*one) for one in differ], _LIMITS)
    passed = {
        one: float(outcome.stdout.text == json.dumps([_word(one[0]), [True] * len(one[1])]))
        for one, outcome in zip(differ, outcomes, strict=True)
    }
    return [passed[one] for one in asked]


def _command(program: str, tests: Sequence[str]) -> Command:
    said = {"program": program, "tests": list(tests), "word": _word(program)}
    return python_text(_RUN, stdin=json.dumps(said).encode())


def _word(program: str) -> str:
    return hashlib.blake2b(program.encode(errors="replace"), digest_size=16).hexdigest()


def _answer(text: str) -> str | None:
    return text.strip() or None


SCORER = Scorer("it passes its unit tests", ("tests",), _judge, _answer)
