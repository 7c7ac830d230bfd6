"""/v1/chat/completions: messages, tools, and the constraint on their answer.

OURS: `constrained: false` lets the model write anything, calls without a grammar included (`tools`
are declared, their schemas not read); `return_raw` adds the answer's markers as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from reference.dialog import Call, Dialog, Message, Role, calls_of
from reference.inference.constraint import AnswerRules, Calls, TokenMasks, begin
from reference.inference.json_grammar import SchemaError, schema_grammar
from reference.inference.openai.body import (
    TOP,
    ApiError,
    ApiRequest,
    Body,
    BodyPart,
    ServedModel,
    check,
    most_tokens,
    only,
    parse,
    sampling,
    wrong,
)
from reference.inference.request import EngineRequest
from reference.text.template import END, render

_CALLS: Final[dict[str, Calls]] = {"none": "none", "auto": "may", "required": "must"}
_NO_PARAMETERS: Final = {"type": "object", "additionalProperties": False}
_FUNCTION = Annotated[Any, only("function")]


class TextPart(BodyPart):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


def _parts(value: Any) -> Any:
    return [TextPart(type="text", text=value)] if isinstance(value, str) else value


Content = Annotated[list[TextPart], BeforeValidator(_parts)]


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
    tool_calls: tuple[ToolCall, ...] = Field(default=(), strict=False)
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

    messages: list[ChatMessage] = Field(min_length=1)
    tools: tuple[Any, ...] = Field(default=(), strict=False)
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
    prompt = vocabulary.ids(render(Dialog(messages, body.tools), ask=True))
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
