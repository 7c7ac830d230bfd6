"""What a policy wrote, token by token: ids as they were drawn, never text that is encoded again.

A response is everything behind its prompt: the assistant's tokens, and between them the messages of
users and tools, rendered by the template. Each token has the version of the weights that wrote it
and its log-probability then; tokens of users and tools have the version `NOBODY`, and are not
learned. The environment's state is a value, so a response that is not over can wait for as long as
it likes, in memory or in a checkpoint, and go on under other weights (Kimi K1.5, arXiv:2501.12599,
section 2.6.2). Repeats are found, too (the same section; how is OURS), and end a response early.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

from reference.agentic.environment import Verdict
from reference.dialog import Dialog, Message, calls_of, dialog_json, dialog_of
from reference.inference.request import GeneratedToken
from reference.text.template import END, parse_answer, render
from reference.text.tokenizer import Vocabulary
from twin.spec.base import Count, Spec, Whole

NOBODY: Final = -1
"""The version of a token that no weights wrote."""
Ended = Literal["over", "document", "steps", "budget", "context", "repeat", "failed"]
"""Why a response ended: the user ended it; the model ended the document rather than its message; no
message is left; the bound on its tokens, or the context, is met; it repeats itself; the environment
failed."""
CUT: Final[frozenset[Ended]] = frozenset({"budget", "context", "repeat"})
"""Ends in the middle of a message."""


@dataclass(slots=True)
class Response:
    """One answer to a prompt while it grows, and when it is over."""

    group: int
    index: int
    """Which of the group's."""
    task: str
    kind: str
    """Of the task; bounds on tokens go by it."""
    seed: int
    prompt: tuple[int, ...]
    dialog: Dialog
    """All messages that are whole, and the last one that was cut."""
    state: Any
    """The environment's."""
    tokens: list[int] = field(default_factory=list)
    behaviour: list[float] = field(default_factory=list)
    """Log-probability of each token in what it was drawn from, in nats; 0 where nobody drew."""
    policy: list[float] = field(default_factory=list)
    """The same at temperature 1 and without cuts: what a trainer computes again."""
    versions: list[int] = field(default_factory=list)
    turn: int = 0
    """Where in `tokens` the assistant's message begins."""
    steps: int = 0
    """Messages that the assistant has ended."""
    asks: bool = False
    """Whether the environment has to answer."""
    due: int = 0
    """Step of the engine at which it does."""
    ended: Ended | None = None
    verdict: Verdict | None = None
    """The last that is known of a response."""
    reward: float = 0.0

    @property
    def key(self) -> tuple[int, int]:
        """Group and place in it."""
        return self.group, self.index

    @property
    def finished(self) -> bool:
        """Whether it ended and was judged."""
        return self.verdict is not None

    @property
    def success(self) -> bool:
        """Whether it was judged, and every criterion holds."""
        return self.verdict is not None and self.verdict.success

    @property
    def written(self) -> int:
        """How many tokens some weights wrote."""
        return sum(version != NOBODY for version in self.versions)

    def write(self, token: GeneratedToken) -> None:
        """The next token of the policy."""
        self.tokens.append(token.token)
        self.behaviour.append(token.sampled_logprob)
        self.policy.append(token.logprob)
        self.versions.append(token.weights)

    def hear(self, ids: list[int]) -> None:
        """What others said; the assistant's next message begins behind it."""
        self.tokens += ids
        self.behaviour += [0.0] * len(ids)
        self.policy += [0.0] * len(ids)
        self.versions += [NOBODY] * len(ids)
        self.turn = len(self.tokens)


@dataclass(slots=True)
class PromptGroup:
    """A prompt and its responses."""

    number: int
    task: str
    responses: list[Response]

    @property
    def finished(self) -> bool:
        """Whether all responses are."""
        return all(response.finished for response in self.responses)


_PLAIN: Final = [
    each.name
    for each in fields(Response)
    if each.name not in ("prompt", "dialog", "state", "verdict")
]
"""Fields that are JSON as they are."""


def group_json(group: PromptGroup) -> dict[str, Any]:
    """A group as JSON; states of environments are pickles, in base64."""
    responses = [_response_json(response) for response in group.responses]
    return {"number": group.number, "task": group.task, "responses": responses}


def group_of(row: Mapping[str, Any]) -> PromptGroup:
    """The group of a `group_json`, to the bit. Unpickles: only for one's own checkpoints."""
    responses = [_response_of(each) for each in row["responses"]]
    return PromptGroup(row["number"], row["task"], responses)


def _response_json(response: Response) -> dict[str, Any]:
    verdict = response.verdict
    return {
        **{name: getattr(response, name) for name in _PLAIN},
        "prompt": list(response.prompt),
        "dialog": dialog_json(response.dialog),
        "state": base64.b64encode(pickle.dumps(response.state)).decode(),
        "verdict": None if verdict is None else [dict(verdict.checks), list(verdict.causes)],
    }


def _response_of(row: Mapping[str, Any]) -> Response:
    verdict = row["verdict"]
    return Response(
        **{name: copy(row[name]) for name in _PLAIN},
        prompt=tuple(row["prompt"]),
        dialog=dialog_of(row["dialog"]),
        state=pickle.loads(base64.b64decode(row["state"])),
        verdict=None if verdict is None else Verdict(verdict[0], tuple(verdict[1])),
    )


def opening(words: Vocabulary, dialog: Dialog) -> tuple[int, ...]:
    """The ids of a task's opening, up to the beginning of the assistant's message."""
    return tuple(words.ids(render(dialog, ask=True)))


def ends_message(words: Vocabulary) -> frozenset[int]:
    """The ids that end an assistant's message, beside the end of a document."""
    return frozenset({words.markers[END]})


def with_answer(words: Vocabulary, response: Response) -> Dialog:
    """The dialogue with the assistant's last message, whole or cut."""
    ids = response.tokens[response.turn :]
    message = parse_answer(words.segments(ids), calls_of(response.dialog.messages))
    return replace(response.dialog, messages=(*response.dialog.messages, message))


def answer_ids(words: Vocabulary, messages: Sequence[Message]) -> list[int]:
    """The ids of messages of tools or the user, up to the beginning of the assistant's next one."""
    return words.ids(render(Dialog(tuple(messages)), ask=True))


class RepeatSpec(Spec):
    """What counts as a repeat: the last `window` tokens are one piece, at least `times` over.
    OURS."""

    window: Whole = 64
    """Tokens that must repeat one piece; 0: repeats are not looked for."""
    times: Count = 4
    """Least repetitions of the piece."""


def repeats(tokens: Sequence[int], spec: RepeatSpec) -> bool:
    """Whether the end of `tokens` repeats itself."""
    window = spec.window
    if not window or len(tokens) < window:
        return False
    last = tokens[len(tokens) - window :]
    return any(
        last[-1] == last[-1 - period] and last[period:] == last[:-period]
        for period in range(1, window // spec.times + 1)
        if period < window
    )
