"""A task: its settings, its cases, and a digest of both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, field_validator

from reference.config import TaskChoice, TaskChoices, Temperature
from reference.dialog import json_object
from reference.evaluate.scorers import SCORERS
from twin.errors import FieldError, Problem, ScenarioError, UsageError
from twin.loading.load import load_config
from twin.loading.tree import hint
from twin.spec.base import Count, Part, Spec, Whole

Ask = Literal["read", "choose", "generate", "needle", "act", "attack"]
"""Ways to ask: bits per byte of text; the likeliest of several continuations; an answer; a fact
hidden in a long text; a dialogue with tools; attempts to make it say what it must not."""
ScorerName = Literal["exact", "contains", "numeric", "code", "verifier"]


class NeedleSpec(Spec):
    """The grid of a needle task."""

    lengths: tuple[Count, ...] = Field(min_length=1)
    """Tokens of the whole prompt."""
    depths: tuple[Part, ...] = Field(default=(0.0, 0.25, 0.5, 0.75, 1.0), min_length=1)
    """Where the fact stands: 0 at the beginning, 1 right before the question."""
    facts: Count = 8
    """Facts of each cell, each in a text of its own."""
    choices: Annotated[Count, Field(ge=2, le=26)] = 8
    """Answers to choose from, where log-likelihoods can be had."""
    answer: Literal["choose", "generate"] = "choose"
    """How it is asked for: chosen by log-likelihood, or written."""


class TaskSpec(Spec):
    """A task: data beside it, how it is asked, and who scores."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    """What results call it."""
    about: str
    """One sentence: what is asked."""
    source: str
    """Where the cases come from."""
    ask: Ask
    """The way of asking."""
    cases: str
    """JSONL file beside this one; `held-out` for the held-out text of the run that is judged."""
    scorer: ScorerName | None = None
    """Who judges a text."""
    verifier: ScorerName | None = None
    """Who chooses one of several samples for best-of-n; it sees the case under the fields of its
    `verify`."""
    form: Literal["text", "chat"] = "text"
    """text: the model goes on from the prompt; chat: the prompt is a user's message, in the model's
    template. Servers get a user's message in both."""
    limit: Count | None = None
    """The first cases only; null: all."""
    samples: Count = 1
    """Answers to each case."""
    ks: tuple[Count, ...] = ()
    """Pass@k for these k, besides pass@1."""
    temperature: Temperature = 0.0
    """0: the likeliest token."""
    top_p: Part = 1.0
    """Share of the probability that is kept."""
    output_tokens: Count = 64
    """Tokens of an answer at most; answers that it cuts are counted."""
    context_tokens: Count | None = None
    """Tokens of prompt and answer; null: as many as the model was trained with. Of longer texts the
    beginning is cut, longer dialogues are refused; both are counted."""
    stop: tuple[str, ...] = ()
    """Texts before which an answer ends."""
    steps: Count = 16
    """Of act: answers of the model, calls and the user's later turns, together."""
    needle: NeedleSpec | None = None
    """Of needle: the grid."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """What the embedded rules go by; sent to no server."""

    @field_validator("ks")
    @classmethod
    def _sorted(cls, ks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(ks) - {1}))


class EvaluateSpec(Spec):
    """One evaluation."""

    model: str
    """A training run's folder or one of its checkpoints; the address of an OpenAI-compatible
    server, for what is generated; or `rules`."""
    tasks: TaskChoices = Field(min_length=1)
    """What is asked, in order."""
    output: str | None = None
    """Folder of cases and result; null: runs/evaluate/ and the configuration's name."""
    seed: Whole = 0
    """Of sampled answers."""
    limit: Count | None = None
    """Cases of each task at most; null: all that the task has."""
    constrained: bool = False
    """Whether a run's tool calls are held to the declared tools; free decoding tells what the model
    learned."""
    precision: Literal["bf16", "fp32", "fp64"] | None = None
    """Of a run's weights; null: that of the run."""
    threads: Count = 1
    """CPU threads, for a run's folder."""
    at_once: Count = 8
    """Requests to a server at one time."""
    server_model: str = "default"
    """The model's name on a server."""
    key_variable: str | None = None
    """Environment variable with the key of the servers."""
    judge: str | None = None
    """Address of the server that judges, for the scorer `verifier`."""

    @field_validator("tasks")
    @classmethod
    def _names_differ(cls, tasks: tuple[TaskChoice, ...]) -> tuple[TaskChoice, ...]:
        names = [choice.name for choice in tasks]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise FieldError("TW580", f"the task `{twice}` is named twice", "name it once")
        return tasks


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
    if spec.cases == HELD_OUT:
        texts = enumerate(held_out or (), 1)
        rows: list[dict[str, Any]] = [{"id": f"held-out-{at}", "text": text} for at, text in texts]
    else:
        rows = _rows(file.with_name(spec.cases))
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
        row = json_object(line)
        if row is None:
            message = f"line {number} of `{path}` is not a JSON object"
            raise UsageError([Problem("TW583", "cases", message)])
        rows.append(row)
    return rows


def _case(row: Mapping[str, Any], number: int, spec: TaskSpec) -> EvaluationCase:
    needed = [*_NEEDS[spec.ask], *(SCORERS[spec.scorer].fields if spec.scorer else ())]
    missing = [name for name in needed if name not in row]
    if missing:
        message = f"case {number} of `{spec.name}` has no `{missing[0]}`"
        raise UsageError([Problem("TW583", f"tasks.{spec.name}", message)])
    id_ = str(row.get("id", number))
    return EvaluationCase(id_, str(row.get("group", id_)), row)
