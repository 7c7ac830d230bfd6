"""The cases of an evaluation on disk as they come, so that a killed evaluation can be resumed.

    evaluation.json      the model and the tasks: another evaluation is refused here
    cases/TASK.jsonl     a line per case, and a closing line after each round of cases
    result.json, table.md, TASK.svg    at the end

A round that a kill cut is asked again as a whole: answers may depend, in the last bits, on the
prompts computed beside them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from reference.files import replace_synced
from reference.trainer.settings import Existing
from twin.errors import Problem, UsageError

HEAD: Final = "evaluation.json"
RESULT: Final = "result.json"
TABLE: Final = "table.md"
_CASES: Final = "cases"
Row = dict[str, Any]


class EvaluationJournal:
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
            fix = "`--resume` continues it, `--fresh` deletes it"
            raise _refused(f"`{self.folder}` already holds an evaluation", fix)
        if path.is_file() and existing == "fresh":
            path.unlink()
        if path.is_file():
            _refuse_other(json.loads(path.read_text(encoding="utf-8")), head, self.folder)
        else:
            shutil.rmtree(self.folder / _CASES, ignore_errors=True)
            (self.folder / _CASES).mkdir(parents=True)
            replace_synced(path, json.dumps(head, indent=1, ensure_ascii=False) + "\n")

    def rounds(self, task: str) -> list[list[Row]]:
        """The whole rounds of a task so far; what follows them is deleted."""
        rounds = _rounds(self.folder, task)
        lines = [line for number, rows in enumerate(rounds) for line in _lines(rows, number)]
        replace_synced(_path(self.folder, task), "".join(lines))
        return rounds

    def add(self, task: str, rows: Sequence[Row], number: int) -> None:
        """Another round, on disk when this returns."""
        with _path(self.folder, task).open("a", encoding="utf-8") as file:
            file.writelines(_lines(rows, number))
            file.flush()
            os.fsync(file.fileno())


def read_rows(folder: Path, task: str) -> list[Row]:
    """The rows of a task in an evaluation's folder, of whole rounds; none where it was not
    asked."""
    return [row for rows in _rounds(folder, task) for row in rows]


def _rounds(folder: Path, task: str) -> list[list[Row]]:
    path = _path(folder, task)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    rounds: list[list[Row]] = []
    rows: list[Row] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        row = json.loads(line)
        if "round" in row:
            rounds.append(rows)
            rows = []
        else:
            rows.append(row)
    return rounds


def read_document(folder: Path, name: str = RESULT) -> dict[str, Any]:
    """A document of an evaluation's folder. Raises UsageError TW588 where there is none that this
    version reads."""
    try:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"`{folder}` holds no finished evaluation ({type(error).__name__})"
        fix = "name the `output` folder of an evaluation"
        raise UsageError([Problem("TW588", "", message, fix)]) from None
    if document.get("version") != 1:
        message = f"`{folder / name}` has version {document.get('version')}; supported: 1"
        raise UsageError([Problem("TW588", "", message)])
    return document


def _path(folder: Path, task: str) -> Path:
    return folder / _CASES / f"{task}.jsonl"


def _lines(rows: Sequence[Row], number: int) -> list[str]:
    return [
        json.dumps(row, ensure_ascii=True, allow_nan=False) + "\n"
        for row in (*rows, {"round": number})
    ]


def _refuse_other(held: Mapping[str, Any], head: Mapping[str, Any], folder: Path) -> None:
    now = json.loads(json.dumps(head))
    keys = sorted(key for key in held.keys() | now.keys() if held.get(key) != now.get(key))
    if keys:
        message = f"`{folder}` holds an evaluation with another {', '.join(keys)}"
        raise _refused(message, "name another folder with `--set output=...`, or `--fresh`")


def _refused(message: str, fix: str) -> UsageError:
    return UsageError([Problem("TW586", "output", message, fix)])
