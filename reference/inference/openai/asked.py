"""What completions and chats have in common: sampling, bounds, usage, log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reference.inference.openai.fields import ApiError, Fields, wrong
from reference.inference.request import Request, Told, Update
from reference.inference.sampling import Sampling
from reference.text.vocabulary import Vocabulary

_SEED: Final = 2**63 - 1
_IGNORED: Final = ("user", "metadata", "store", "service_tier", "prompt_cache_key")
"""Fields that change no answer."""
TOP: Final = 20
"""Likeliest tokens that may be asked for."""


@dataclass(frozen=True, slots=True)
class Options:
    """How an answer is told."""

    model: str
    stream: bool
    usage_last: bool
    """Whether a stream ends with its usage."""
    logprobs: bool
    token_ids: bool
    """Whether prompt and choices are told as ids, too."""
    raw: bool = False
    """Whether choices are told as text in which markers are spelled out, too."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to the engine, and how its answer is told."""

    request: Request
    options: Options
    first_call: int | None = None
    """Of a chat: calls of the dialogue before its answer."""


@dataclass(frozen=True, slots=True)
class Host:
    """What bodies are read against."""

    model: str
    vocabulary: Vocabulary
    capacity: int
    """Tokens of a prompt with its answer."""
    seed: Callable[[], int]
    """A seed for who names none."""


def read_options(fields: Fields, host: Host, *, logprobs: bool) -> Options:
    """Model and ways of telling. Raises ApiError 404 for another model."""
    model = fields.text("model", host.model)
    if model != host.model:
        message = f"the model `{model}` does not exist; this server has `{host.model}`"
        raise ApiError(404, message, "model", "model_not_found")
    for name in _IGNORED:
        fields.value(name)
    for name in ("presence_penalty", "frequency_penalty"):
        fields.only(name, 0)
    fields.only("logit_bias", {})
    stream = fields.flag("stream")
    if not stream and fields.value("stream_options") is not None:
        raise wrong("stream_options", "is for `stream: true`")
    usage = Fields(fields.value("stream_options", {}), "stream_options").flag("include_usage")
    ids, raw = fields.flag("return_token_ids"), fields.flag("return_raw")
    return Options(model, stream, usage, logprobs, ids, raw)


def read_sampling(fields: Fields, host: Host) -> Sampling:
    """Temperature 0 to 2, `top_p`, `top_k` (0 or -1: no limit), `seed`."""
    top_p = fields.number("top_p", 1, 0, 1)
    if top_p == 0:
        raise wrong("top_p", "must be above 0")
    seed = fields.whole("seed", 0, -_SEED - 1, _SEED) if fields.value("seed") is not None else None
    return Sampling(
        fields.number("temperature", 1, 0, 2),
        top_p,
        max(fields.whole("top_k", 0, -1, host.vocabulary.words), 0),
        host.seed() if seed is None else seed,
    )


def read_stop(fields: Fields) -> tuple[str, ...]:
    """One text or up to 16."""
    found = fields.value("stop", [])
    stop = [found] if isinstance(found, str) else found
    if not isinstance(stop, list) or len(stop) > 16:
        raise wrong("stop", "must be text, or a list of at most 16")
    if not all(isinstance(one, str) and one for one in stop):
        raise wrong("stop", "must hold texts that are not empty")
    return tuple(stop)


def read_bound(fields: Fields, names: Sequence[str], host: Host, prompt: int, default: int) -> int:
    """Tokens of an answer: the first of these fields that is there."""
    name = next((one for one in names if fields.value(one) is not None), names[0])
    left = host.capacity - prompt
    if left < 1:
        message = f"{prompt} tokens of prompt leave no room in the context of {host.capacity}"
        raise ApiError(400, message, "messages", "context_length_exceeded")
    return fields.whole(name, min(default, left), 1, left)


def usage_of(request: Request, updates: Iterable[Update]) -> dict[str, Any]:
    """Tokens of an answer; those of the prompt count once."""
    found = list(updates)
    prompt = len(request.prompt)
    made = sum(one.told is not None for one in found)
    cached = min((one.cached for one in found if one.choice == 0), default=0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": prompt + made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def raw_of(vocabulary: Vocabulary, told: Iterable[Told]) -> str:
    """What a choice wrote, markers spelled out: `template.segments_of` cuts it again."""
    return "".join(text for text, _ in vocabulary.segments([one.token for one in told]))


def logprob_of(vocabulary: Vocabulary, told: Told) -> dict[str, Any]:
    """A token as chats tell it. `token_id` and `sampled_logprob`, that of the distribution that was
    drawn from, are ours."""

    def shown(token: int, logprob: float) -> dict[str, Any]:
        piece = vocabulary.piece(token)
        return {
            "token": vocabulary.spelled(token),
            "token_id": token,
            "logprob": logprob,
            "bytes": list(piece) if piece else None,
        }

    return {
        **shown(told.token, told.logprob),
        "sampled_logprob": told.sampled_logprob,
        "weight_version": told.weights,
        "top_logprobs": [shown(*one) for one in told.top],
    }
