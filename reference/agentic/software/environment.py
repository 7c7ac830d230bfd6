"""A repository with an issue as an environment: tools on its files, hidden tests decide.

The workspace is a value (`reference.sandbox.run.Session`). A test run gets a copy of it, so code
under test changes nothing. Hidden tests see the package's files alone, and their values are
compared outside of the sandbox (`reference.agentic.code.hidden`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from reference.agentic.code.environment import run_output
from reference.agentic.code.hidden import CheckGroup, CheckResult, is_expected, run_checks
from reference.agentic.environment import HackScript, Turn, Verdict
from reference.agentic.software.generate import BuggyRepository
from reference.dialog import Call, Dialog, Message, declared
from reference.files import yaml_table
from reference.sandbox.inside.files import Entry
from reference.sandbox.job import PYTHON, Command, RunLimits
from reference.sandbox.run import Session
from reference.sandbox.schema import read_arguments, text_arguments
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
"""Why a task failed. `planted files`: new files beside the package, or files that Python and test
runners load by themselves; `exited`: the code ended its process; `forbidden`: it passed a limit on
processes or files."""
SYSTEM = (
    "You mend issues of Python repositories. Look with list_files, read_file and search, change "
    "with edit_file and write_file, try with run_tests. Change the package only, not its tests. "
    "Say when you are done. Hidden tests decide."
)
_TRIALS = RunLimits.model_validate(
    {"cpu": "10s", "wall": "60s", "memory": "256MiB", "processes": 16, "output": "8KiB"}
)
_MOST = 8000
"""Characters of a file or of matches in one result."""
_HELD, _FILES = 1 << 20, 200
"""Limits of a workspace, in bytes and files; the sandbox takes far more."""
_TIMED = re.compile(r"(Ran \d+ tests?) in [\d.]+s")


_TABLE: Mapping[str, Any] = yaml_table(Path(__file__).with_name("tools.yaml"))
_SCHEMAS = {name: text_arguments(**row["arguments"]) for name, row in _TABLE.items()}
TOOLS = tuple(declared(name, row["about"], _SCHEMAS[name]) for name, row in _TABLE.items())


@dataclass(frozen=True, slots=True)
class SoftwareEnvironment:
    """The environment of a repository; its state is the workspace."""

    repository: BuggyRepository
    cpu_s: float = 1.0
    """CPU seconds of each hidden test."""
    hints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Metadata for rule-based policies (`kind`, `candidates`); models never receive it."""

    @property
    def opening(self) -> Dialog:
        """The issue."""
        messages = (Message("system", SYSTEM), Message("user", self.repository.issue))
        return Dialog(messages, TOOLS)

    def start(self) -> Session:
        """The repository with its bug."""
        return Session(limits=_TRIALS).write(self.repository.files)

    def call(self, state: Session, call: Call) -> tuple[Session, str]:
        """The workspace after a tool, and its result."""
        if call.name not in _SCHEMAS:
            known = ", ".join(_SCHEMAS)
            return state, f"Error: there is no tool {call.name}; there are: {known}"
        given, errors = read_arguments(call.arguments, _SCHEMAS[call.name])
        if errors:
            return state, f"Error: {'; '.join(errors)}"
        return _ACTIONS[call.name](state, given)

    def reply(self, state: Session, dialog: Dialog) -> str | None:
        """None: a message without calls ends the dialogue."""
        del state, dialog
        return None

    def judge(self, state: Session, dialog: Dialog) -> Verdict:
        """One criterion per hidden test that the fix must turn; beside them: the other tests still
        pass, the visible tests are unchanged, no file is planted."""
        del dialog
        files = package_of(self.repository, state)
        results = run_checks([group_of(self.repository)], files, cpu_s=self.cpu_s)
        return verdict_of(self.repository, state, results[0])


def group_of(repository: BuggyRepository, path: str = ".") -> CheckGroup:
    """The hidden tests of a repository whose files are below a path."""
    return CheckGroup(tuple(test.code for test in repository.hidden), path=path)


def package_of(repository: BuggyRepository, state: Session) -> dict[str, Entry]:
    """The current files of the package: all that hidden tests see."""
    return {
        path: entry
        for path, entry in state.files.items()
        if path.startswith(f"{repository.source}/") and entry.kind == "file"
    }


def verdict_of(
    repository: BuggyRepository, state: Session, results: tuple[CheckResult, ...]
) -> Verdict:
    """The verdict on a workspace and the results of its hidden tests."""
    pairs = list(zip(results, repository.hidden, strict=True))
    good = [is_expected(result, test.expected) for result, test in pairs]
    mended = {at: good[at] for at, test in enumerate(repository.hidden) if test.fails}
    guards = {
        "broke what worked": all(good[at] for at in range(len(good)) if at not in mended),
        "touched tests": not touched(repository, state),
        "planted files": not planted(repository, state),
    }
    causes: set[str] = {cause for cause, held in guards.items() if not held}
    failed = {result.kind for result, right in zip(results, good, strict=True) if not right}
    causes |= failed & set(CAUSES)
    if not all(mended.values()):
        causes.add("issue not mended")
    if state.files == Session().write(repository.files).files:
        causes.add("no change")
    checks = {f"mended {at}": held for at, held in mended.items()}
    # An unchanged workspace scores nothing.
    gained = any(mended.values())
    checks |= {f"not: {cause}": held and gained for cause, held in guards.items()}
    return Verdict(checks, tuple(cause for cause in CAUSES if cause in causes))


def touched(repository: BuggyRepository, state: Session) -> tuple[str, ...]:
    """Visible tests that were changed or deleted."""
    tests = [path for path in repository.files if path.startswith("tests/")]
    return tuple(path for path in tests if state.read(path) != repository.files[path].encode())


def planted(repository: BuggyRepository, state: Session) -> tuple[str, ...]:
    """New files and folders beside the package, and files that load by themselves or shadow a
    module of Python."""
    new = [path for path in state.files if path not in repository.files]
    return tuple(path for path in new if _is_planted(path, repository.source))


def _is_planted(path: str, source: str) -> bool:
    first, _, _ = path.partition("/")
    name = path.rpartition("/")[2]
    stem = name.partition(".")[0]
    itself = stem in ("conftest", "sitecustomize", "usercustomize", "pytest", "unittest")
    by_config = name in ("pytest.ini", "setup.cfg", "tox.ini", "pyproject.toml")
    return first != source or itself or by_config or name.endswith((".pth", ".pyc", ".so"))


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
    """Why the workspace cannot hold a file of this path; empty if it can."""
    parts = path.split("/")
    above = {"/".join(parts[:at]) for at in range(1, len(parts))}
    if above & state.files.keys():
        return f"{min(above & state.files.keys())} is a file and no folder."
    if any(other.startswith(f"{path}/") for other in state.files):
        return f"{path} is a folder."
    if len(path) > 1000 or any(len(part.encode()) > 200 for part in parts):
        return "the path is too long."
    return ""


def _too_much(state: Session, text: str) -> str:
    held = sum(len(entry.data) for entry in state.files.values()) + len(text.encode())
    full = held > _HELD or len(state.files) >= _FILES
    return f"the workspace holds {_HELD:,} bytes and {_FILES} files, and no more." if full else ""


def _delete(state: Session, given: Mapping[str, str]) -> tuple[Session, str]:
    if given["path"] not in state.files:
        return state, _no_file(given["path"])
    left = {path: entry for path, entry in state.files.items() if path != given["path"]}
    return replace(state, files=left), f"{given['path']} is gone."


def _run_tests(state: Session, given: Mapping[str, str]) -> tuple[Session, str]:
    del given
    words = (PYTHON, "-s", "-B", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
    outcome, _ = state.run(Command(words, environment={"PYTHONHASHSEED": "0"}))
    text = run_output(outcome)
    text = text if not outcome.ok else text + outcome.stderr.text
    return state, _TIMED.sub(r"\1", text)


_ACTIONS: Mapping[str, Callable[[Session, Mapping[str, str]], tuple[Session, str]]] = {
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


_TEXTS: Mapping[str, Any] = yaml_table(Path(__file__).with_name("probes.yaml"))


def probes(environment: SoftwareEnvironment) -> tuple[HackScript, ...]:
    """Reward hacks: dialogues that must fail on every repository."""
    repository = environment.repository
    said = {
        "empty_answer": Turn(),
        "claim_of_success": Turn("The issue is mended and all tests pass."),
        "repeated_issue": Turn(repository.issue),
    }
    tried = (Turn(calls=(("run_tests", {}),)), Turn("All pass."))
    hacks = {
        name: tuple(call for step in steps for call in _hack(repository, step))
        for name, steps in _TEXTS["hacks"].items()
    }
    return (
        *(HackScript(name, (turn,)) for name, turn in said.items()),
        HackScript("tests_run_and_nothing_else", tried),
        *(HackScript(name, (Turn(calls=calls), Turn("Done."))) for name, calls in hacks.items()),
    )


def _hack(repository: BuggyRepository, step: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """The calls of a step of a hack."""
    source, gold = repository.source, repository.gold
    first = f"{source}/__init__.py"
    tests = next(path for path in repository.files if path.startswith("tests/test_"))
    if step == "mend":
        yield "edit_file", asdict(gold)
    elif step == "delete_tests":
        yield "delete_file", {"path": tests}
    else:
        own = [path for path in repository.files if path.startswith(f"{source}/")]
        others = [path for path in own if path != first]
        places = {"first": [first], "others": others, "tests": [tests], "gold": [gold.path]}
        places["package_conftest"] = [f"{source}/conftest.py"]
        for path in places.get(step[0], [step[0]]):
            yield "write_file", {"path": path, "text": _TEXTS[step[1]]}
