"""What an evaluation is: a model, tasks, and how many answers of each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from reference.config import TaskChoice, TaskChoices, Temperature
from twin.errors import FieldError
from twin.spec.base import Count, Part, Spec, Whole

Ask = Literal["read", "choose", "generate", "needle", "act", "attack"]
"""Ways to ask: bits per byte of text; the likeliest of several continuations; an answer; a fact
hidden in a long text; a dialogue with tools; attempts to make it say what it must not."""


class NeedleSpec(Spec):
    """The grid of a needle task."""

    lengths: tuple[Count, ...] = Field(min_length=1, description="tokens of the whole prompt")
    depths: tuple[Part, ...] = Field(
        default=(0.0, 0.25, 0.5, 0.75, 1.0),
        min_length=1,
        description="where the fact stands: 0 at the beginning, 1 right before the question",
    )
    facts: Count = Field(default=8, description="facts of each cell, each in a text of its own")
    choices: Annotated[Count, Field(ge=2, le=26)] = Field(
        default=8, description="answers to choose from, where log-likelihoods can be had"
    )
    answer: Literal["choose", "generate"] = Field(
        default="choose", description="how it is asked for: chosen by log-likelihood, or written"
    )


class TaskSpec(Spec):
    """A task: data beside it, how it is asked, and who scores."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$", description="what results call it")
    about: str = Field(description="one sentence: what is asked")
    source: str = Field(description="where the cases come from")
    ask: Ask = Field(description="the way of asking")
    cases: str = Field(
        description="JSONL file beside this one; `held-out` for the held-out text of the run that "
        "is judged"
    )
    scorer: Literal["exact", "contains", "numeric", "code", "verifier"] | None = Field(
        default=None, description="who judges a text"
    )
    verifier: Literal["exact", "contains", "numeric", "code", "verifier"] | None = Field(
        default=None,
        description="who chooses one of several samples for best-of-n; it sees the case under the "
        "fields of its `verify`",
    )
    form: Literal["text", "chat"] = Field(
        default="text",
        description="text: the model goes on from the prompt; chat: the prompt is a user's "
        "message, in the model's template. Servers get a user's message in both",
    )
    limit: Count | None = Field(default=None, description="the first cases only; null: all")
    samples: Count = Field(default=1, description="answers to each case")
    ks: tuple[Count, ...] = Field(default=(), description="pass@k for these k, besides pass@1")
    temperature: Temperature = Field(default=0.0, description="0: the likeliest token")
    top_p: Part = Field(default=1.0, description="share of the probability that is kept")
    output_tokens: Count = Field(
        default=64,
        description="tokens of an answer at most; answers that it cuts are counted",
    )
    context_tokens: Count | None = Field(
        default=None,
        description="tokens of prompt and answer; null: as many as the model was trained with. "
        "Of longer texts the beginning is cut, longer dialogues are refused; both are counted",
    )
    stop: tuple[str, ...] = Field(default=(), description="texts before which an answer ends")
    steps: Count = Field(
        default=16,
        description="of act: answers of the model, calls and the user's later turns, together",
    )
    needle: NeedleSpec | None = Field(default=None, description="of needle: the grid")
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="what the embedded rules go by; sent to no server"
    )

    @field_validator("ks")
    @classmethod
    def _sorted(cls, ks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(ks) - {1}))


class EvaluateSpec(Spec):
    """One evaluation."""

    model: str = Field(
        description="a training run's folder or one of its checkpoints; the address of an "
        "OpenAI-compatible server, for what is generated; or `rules`"
    )
    tasks: TaskChoices = Field(min_length=1, description="what is asked, in order")
    output: str | None = Field(
        default=None,
        description="folder of cases and result; null: runs/evaluate/ and the configuration's name",
    )
    seed: Whole = Field(default=0, description="of sampled answers")
    limit: Count | None = Field(
        default=None, description="cases of each task at most; null: all that the task has"
    )
    constrained: bool = Field(
        default=False,
        description="whether a run's tool calls are held to the declared tools; free decoding "
        "tells what the model learned",
    )
    precision: Literal["bf16", "fp32", "fp64"] | None = Field(
        default=None, description="of a run's weights; null: that of the run"
    )
    threads: Count = Field(default=1, description="CPU threads, for a run's folder")
    at_once: Count = Field(default=8, description="requests to a server at one time")
    server_model: str = Field(default="default", description="the model's name on a server")
    key_variable: str | None = Field(
        default=None, description="environment variable with the key of the servers"
    )
    judge: str | None = Field(
        default=None, description="address of the server that judges, for the scorer `verifier`"
    )

    @field_validator("tasks")
    @classmethod
    def _names_differ(cls, tasks: tuple[TaskChoice, ...]) -> tuple[TaskChoice, ...]:
        names = [one.name for one in tasks]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise FieldError("TW580", f"the task `{twice}` is named twice", "name it once")
        return tasks
