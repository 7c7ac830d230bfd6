"""/v1/chat/completions: messages, tools, and answers that may call them.

OURS: `constrained: false` lets the model write what it will, calls that no grammar holds included
(`tools` are declared, their schemas not read); `return_raw` tells the answer's markers as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from reference.dialog import Call, Dialog, Message, Role, calls_of
from reference.inference.grammar.answer import Calls, Rules, Speech, begin
from reference.inference.grammar.error import SchemaError
from reference.inference.grammar.schema import (
    DEPTH,
    Free,
    Node,
    any_value,
    read_schema,
)
from reference.inference.openai.asked import (
    TOP,
    Asked,
    Host,
    logprob_of,
    raw_of,
    read_bound,
    read_options,
    read_sampling,
    read_stop,
)
from reference.inference.openai.fields import FINISHES, ApiError, Fields, wrong
from reference.inference.request import Request, Told, Update
from reference.text.template import (
    ARGUMENTS,
    CALL,
    CALL_END,
    CALLS_END,
    END,
    Segment,
    parse_answer,
    render,
)
from reference.text.vocabulary import Vocabulary

OBJECT = "chat.completion"
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def read_chat(body: Any, host: Host, speech: Speech) -> Asked:
    """What a body asks for. Raises ApiError."""
    if not host.vocabulary.markers:
        message = "this model's tokenizer has no room for the chat template's markers"
        raise ApiError(400, message, "model", "no_chat_template")
    fields = Fields(body)
    wanted = fields.flag("logprobs")
    top = fields.whole("top_logprobs", 0, 0, TOP)
    if top and not wanted:
        raise wrong("top_logprobs", "needs `logprobs: true`")
    options = read_options(fields, host, logprobs=wanted)
    messages = _messages(fields)
    first_call = calls_of(messages)
    rules = _rules(fields, speech, first_call) if _constrained(fields) else None
    tools = tuple(fields.listed("tools"))
    prompt = host.vocabulary.ids(render(Dialog(messages, tools), ask=True))
    bounds = ["max_completion_tokens", "max_tokens"]
    request = Request(
        tuple(prompt),
        read_bound(fields, bounds, host, len(prompt), host.capacity),
        fields.whole("n", 1, 1, 128),
        read_sampling(fields, host),
        read_stop(fields),
        frozenset({host.vocabulary.markers[END]}),
        top,
        None if rules is None else begin(rules),
    )
    fields.refuse_unknown()
    return Asked(request, options, first_call)


def _constrained(fields: Fields) -> bool:
    """Whether a grammar holds the answer; without one nothing may be asked of its form."""
    found = fields.flag("constrained", default=True)
    if not found:
        fields.only("tool_choice", "auto", "none")
        fields.only("parallel_tool_calls", True)
        fields.only("response_format", {"type": "text"})
    return found


def _messages(fields: Fields) -> tuple[Message, ...]:
    listed = fields.listed("messages")
    if not listed:
        raise wrong("messages", "must hold a message")
    return tuple(_message(Fields(one, f"messages.{at}")) for at, one in enumerate(listed))


def _message(fields: Fields) -> Message:
    role = _ROLES.get(fields.text("role"))
    if role is None:
        raise wrong(fields.at("role"), f"must be one of {', '.join(_ROLES)}")
    calls = tuple(
        _call(Fields(one, f"{fields.at('tool_calls')}.{at}"))
        for at, one in enumerate(fields.listed("tool_calls"))
    )
    if calls and role != "assistant":
        raise wrong(fields.at("tool_calls"), "belongs to an assistant's message")
    answers = fields.text("tool_call_id", "")
    if role == "tool" and not answers:
        raise wrong(fields.at("tool_call_id"), "names the call that a tool answers")
    return Message(role, _content(fields, needed=not calls), calls, answers)


def _content(fields: Fields, *, needed: bool) -> str:
    given = fields.value("content", None if needed else "")
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise wrong(fields.at("content"), "must be text, or a list of parts of type `text`")
    parts = [Fields(one, f"{fields.at('content')}.{at}") for at, one in enumerate(given)]
    for part in parts:
        if part.text("type") != "text":
            raise wrong(part.at("type"), "only text is read")
    return "".join(part.text("text") for part in parts)


def _call(fields: Fields) -> Call:
    fields.only("type", "function")
    function = Fields(fields.value("function"), fields.at("function"))
    return Call(fields.text("id"), function.text("name"), function.text("arguments", "{}"))


def _rules(fields: Fields, speech: Speech, first_call: int) -> Rules:
    """What the answer may hold, from `tools`, `tool_choice`, `parallel_tool_calls` and
    `response_format`."""
    tools = _tools(fields)
    calls, named = _choice(fields, tools)
    several = fields.flag("parallel_tool_calls", default=True) and named is None
    if named is not None:
        tools = {named: tools[named]}
    most = None if several else 1
    return Rules(speech, tools, calls, first_call, most, _format(fields))


def _tools(fields: Fields) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for at, one in enumerate(fields.listed("tools")):
        tool = Fields(one, f"tools.{at}")
        tool.only("type", "function")
        function = Fields(tool.value("function"), tool.at("function"))
        name = function.text("name")
        if not _NAME.fullmatch(name) or name in found:
            raise wrong(function.at("name"), "must be 1 to 64 letters, digits, _, ., - and unique")
        schema = function.value("parameters", {"type": "object", "additionalProperties": False})
        path = function.at("parameters")
        found[name] = _schema({"type": "object", **Fields(schema, path).body}, path)
        if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
            raise wrong(path, "must describe an object")
    return found


def _schema(schema: Any, path: str) -> Node:
    try:
        return read_schema(schema)
    except SchemaError as error:
        where = f"{path}.{error.path.strip('.')}".strip(".")
        raise ApiError(400, f"`{where}`: {error}", where, "unsupported_schema") from None


def _choice(fields: Fields, tools: Mapping[str, Node]) -> tuple[Calls, str | None]:
    """Whether the answer calls, and which function where it must be one."""
    given = fields.value("tool_choice", "auto" if tools else "none")
    if given != "none" and not tools:
        raise wrong("tool_choice", "there are no `tools` to choose from")
    if isinstance(given, str):
        known: dict[str, Calls] = {"none": "none", "auto": "may", "required": "must"}
        if given not in known:
            raise wrong("tool_choice", "must be none, auto, required or a named function")
        return known[given], None
    chosen = Fields(given, "tool_choice")
    chosen.only("type", "function")
    name = Fields(chosen.value("function"), "tool_choice.function").text("name")
    if name not in tools:
        raise wrong("tool_choice.function.name", f"`{name}` is not among `tools`")
    return "must", name


def _format(fields: Fields) -> Node | None:
    given = fields.value("response_format")
    if given is None:
        return None
    form = Fields(given, "response_format")
    kind = form.text("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return Free(any_value(DEPTH))
    if kind != "json_schema":
        raise wrong("response_format.type", "must be text, json_object or json_schema")
    described = Fields(form.value("json_schema"), "response_format.json_schema")
    return _schema(described.value("schema", {}), described.at("schema"))


class ChatChoice:
    """One choice as its tokens come: content, and calls as they are written."""

    def __init__(self, vocabulary: Vocabulary, asked: Asked, index: int) -> None:
        self._vocabulary, self._asked, self._index = vocabulary, asked, index
        self._first_call = asked.first_call or 0
        self._free = asked.request.constraint is None
        self._content = ""
        self._told: list[Told] = []
        self._inside = ""
        self._head: list[int] = []
        self._calls = 0
        self._finish: str | None = None

    def opening(self) -> list[dict[str, Any]]:
        """What a stream begins with."""
        return [self._delta({"role": "assistant", "content": ""}, [], None)]

    def add(self, update: Update) -> list[dict[str, Any]]:
        """What a stream tells now: a delta, or nothing."""
        told = [update.told] if update.told else []
        self._told += told
        delta = self._said(update)
        if update.finish:
            called = update.finish == "stop" and self._parsed().calls
            self._finish = "tool_calls" if called else FINISHES[update.finish]
            if self._free and (calls := self._parsed().calls):
                shown = [{"index": at, **_shown_call(call)} for at, call in enumerate(calls)]
                delta = {**delta, "tool_calls": shown}
        silent = not (delta or self._finish or self._asked.options.logprobs)
        return [] if silent else [self._delta(delta, told, self._finish)]

    def whole(self) -> dict[str, Any]:
        """The choice when it is over; calls that were not closed are left out."""
        calls = self._parsed().calls
        message: dict[str, Any] = {"role": "assistant", "content": self._content or None}
        if calls:
            message["tool_calls"] = [_shown_call(call) for call in calls]
        else:
            message["content"] = self._content
        return self._shown({"message": message}, self._told, self._finish)

    def _parsed(self) -> Message:
        ids = [one.token for one in self._told]
        return parse_answer(self._vocabulary.segments(ids), self._first_call)

    def _said(self, update: Update) -> dict[str, Any]:
        """What a token adds to the message."""
        token = None if update.told is None else update.told.token
        name = None if token is None else self._vocabulary.marker(token)
        outside = self._inside in ("", CALLS_END)
        self._inside = self._inside if name is None else name
        if outside:
            self._content += update.text
            return {"content": update.text} if update.text else {}
        if self._free:
            return {}  # what a call is shows only when it is closed
        if name == CALL:
            self._head = []
        elif name == ARGUMENTS:
            return {"tool_calls": [self._opened()]}
        elif name == CALL_END:
            self._calls += 1
        elif self._inside == CALL and token is not None:
            self._head.append(token)
        elif self._inside == ARGUMENTS and update.text:
            function = {"arguments": update.text}
            return {"tool_calls": [{"index": self._calls, "function": function}]}
        return {}

    def _opened(self) -> dict[str, Any]:
        ends = [Segment(ARGUMENTS, marker=True), Segment(CALL_END, marker=True)]
        head = [Segment(CALL, marker=True), *self._vocabulary.segments(self._head), *ends]
        call = parse_answer(head, self._first_call + self._calls).calls[0]
        function = {"name": call.name, "arguments": ""}
        return {"index": self._calls, "id": call.id, "type": "function", "function": function}

    def _delta(
        self, delta: dict[str, Any], told: Sequence[Told], finish: str | None
    ) -> dict[str, Any]:
        return self._shown({"delta": delta}, told, finish)

    def _shown(
        self, said: dict[str, Any], told: Sequence[Told], finish: str | None
    ) -> dict[str, Any]:
        options = self._asked.options
        shown = {"index": self._index, **said, "finish_reason": finish, "logprobs": None}
        if options.logprobs:
            shown["logprobs"] = {"content": [logprob_of(self._vocabulary, one) for one in told]}
        if options.token_ids:
            shown["token_ids"] = [one.token for one in told]
        if options.raw and finish:
            shown["raw"] = raw_of(self._vocabulary, self._told)
        return shown


def _shown_call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
