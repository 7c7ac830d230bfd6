"""Bodies of OpenAI's HTTP interface as pydantic models, their errors in OpenAI's shape, and
/v1/completions: text that continues a prompt of text or ids.

Completions and chats have sampling, bounds and stop strings in common. `null` counts as absent; a
field that is not known is refused, since to drop it would change the request.

/v1/chat/completions: messages, tools, and the constraint on their answer.

OURS: `constrained: false` lets the model write anything, calls without a grammar included (`tools`
are declared, their schemas not read); `return_raw` adds the answer's markers as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

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

from reference.dialog import Call, Dialog, Message, Role, calls_of
from reference.inference.json_grammar import SchemaError, schema_grammar
from reference.inference.request import (
    AnswerRules,
    Calls,
    EngineRequest,
    Sampling,
    TokenMasks,
    begin,
)
from reference.text.template import END, render
from reference.text.tokenizer import Vocabulary

TOOLS: Final = 128
"""Tools of a body, and calls of a message, at most: OpenAI's bound on tools."""
TOP: Final = 20
"""Likeliest tokens that a body may ask for."""
_SEED: Final = 2**63
_FIELDS: Final = 64
"""Fields of an object that are looked at."""
_ITEMS: Final = 4096
"""Messages of a dialogue, and parts of one, at most."""
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
        if len(fields) > _FIELDS:
            raise PydanticCustomError("too_many_fields", "has more fields than may be")
        return {name: value for name, value in fields.items() if value is not None}


P = TypeVar("P", bound=BodyPart)


def parse(kind: type[P], fields: Any, path: str = "") -> P:
    """The body, or the object of it at `path`. Raises ApiError with the first field at fault."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
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
    list[Annotated[str, Field(min_length=1, max_length=4096)]],
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
    if isinstance(given, str):
        check_length(len(given), served, "prompt")
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


def check_length(characters: int, served: ServedModel, param: str) -> None:
    """Raises ApiError for a text that no tokenizer fits into the context, before one is asked."""
    most = served.capacity * served.vocabulary.longest
    if characters > most:
        message = f"{characters:,} characters exceed the context of {served.capacity} tokens"
        raise ApiError(400, message, param, "context_length_exceeded")


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


_CALLS: Final[dict[str, Calls]] = {"none": "none", "auto": "may", "required": "must"}
_NO_PARAMETERS: Final = {"type": "object", "additionalProperties": False}
_FUNCTION = Annotated[Any, only("function")]


class TextPart(BodyPart):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


def _parts(value: Any) -> Any:
    return [TextPart(type="text", text=value)] if isinstance(value, str) else value


Content = Annotated[
    list[TextPart], Field(max_length=_ITEMS, fail_fast=True), BeforeValidator(_parts)
]


class CalledFunction(BodyPart):
    """What a call names."""

    name: str
    arguments: str = "{}"


class ToolCall(BodyPart):
    """A call in an assistant's message."""

    id: str
    type: _FUNCTION = "function"
    function: CalledFunction


class ChatMessage(BodyPart):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    tool_calls: tuple[ToolCall, ...] = Field(
        default=(), strict=False, max_length=TOOLS, fail_fast=True
    )
    tool_call_id: str = ""


class ToolFunction(BodyPart):
    """A function that may be called."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    parameters: dict[str, Any] = Field(default_factory=lambda: dict(_NO_PARAMETERS))


class Tool(BodyPart):
    """A tool that is declared."""

    type: _FUNCTION = "function"
    function: ToolFunction


class ResponseFormat(BodyPart):
    """The form of an answer that calls no tool."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class ChatBody(Body):
    """A body of /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=_ITEMS, fail_fast=True)
    tools: tuple[Any, ...] = Field(default=(), strict=False, max_length=TOOLS)
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    response_format: ResponseFormat | None = None
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=TOP)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    constrained: bool = True

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer has log-probabilities."""
        return self.logprobs


def read_chat(fields: Any, served: ServedModel, masks: TokenMasks) -> ApiRequest:
    """The request of a body. Raises ApiError."""
    vocabulary = served.vocabulary
    if not vocabulary.markers:
        message = "this model's tokenizer has no room for the chat template's markers"
        raise ApiError(400, message, "model", "no_chat_template")
    body = parse(ChatBody, fields)
    check(body, served)
    _check_constrained(body)
    messages = tuple(_message(each, f"messages.{at}") for at, each in enumerate(body.messages))
    first_call = calls_of(messages)
    rules = _rules(body, masks, first_call) if body.constrained else None
    segments = render(Dialog(messages, body.tools), ask=True)
    check_length(sum(len(text) for text, marker in segments if not marker), served, "messages")
    prompt = vocabulary.ids(segments)
    name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    bound = name, body.max_completion_tokens or body.max_tokens
    request = EngineRequest(
        tuple(prompt),
        most_tokens(bound, served, len(prompt), served.capacity),
        body.n,
        sampling(body, served),
        tuple(body.stop),
        frozenset({vocabulary.markers[END]}),
        body.top_logprobs,
        None if rules is None else begin(rules),
    )
    return ApiRequest(request, body, first_call)


def _check_constrained(body: ChatBody) -> None:
    """Without a grammar nothing may be asked of the answer's form."""
    if body.top_logprobs and not body.logprobs:
        raise wrong("top_logprobs", "needs `logprobs: true`")
    free = {
        "tool_choice": body.tool_choice in (None, "auto", "none"),
        "parallel_tool_calls": body.parallel_tool_calls,
        "response_format": body.response_format is None or body.response_format.type == "text",
    }
    for name, fits in free.items():
        if not (body.constrained or fits):
            raise wrong(name, "is not supported", "unsupported_parameter")


def _message(given: ChatMessage, path: str) -> Message:
    calls = tuple(
        Call(call.id, call.function.name, call.function.arguments) for call in given.tool_calls
    )
    if calls and given.role != "assistant":
        raise wrong(f"{path}.tool_calls", "belongs to an assistant's message")
    if given.role == "tool" and not given.tool_call_id:
        raise wrong(f"{path}.tool_call_id", "must name the call that the tool answers")
    if given.content is None and not calls:
        raise wrong(f"{path}.content", "must be text, or a list of parts of type `text`")
    role: Role = "system" if given.role == "developer" else given.role
    text = "".join(part.text for part in given.content or ())
    return Message(role, text, calls, given.tool_call_id)


def _rules(body: ChatBody, masks: TokenMasks, first_call: int) -> AnswerRules:
    """What the answer may hold."""
    tools = _tools(body.tools, masks)
    calls, named = _choice(body, tools)
    several = body.parallel_tool_calls and named is None
    if named is not None:
        tools = {named: tools[named]}
    form = body.response_format
    json = None if form is None else _form(form, masks)
    return AnswerRules(masks, tools, calls, first_call, None if several else 1, json)


def _tools(listed: Sequence[Any], masks: TokenMasks) -> dict[str, str]:
    """The grammar of each tool's arguments."""
    found: dict[str, str] = {}
    for at, fields in enumerate(listed):
        function = parse(Tool, fields, f"tools.{at}").function
        path = f"tools.{at}.function"
        if function.name in found:
            raise wrong(f"{path}.name", "must be unique")
        if function.parameters.get("type", "object") != "object":
            raise wrong(f"{path}.parameters", "must describe an object")
        schema = {"type": "object", **function.parameters}
        found[function.name] = _grammar(schema, f"{path}.parameters", masks)
    return found


def _grammar(schema: Any, path: str, masks: TokenMasks) -> str:
    try:
        grammar = schema_grammar(schema)
        masks.matcher(grammar)
    except SchemaError as error:
        where = f"{path}.{error.path}".strip(".")
        raise ApiError(400, f"`{where}`: {error}", where, "unsupported_schema") from None
    return grammar


def _choice(body: ChatBody, tools: Mapping[str, str]) -> tuple[Calls, str | None]:
    """Whether the answer calls, and which function where it must be one."""
    given = body.tool_choice or ("auto" if tools else "none")
    if given != "none" and not tools:
        raise wrong("tool_choice", "there are no `tools` to choose from")
    if isinstance(given, str):
        if given not in _CALLS:
            raise wrong("tool_choice", "must be none, auto, required or a named function")
        return _CALLS[given], None
    chosen = parse(Tool, given, "tool_choice").function.name
    if chosen not in tools:
        raise wrong("tool_choice.function.name", f"`{chosen}` is not among `tools`")
    return "must", chosen


def _form(form: ResponseFormat, masks: TokenMasks) -> str | None:
    if form.type == "text":
        return None
    if form.type == "json_object":
        return schema_grammar({"type": "object"})
    if form.json_schema is None:
        raise wrong("response_format.json_schema", "must be an object")
    path = "response_format.json_schema.schema"
    return _grammar(form.json_schema.get("schema", {}), path, masks)
