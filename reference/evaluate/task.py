"""A task: its settings, its cases, and a digest of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from reference.config import TaskChoice
from reference.evaluate.scorers import SCORERS
from reference.evaluate.spec import TaskSpec
from twin.errors import Problem, ScenarioError, UsageError
from twin.loading.config import load_config
from twin.loading.suggest import hint

FOLDER: Final = Path(__file__).with_name("tasks")
HELD_OUT: Final = "held-out"
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "read": ("text",),
    "choose": ("prompt", "choices", "target"),
    "generate": ("prompt",),
    "needle": ("filler",),
    "act": ("world",),
    "attack": ("risk", "kind", "turns", "canary"),
}


@dataclass(frozen=True, slots=True)
class EvaluationCase:
    """One question."""

    id: str
    group: str
    """Its cluster, such as the text that it is about; its id where it has none."""
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EvaluationTask:
    """A task with its cases."""

    spec: TaskSpec
    cases: tuple[EvaluationCase, ...]

    @property
    def digest(self) -> str:
        """A hash of settings and cases."""
        said = [self.spec.model_dump(mode="json"), [dict(case.row) for case in self.cases]]
        text = json.dumps(said, sort_keys=True, ensure_ascii=False)
        return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def names() -> list[str]:
    """The built-in tasks."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def open_task(
    choice: TaskChoice, limit: int | None = None, held_out: Sequence[str] | None = None
) -> EvaluationTask:
    """A task with its first `limit` cases at most. `held_out` are the held-out documents of the run
    that is evaluated, None where there is none.

    Raises UsageError TW581 for an unknown name, ScenarioError TW582 for settings that
    contradict each other, UsageError TW583 for cases that cannot be read or lack a field.
    """
    file = _file(choice.name)
    spec = load_config(TaskSpec, file)
    try:
        spec = TaskSpec.model_validate({**spec.model_dump(), **choice.changes})
    except ValidationError as error:
        raise _contradiction(spec.name, error.errors()[0]["msg"], "") from None
    _refuse_contradictions(spec)
    rows = _held_out(held_out) if spec.cases == HELD_OUT else _rows(file.with_name(spec.cases))
    most = min((each for each in (limit, spec.limit) if each is not None), default=None)
    cases = tuple(_case(row, at, spec) for at, row in enumerate(rows[:most], 1))
    if not cases and spec.cases != HELD_OUT:
        raise UsageError([Problem("TW583", f"tasks.{spec.name}", "the task has no cases")])
    return EvaluationTask(spec, cases)


def _file(name: str) -> Path:
    path = Path(name)
    if path.is_file():
        return path
    known = FOLDER / f"{name}.yaml"
    if path.name == name and known.is_file():
        return known
    fix = hint(name, names(), "name a file, or a built-in task")
    raise UsageError([Problem("TW581", "tasks", f"there is no task `{name}`", fix)])


def _refuse_contradictions(spec: TaskSpec) -> None:
    if spec.ask == "generate" and spec.scorer is None:
        raise _contradiction(spec.name, "`generate` needs a scorer", "name one: `scorer: exact`")
    if spec.ask == "needle" and spec.needle is None:
        raise _contradiction(spec.name, "`needle` needs a grid", "write `needle: {lengths: [128]}`")
    if spec.samples > 1 and spec.temperature == 0:
        message = f"{spec.samples} samples at temperature 0 are all the same"
        raise _contradiction(spec.name, message, "set `temperature`, or `samples: 1`")
    most = max(spec.ks, default=0)
    if most > spec.samples:
        message = f"pass@{most} needs {most} samples, not {spec.samples}"
        raise _contradiction(spec.name, message, f"set `samples: {most}`")
    if spec.context_tokens is not None and spec.context_tokens <= spec.output_tokens:
        message = f"a context of {spec.context_tokens} leaves no room for a prompt"
        raise _contradiction(spec.name, message, "lower `output_tokens`")


def _contradiction(name: str, message: str, fix: str) -> ScenarioError:
    return ScenarioError([Problem("TW582", f"tasks.{name}", message, fix)])


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        message = f"`{path}` cannot be read: {error}"
        raise UsageError([Problem("TW583", "cases", message)]) from None
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            message = f"line {number} of `{path}` is not a JSON object"
            raise UsageError([Problem("TW583", "cases", message)])
        rows.append(row)
    return rows


def _held_out(documents: Sequence[str] | None) -> list[dict[str, Any]]:
    return [{"id": f"held-out-{at}", "text": text} for at, text in enumerate(documents or (), 1)]


def _case(row: Mapping[str, Any], number: int, spec: TaskSpec) -> EvaluationCase:
    needed = [*_NEEDS[spec.ask], *(SCORERS[spec.scorer].fields if spec.scorer else ())]
    missing = [name for name in needed if name not in row]
    if missing:
        message = f"case {number} of `{spec.name}` has no `{missing[0]}`"
        raise UsageError([Problem("TW583", f"tasks.{spec.name}", message)])
    id_ = str(row.get("id", number))
    return EvaluationCase(id_, str(row.get("group", id_)), row)
