"""The configuration of an evaluation: a model, tasks, and how many answers of each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from reference.config import TaskChoice, TaskChoices, Temperature
from twin.errors import FieldError
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
