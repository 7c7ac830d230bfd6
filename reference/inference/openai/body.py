"""Bodies of OpenAI's HTTP interface as pydantic models, their errors in OpenAI's shape, and
/v1/completions: text that continues a prompt of text or ids.

Completions and chats have sampling, bounds and stop strings in common. `null` counts as absent; a
field that is not known is refused, since to drop it would change the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from reference.inference.request import EngineRequest
from reference.inference.sampling import Sampling
from reference.text.vocabulary import Vocabulary

TOP: Final = 20
"""Likeliest tokens that a body may ask for."""
_SEED: Final = 2**63
_CODES: Final = {
    "extra_forbidden": "unknown_parameter",
    "unsupported_parameter": "unsupported_parameter",
}
"""OpenAI's codes by pydantic's types of errors."""


class ApiError(Exception):
    """A status and an error in OpenAI's shape."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        """The document."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def wrong(param: str, message: str, code: str | None = None) -> ApiError:
    """An error in one field."""
    return ApiError(400, f"`{param}`: {message}", param, code)


class BodyPart(BaseModel):
    """An object in a body; `null` counts as absent."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping):
            return fields
        return {name: value for name, value in fields.items() if value is not None}


P = TypeVar("P", bound=BodyPart)


def parse(kind: type[P], fields: Any, path: str = "") -> P:
    """The body, or the object of it at `path`. Raises ApiError with the first field at fault."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, filter(str, (path, *first["loc"])))) or "body"
        raise wrong(where, first["msg"].lower(), _CODES.get(first["type"])) from None


def only(*values: Any) -> AfterValidator:
    """Admits these values and no other."""

    def check(value: Any) -> Any:
        if value not in values:
            raise PydanticCustomError("unsupported_parameter", "is not supported")
        return value

    return AfterValidator(check)


def _prompt(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    ids = isinstance(value, list) and all(type(token) is int for token in value)
    if value and (isinstance(value, str) or ids):
        return value
    message = "must be a text or a list of token ids, not empty"
    raise PydanticCustomError("prompt", message)


Zero = Annotated[Any, only(0)]
Stop = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(max_length=16),
]


class StreamOptions(BodyPart):
    """How a stream ends."""

    include_usage: bool = False


class Body(BodyPart):
    """What completions and chats have in common."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=-1)
    """0 or -1: no limit."""
    seed: int | None = Field(default=None, ge=-_SEED, lt=_SEED)
    stop: Stop = []
    n: int = Field(default=1, ge=1, le=128)
    max_tokens: int | None = Field(default=None, ge=1)
    return_token_ids: bool = False
    """Whether prompt and choices come as ids, too."""
    return_raw: bool = False
    """Whether choices come as text in which markers are spelled out, too."""
    presence_penalty: Zero = 0
    frequency_penalty: Zero = 0
    logit_bias: Annotated[Any, only({})] = {}
    # These change no answer.
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    prompt_cache_key: Any = None

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer has log-probabilities."""
        raise NotImplementedError


class CompletionBody(Body):
    """A body of /v1/completions."""

    prompt: Annotated[Any, BeforeValidator(_prompt)]
    logprobs: int | None = Field(default=None, ge=0, le=TOP)
    """Likeliest tokens that are told beside each chosen one."""
    best_of: int | None = None
    echo: Annotated[Any, only(False)] = False
    suffix: Annotated[Any, only("")] = ""

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer has log-probabilities."""
        return self.logprobs is not None


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What bodies are read against."""

    name: str
    vocabulary: Vocabulary
    capacity: int
    """Tokens of a prompt with its answer."""
    seed: Callable[[], int]
    """A seed for a body without one."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to the engine, and the body that says how it is answered."""

    engine: EngineRequest
    body: Body
    first_call: int | None = None
    """Of a chat: calls of the dialogue before its answer."""


def read_completion(fields: Any, served: ServedModel) -> ApiRequest:
    """The request of a body. Raises ApiError."""
    body = parse(CompletionBody, fields)
    check(body, served)
    if body.best_of not in (None, body.n):
        raise wrong("best_of", "is not supported", "unsupported_parameter")
    encode, given = served.vocabulary.encode, body.prompt
    prompt = tuple(encode(given) if isinstance(given, str) else given)
    bound = most_tokens(("max_tokens", body.max_tokens), served, len(prompt), 16)
    top, stop = body.logprobs or 0, tuple(body.stop)
    request = EngineRequest(prompt, bound, body.n, sampling(body, served), stop, frozenset(), top)
    return ApiRequest(request, body)


def check(body: Body, served: ServedModel) -> None:
    """Raises ApiError for another model, and for fields that do not fit each other."""
    if body.model not in (None, served.name):
        message = f"the model `{body.model}` does not exist; this server has `{served.name}`"
        raise ApiError(404, message, "model", "model_not_found")
    if body.stream_options is not None and not body.stream:
        raise wrong("stream_options", "needs `stream: true`")


def sampling(body: Body, served: ServedModel) -> Sampling:
    """How the answer's tokens are drawn."""
    seed = served.seed() if body.seed is None else body.seed
    return Sampling(body.temperature, body.top_p, max(body.top_k, 0), seed)


def most_tokens(
    bound: tuple[str, int | None], served: ServedModel, prompt: int, default: int
) -> int:
    """Tokens of an answer at most, by a field's name and value."""
    name, wanted = bound
    left = served.capacity - prompt
    if left < 1:
        message = f"{prompt} tokens of prompt fill the context of {served.capacity}"
        raise ApiError(400, message, "messages", "context_length_exceeded")
    if wanted is not None and wanted > left:
        raise wrong(name, f"must be a whole number, 1 to {left}")
    return min(default, left) if wanted is None else wanted
