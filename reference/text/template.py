"""Messages and tools as tokens, and back: Kimi K2's released chat template (moonshotai/Kimi-K2,
`docs/tool_call_guidance.md` and the tokenizer's `chat_template`; the report's appendix B spells
some markers otherwise, and singular spellings go round: both are read, never written).

    <|im_system|>tool_declare<|im_middle|>[tools as JSON]<|im_end|>
    <|im_user|>user<|im_middle|>text<|im_end|>
    <|im_assistant|>assistant<|im_middle|>text<|tool_calls_section_begin|>
        <|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{...}<|tool_call_end|>
    <|tool_calls_section_end|><|im_end|>
    <|im_system|>tool<|im_middle|>## Return of functions.NAME:INDEX\ntext<|im_end|>

The index of calls counts from 0 over the dialog. OURS: no system message is put in where there is
none, tools are one line of JSON, and a call with an id of another form gets the form of K2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from reference.dialog import Call, Dialog, Message, Role, call_id, calls_of


class Segment(NamedTuple):
    """A marker by its name, or text between two of them."""

    text: str
    marker: bool = False


SYSTEM: Final = "<|im_system|>"
USER: Final = "<|im_user|>"
ASSISTANT: Final = "<|im_assistant|>"
MIDDLE: Final = "<|im_middle|>"
END: Final = "<|im_end|>"
CALLS: Final = "<|tool_calls_section_begin|>"
CALLS_END: Final = "<|tool_calls_section_end|>"
CALL: Final = "<|tool_call_begin|>"
ARGUMENTS: Final = "<|tool_call_argument_begin|>"
CALL_END: Final = "<|tool_call_end|>"
_OTHER_SPELLINGS: Final = {
    "<|tool_call_section_begin|>": CALLS,
    "<|tool_call_section_end|>": CALLS_END,
    "<|tool_calls_begin|>": CALLS,
    "<|tool_calls_end|>": CALLS_END,
    "<|tool_arguments_begin|>": ARGUMENTS,
    "<|tool_call_arguments_begin|>": ARGUMENTS,
}
_OPENS: Final[dict[Role, str]] = {
    "system": SYSTEM,
    "user": USER,
    "assistant": ASSISTANT,
    "tool": SYSTEM,
}
_DECLARE: Final = "tool_declare"
_RETURN: Final = "## Return of "
_ID: Final = re.compile(r"(?:functions\.)?(?P<name>.+?)(?::(?P<index>\d+))?", re.DOTALL)


def special_tokens() -> tuple[str, ...]:
    """The markers in the order of their ids, which follow the tokenizer's last id."""
    return (SYSTEM, USER, ASSISTANT, MIDDLE, END, CALLS, CALLS_END, CALL, ARGUMENTS, CALL_END)


class Weighed(NamedTuple):
    """A part of a dialogue, and whether a model is trained to say it."""

    segment: Segment
    learned: bool


def render(dialog: Dialog, *, ask: bool = False) -> list[Segment]:
    """The dialog as markers and text, with `ask` up to where the assistant's next words begin."""
    made = [one.segment for one in weighed(dialog)]
    return [*made, *_opening("assistant")] if ask else made


def weighed(dialog: Dialog) -> list[Weighed]:
    """The dialog as markers and text, of which a model learns what the assistant says, its calls
    and the marker that ends each of its messages: what it has to write itself."""
    made: list[Segment] = []
    if dialog.tools:
        listed = json.dumps(list(dialog.tools), ensure_ascii=False, separators=(",", ":"))
        made += [_mark(SYSTEM), Segment(_DECLARE), _mark(MIDDLE)]
        made += [Segment(listed), _mark(END)]
    parts = [Weighed(one, learned=False) for one in made]
    renamed: dict[str, str] = {}
    count = 0
    for message in dialog.messages:
        learned = message.role == "assistant"
        parts += [Weighed(one, learned=False) for one in _opening(message.role)]
        parts += [Weighed(one, learned) for one in _body(message, renamed, count)]
        count += len(message.calls)
    return parts


def _opening(role: Role) -> list[Segment]:
    return [_mark(_OPENS[role]), Segment(role), _mark(MIDDLE)]


def _body(message: Message, renamed: dict[str, str], first: int) -> list[Segment]:
    """What a message says, with its end; `renamed` holds the template's ids by the given ones."""
    answers = renamed.get(message.answers, message.answers)
    told = f"{_RETURN}{answers}\n{message.content}"
    text = told if message.role == "tool" else message.content
    renamed |= {call.id: call_id(call.name, at) for at, call in enumerate(message.calls, first)}
    said = [Segment(text)] if text else []
    return [*said, *_rendered_calls(message.calls, first), _mark(END)]


def _mark(name: str) -> Segment:
    return Segment(name, marker=True)


def _rendered_calls(calls: Sequence[Call], first: int) -> list[Segment]:
    if not calls:
        return []
    made: list[Segment] = [_mark(CALLS)]
    for index, call in enumerate(calls, first):
        made += [_mark(CALL), Segment(call_id(call.name, index)), _mark(ARGUMENTS)]
        made += [Segment(call.arguments)] if call.arguments else []
        made.append(_mark(CALL_END))
    return [*made, _mark(CALLS_END)]


def segments_of(text: str) -> list[Segment]:
    """Text in which markers are spelled out, such as a log, cut at them; other spellings become
    the released ones. Never for what a user wrote: there a marker is text."""
    names = [*special_tokens(), *_OTHER_SPELLINGS]
    parts = re.split(f"({'|'.join(map(re.escape, names))})", text)
    found: list[Segment] = []
    for index, part in enumerate(parts):
        if index % 2:
            found.append(_mark(_OTHER_SPELLINGS.get(part, part)))
        elif part:
            found.append(Segment(part))
    return found


def parse_answer(segments: Sequence[Segment], first_call: int = 0) -> Message:
    """The assistant's message from its words, without the markers that open it; calls that were not
    closed are left out. A call without an index is numbered from `first_call` on."""
    content: list[str] = []
    calls: list[Call] = []
    inside = ""
    head = arguments = ""
    for text, marker in segments:
        if marker:
            if text == END:
                break
            if text == CALL:
                head = arguments = ""
            if text == CALL_END and inside == ARGUMENTS:
                calls.append(_call(head, arguments, first_call + len(calls)))
            inside = text
        elif inside == CALL:
            head += text
        elif inside == ARGUMENTS:
            arguments += text
        elif inside in ("", CALLS_END):
            content.append(text)
    return Message("assistant", "".join(content), tuple(calls))


def parse(segments: Sequence[Segment]) -> tuple[Dialog, tuple[str, ...]]:
    """The dialog that `render` made these of, and the text that was no message; a message that the
    end cuts off counts as far as it goes."""
    messages: list[Message] = []
    tools: tuple[Mapping[str, Any], ...] = ()
    unread: list[str] = []
    for opened, role, body in _turns(segments, unread):
        if opened == ASSISTANT:
            messages.append(parse_answer(body, calls_of(messages)))
            continue
        text = "".join(words for words, _ in body)
        if opened == SYSTEM and role == _DECLARE:
            tools = tuple(json.loads(text))
        elif opened == SYSTEM and role == "tool":
            answers, _, told = text.removeprefix(_RETURN).partition("\n")
            messages.append(Message("tool", told, answers=answers))
        else:
            messages.append(Message("user" if opened == USER else "system", text))
    return Dialog(tuple(messages), tools), tuple(unread)


def _turns(segments: Sequence[Segment], unread: list[str]) -> list[tuple[str, str, list[Segment]]]:
    """Per message the marker that opens it, the word behind that, and what it says."""
    found: list[tuple[str, str, list[Segment]]] = []
    opened, role, body = "", "", list[Segment]()
    in_body = False
    for text, marker in [*segments, _mark("")]:
        if marker and (text in (SYSTEM, USER, ASSISTANT, END, "")):
            if opened and in_body:
                found.append((opened, role, body))
            elif role:
                unread.append(role)
            opened, role, body = ("" if text == END else text), "", []
            in_body = False
        elif marker and text == MIDDLE and opened:
            in_body = True
        elif in_body:
            body.append(Segment(text, marker))
        else:
            role += text
    return found


def _call(head: str, arguments: str, index: int) -> Call:
    found = _ID.fullmatch(head.strip())
    name = found["name"] if found else head.strip()
    given = found["index"] if found else None
    return Call(call_id(name, index if given is None else int(given)), name, arguments.strip())
