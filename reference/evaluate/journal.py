"""The cases of an evaluation as they come, so that one that was killed goes on.

    evaluation.json      what is judged, and by what: another one does not go on here
    cases/TASK.jsonl     a line per case, and after each round of cases a line that says so
    result.json, table.md, TASK.svg    when all is done

A round that a kill cut is asked again as a whole: what a model answers may depend on who is asked
beside it, in the last bits.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from reference.evaluate.ask.way import Row
from reference.trainer.folder import Existing
from twin.errors import Problem, UsageError

HEAD: Final = "evaluation.json"
RESULT: Final = "result.json"
TABLE: Final = "table.md"
_CASES: Final = "cases"


class Journal:
    """The folder of one evaluation."""

    def __init__(self, folder: Path, head: Mapping[str, Any], existing: Existing) -> None:
        """Raises UsageError TW586 where the folder holds another evaluation or something else, or
        cannot be written."""
        self.folder = folder
        try:
            self._open(head, existing)
        except OSError as error:
            raise _refused(f"`{folder}` cannot be written: {error.strerror}", "") from None

    def _open(self, head: Mapping[str, Any], existing: Existing) -> None:
        path = self.folder / HEAD
        if self.folder.exists() and not path.is_file() and any(self.folder.iterdir()):
            fix = "name an empty or a new folder with `--set output=...`"
            raise _refused(f"`{self.folder}` exists and holds no evaluation", fix)
        if path.is_file() and existing == "refuse":
            fix = "`--resume` goes on with it, `--fresh` deletes it"
            raise _refused(f"`{self.folder}` holds an evaluation already", fix)
        if path.is_file() and existing == "fresh":
            path.unlink()
        if path.is_file():
            _compare(json.loads(path.read_text(encoding="utf-8")), head, self.folder)
        else:
            shutil.rmtree(self.folder / _CASES, ignore_errors=True)
            (self.folder / _CASES).mkdir(parents=True)
            write(path, json.dumps(head, indent=1, ensure_ascii=False) + "\n")

    def rounds(self, task: str) -> list[list[Row]]:
        """The whole rounds of a task so far; what follows them is forgotten."""
        found = read_rounds(self.folder, task)
        lines = [line for number, rows in enumerate(found) for line in _lines(rows, number)]
        write(_path(self.folder, task), "".join(lines))
        return found

    def add(self, task: str, rows: Sequence[Row], number: int) -> None:
        """Another round, on disk when this returns."""
        with _path(self.folder, task).open("a", encoding="utf-8") as file:
            file.writelines(_lines(rows, number))
            file.flush()
            os.fsync(file.fileno())


def read_rounds(folder: Path, task: str) -> list[list[Row]]:
    """The whole rounds of a task in an evaluation's folder; none where it was not asked."""
    path = _path(folder, task)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found: list[list[Row]] = []
    rows: list[Row] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        row = json.loads(line)
        if "round" in row:
            found.append(rows)
            rows = []
        else:
            rows.append(row)
    return found


def read_document(folder: Path, name: str = RESULT) -> dict[str, Any]:
    """A document of an evaluation's folder. Raises UsageError TW588 where there is none that this
    version reads."""
    try:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"`{folder}` holds no finished evaluation ({type(error).__name__})"
        fix = "name the folder of one, its `output`"
        raise UsageError([Problem("TW588", "", message, fix)]) from None
    if found.get("version") != 1:
        message = f"`{folder / name}` is of version {found.get('version')}, and 1 is read"
        raise UsageError([Problem("TW588", "", message)])
    return found


def write(path: Path, text: str) -> None:
    """A file in one move: a kill leaves the old one."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _path(folder: Path, task: str) -> Path:
    return folder / _CASES / f"{task}.jsonl"


def _lines(rows: Sequence[Row], number: int) -> list[str]:
    return [
        json.dumps(row, ensure_ascii=True, allow_nan=False) + "\n"
        for row in (*rows, {"round": number})
    ]


def _compare(held: Mapping[str, Any], head: Mapping[str, Any], folder: Path) -> None:
    now = json.loads(json.dumps(head))
    other = sorted(key for key in held.keys() | now.keys() if held.get(key) != now.get(key))
    if other:
        message = f"`{folder}` holds an evaluation with another {', '.join(other)}"
        raise _refused(message, "name another folder with `--set output=...`, or `--fresh`")


def _refused(message: str, fix: str) -> UsageError:
    return UsageError([Problem("TW586", "output", message, fix)])
