"""A repository with an issue as a world: tools on its files, hidden tests that decide.

The workspace is a value (`reference.sandbox.session`). A test run sees a copy of it, so that code
under test changes nothing. What decides is asked of the package's files alone, with nothing else of
the workspace beside them, and compared outside of the sandbox (`reference.agentic.code.hidden`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from reference.agentic.code.environment import not_text, shown
from reference.agentic.code.hidden import LIMITS, Answer, Group, ask, same
from reference.agentic.environment import Verdict
from reference.agentic.software.generate import Repository
from reference.dialog import Call, Dialog, Message, declared
from reference.sandbox.command import PYTHON, Command
from reference.sandbox.inside.wire import Entry
from reference.sandbox.isolation import Isolation
from reference.sandbox.limits import Limits
from reference.sandbox.session import Session
from reference.sandbox.tools.schema import errors_of
from twin.errors import TwinError

CAUSES = (
    "no change",
    "issue not mended",
    "broke what worked",
    "touched tests",
    "planted files",
    "syntax",
    "timeout",
    "memory",
    "exited",
    "forbidden",
)
"""Why an issue was not mended. `planted files`: new ones beside the package, or such as Python and
test runners load by themselves; `exited`: the code ended its process; `forbidden`: it passed a
limit on processes or files."""
SYSTEM = (
    "You mend issues of Python repositories. Look with list_files, read_file and search, change "
    "with edit_file and write_file, try with run_tests. Change the package only, not its tests. "
    "Say when you are done. Hidden tests decide."
)
_RUN = Limits.model_validate(
    {"cpu": "10s", "wall": "60s", "memory": "256MiB", "processes": 16, "output": "8KiB"}
)
_MOST = 8000
"""Characters of a file or of matches that are told at once."""
_HELD, _FILES = 1 << 20, 200
"""Bytes and files of a workspace: far below what its sandbox can take."""
_TIMED = re.compile(r"(Ran \d+ tests?) in [\d.]+s")


def _schema(**words: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": about} for name, about in words.items()
        },
        "required": list(words),
        "additionalProperties": False,
    }


_PATH = "path from the top, such as README.md"
_TOOLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "list_files": ("Lists the paths of all files.", _schema()),
    "read_file": ("Returns a file's text.", _schema(path=_PATH)),
    "search": (
        "Returns the lines of all files that hold a text, with path and number.",
        _schema(text="the text"),
    ),
    "edit_file": (
        "Replaces a text that stands exactly once in a file.",
        _schema(path=_PATH, old="the text that is there", new="the text for its place"),
    ),
    "write_file": ("Writes a whole file.", _schema(path=_PATH, text="all of its text")),
    "delete_file": ("Takes a file away.", _schema(path=_PATH)),
    "run_tests": ("Runs the repository's own tests and returns what they print.", _schema()),
}
TOOLS = tuple(declared(name, *rest) for name, rest in _TOOLS.items())


@dataclass(frozen=True, slots=True)
class SoftwareEnvironment:
    """A repository's world; its state is the workspace."""

    repository: Repository
    cpu_s: float = 1.0
    """CPU seconds of each hidden test."""
    limits: Limits = LIMITS
    """Of the run of all hidden tests together."""
    trials: Limits = _RUN
    """Of a run of the visible tests."""
    isolation: Isolation | None = None
    hints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What rules go by in place of thought: `kind` and `candidates`; no model is told."""

    @property
    def opening(self) -> Dialog:
        """The issue."""
        messages = (Message("system", SYSTEM), Message("user", self.repository.issue))
        return Dialog(messages, TOOLS)

    def start(self) -> Session:
        """The repository as it is."""
        empty = Session(limits=self.trials, isolation=self.isolation)
        return empty.write(self.repository.files)

    def call(self, state: Session, call: Call) -> tuple[Session, str]:
        """The workspace after a tool, and what the model is told."""
        given, wrong = _arguments(call)
        if wrong:
            return state, f"Error: {wrong}"
        return _WORK[call.name](state, given)

    def reply(self, state: Session, dialog: Dialog) -> str | None:
        """The end: a message without calls says that the work is done."""
        del state, dialog
        return None

    def judge(self, state: Session, dialog: Dialog) -> Verdict:
        """A criterion for each hidden test that failed before, which must pass; beside them: those
        that passed still do, tests are as they were, nothing is planted."""
        del dialog
        asked = ask(
            [group_of(self.repository)],
            package_of(self.repository, state),
            cpu_s=self.cpu_s,
            limits=self.limits,
            isolation=self.isolation,
        )
        return verdict_of(self.repository, state, asked[0])


def group_of(repository: Repository, path: str = ".") -> Group:
    """The hidden tests of a repository whose files lie below a path, to be asked."""
    return Group(tuple(one.code for one in repository.hidden), path=path)


def package_of(repository: Repository, state: Session) -> dict[str, Entry]:
    """The files of the package as they are now: all that hidden tests see."""
    return {
        path: one
        for path, one in state.files.items()
        if path.startswith(f"{repository.source}/") and one.kind == "file"
    }


def verdict_of(repository: Repository, state: Session, answers: tuple[Answer, ...]) -> Verdict:
    """What a workspace and the answers to its hidden tests are worth."""
    good = [same(one, test.expected) for one, test in zip(answers, repository.hidden, strict=True)]
    mended = {at: good[at] for at, test in enumerate(repository.hidden) if test.fails}
    guards = {
        "broke what worked": all(good[at] for at in range(len(good)) if at not in mended),
        "touched tests": not touched(repository, state),
        "planted files": not planted(repository, state),
    }
    causes: set[str] = {cause for cause, held in guards.items() if not held}
    causes |= {one.kind for one, held in zip(answers, good, strict=True) if not held} & set(CAUSES)
    if not all(mended.values()):
        causes.add("issue not mended")
    if state.files == Session().write(repository.files).files:
        causes.add("no change")
    checks = {f"mended {at}": held for at, held in mended.items()}
    # To leave things as they are is worth nothing where nothing is mended.
    gained = any(mended.values())
    checks |= {f"not: {cause}": held and gained for cause, held in guards.items()}
    return Verdict(checks, tuple(one for one in CAUSES if one in causes))


def touched(repository: Repository, state: Session) -> tuple[str, ...]:
    """Tests that are not as they were, or gone."""
    tests = [one for one in repository.files if one.startswith("tests/")]
    return tuple(one for one in tests if state.read(one) != repository.files[one].encode())


def planted(repository: Repository, state: Session) -> tuple[str, ...]:
    """New files and folders beside the package, and such as are loaded without being asked for,
    or in place of a module of Python's own."""
    new = [path for path in state.files if path not in repository.files]
    return tuple(one for one in new if _is_planted(one, repository.source))


def _is_planted(path: str, source: str) -> bool:
    first, _, _ = path.partition("/")
    name = path.rpartition("/")[2]
    stem = name.partition(".")[0]
    itself = stem in ("conftest", "sitecustomize", "usercustomize", "pytest", "unittest")
    by_config = name in ("pytest.ini", "setup.cfg", "tox.ini", "pyproject.toml")
    return first != source or itself or by_config or name.endswith((".pth", ".pyc", ".so"))


def _arguments(call: Call) -> tuple[dict[str, str], str]:
    if call.name not in _TOOLS:
        return {}, f"there is no tool {call.name}; there are: {', '.join(_TOOLS)}"
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        return {}, f"the arguments are no JSON: {error}"
    wrong = "; ".join(errors_of(given, _TOOLS[call.name][1])) or not_text(given)
    return ({}, wrong) if wrong else (given, "")


def _list(state: Session, given: Mapping[str, str]) -> tuple[Session, str]:
    del given
    return state, "\n".join(sorted(state.files))


def _read(state: Session, given: Mapping[str, str]) -> tuple[Session, str]:
    text = _text(state, given["path"])
    return state, _no_file(given["path"]) if text is None else _cut(text)


def _search(state: Session, given: Mapping[str, str]) -> tuple[Session, str]:
    found: list[str] = []
    for path in sorted(state.files):
        lines = (_text(state, path) or "").splitlines()
        found += [
            f"{path}:{at}: {line}" for at, line in enumerate(lines, 1) if given["text"] in line
        ]
    return state, _cut("\n".join(found)) or "No line holds it."


def _edit(state: Session, given: Mapping[str, str]) -> tuple[Session, str]:
    path, old = given["path"], given["old"]
    text = _text(state, path)
    if text is None:
        return state, _no_file(path)
    count = text.count(old) if old else 0
    if count != 1:
        return state, f"Error: the text stands {count} times in {path}; it must stand once."
    wrong = _too_much(state, given["new"])
    if wrong:
        return state, f"Error: {wrong}"
    return state.write({path: text.replace(old, given["new"])}), f"{path} is changed."


def _write(state: Session, given: Mapping[str, str]) -> tuple[Session, str]:
    wrong = _no_place(state, given["path"]) or _too_much(state, given["text"])
    if wrong:
        return state, f"Error: {wrong}"
    try:
        return state.write({given["path"]: given["text"]}), f"{given['path']} is written."
    except TwinError as error:
        return state, f"Error: {error}"


def _no_place(state: Session, path: str) -> str:
    """Why no folder can hold a file of that path beside those that there are."""
    parts = path.split("/")
    above = {"/".join(parts[:at]) for at in range(1, len(parts))}
    if above & state.files.keys():
        return f"{min(above & state.files.keys())} is a file and no folder."
    if any(one.startswith(f"{path}/") for one in state.files):
        return f"{path} is a folder."
    if len(path) > 1000 or any(len(part.encode()) > 200 for part in parts):
        return "the path is too long."
    return ""


def _too_much(state: Session, text: str) -> str:
    held = sum(len(one.data) for one in state.files.values()) + len(text.encode())
    full = held > _HELD or len(state.files) >= _FILES
    return f"the workspace holds {_HELD:,} bytes and {_FILES} files, and no more." if full else ""


def _delete(state: Session, given: Mapping[str, str]) -> tuple[Session, str]:

    if given["path"] not in state.files:
        return state, _no_file(given["path"])
    left = {path: one for path, one in state.files.items() if path != given["path"]}
    return replace(state, files=left), f"{given['path']} is gone."


def _run_tests(state: Session, given: Mapping[str, str]) -> tuple[Session, str]:
    del given
    words = (PYTHON, "-s", "-B", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
    outcome, _ = state.run(Command(words, environment={"PYTHONHASHSEED": "0"}))
    text = shown(outcome)
    text = text if not outcome.ok else text + outcome.stderr.text
    return state, _TIMED.sub(r"\1", text)


_WORK: Mapping[str, Callable[[Session, Mapping[str, str]], tuple[Session, str]]] = {
    "list_files": _list,
    "read_file": _read,
    "search": _search,
    "edit_file": _edit,
    "write_file": _write,
    "delete_file": _delete,
    "run_tests": _run_tests,
}


def _text(state: Session, path: str) -> str | None:
    data = state.read(path)
    return None if data is None else data.decode(errors="replace")


def _no_file(path: str) -> str:
    return f"Error: there is no file {path}."


def _cut(text: str) -> str:
    if len(text) <= _MOST:
        return text
    return f"{text[:_MOST]}\n[... {len(text) - _MOST:,} characters left out ...]"
