"""Dialogs survive the way to tokens and back; K2's own text is what is rendered."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from reference.dialog import Call, Dialog, Message, call_id
from reference.text.template import (
    parse,
    parse_answer,
    render,
    segments_of,
    special_tokens,
    weighed,
)
from tests.reference.inference.small import VOCABULARY

TOOLS = ({"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}},)
DIALOG = Dialog(
    (
        Message("system", "Be kind."),
        Message("user", "1+2?"),
        Message("assistant", "", (Call("functions.add:0", "add", '{"a": 1, "b": 2}'),)),
        Message("tool", "3", answers="functions.add:0"),
        Message("assistant", "3"),
    ),
    TOOLS,
)


def spelled(dialog: Dialog, **how: bool) -> str:
    return "".join(text for text, _ in render(dialog, **how))


def test_a_dialog_is_rendered_as_k2s_released_template_does() -> None:
    declared = json.dumps(list(TOOLS), separators=(",", ":"))
    assert spelled(DIALOG, ask=True) == (
        f"<|im_system|>tool_declare<|im_middle|>{declared}<|im_end|>"
        "<|im_system|>system<|im_middle|>Be kind.<|im_end|>"
        "<|im_user|>user<|im_middle|>1+2?<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|><|tool_calls_section_begin|><|tool_call_begin|>"
        'functions.add:0<|tool_call_argument_begin|>{"a": 1, "b": 2}<|tool_call_end|>'
        "<|tool_calls_section_end|><|im_end|>"
        "<|im_system|>tool<|im_middle|>## Return of functions.add:0\n3<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>3<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>"
    )


TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(special_tokens())
NAME = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
ARGUMENTS = st.dictionaries(st.text("ab\u00e9", max_size=3), TEXT).map(json.dumps)


@st.composite
def dialogs(draw) -> Dialog:
    """Dialogs whose calls have the ids of the template."""
    messages, count = [], 0
    for role in draw(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]))):
        calls = []
        for _ in range(draw(st.integers(0, 2)) if role == "assistant" else 0):
            name = draw(NAME)
            calls.append(Call(call_id(name, count), name, draw(ARGUMENTS)))
            count += 1
        answers = call_id(draw(NAME), 0) if role == "tool" else ""
        messages.append(Message(role, draw(TEXT), tuple(calls), answers))
    return Dialog(tuple(messages), TOOLS if draw(st.booleans()) else ())


@settings(max_examples=30, deadline=None)
@given(dialogs())
def test_a_dialog_survives_the_way_to_tokens_and_back(dialog: Dialog) -> None:
    """Markers that a user spells stay text."""
    ids = VOCABULARY.ids(render(dialog))
    assert parse(VOCABULARY.segments(ids)) == (dialog, ())


def test_a_model_learns_what_it_has_to_write_and_no_more() -> None:
    learned = "".join(one.segment.text for one in weighed(DIALOG) if one.learned)
    rest = "".join(one.segment.text for one in weighed(DIALOG) if not one.learned)
    said = [one for one in DIALOG.messages if one.role == "assistant"]
    assert learned.count("<|im_end|>") == len(said)
    assert all(call.arguments in learned for one in said for call in one.calls)
    assert "<|im_assistant|>" not in learned
    assert rest.count("<|im_assistant|>assistant<|im_middle|>") == len(said)
    for one in DIALOG.messages:
        assert one.content in (learned if one.role == "assistant" else rest)


def test_other_spellings_of_markers_are_read() -> None:
    text = spelled(DIALOG)
    for ours, theirs in (
        ("tool_calls_section", "tool_call_section"),
        ("tool_call_argument_begin", "tool_arguments_begin"),
    ):
        assert theirs not in text
        text = text.replace(ours, theirs)
    assert parse(segments_of(text)) == (DIALOG, ())


def test_a_call_that_is_not_closed_is_left_out_and_one_without_index_is_numbered() -> None:
    said = "Yes.<|tool_calls_section_begin|><|tool_call_begin|>add<|tool_call_argument_begin|>{}"
    assert parse_answer(segments_of(said)) == Message("assistant", "Yes.")
    closed = parse_answer(segments_of(said + "<|tool_call_end|>"), first_call=4)
    assert closed.calls == (Call("functions.add:4", "add", "{}"),)


def test_foreign_ids_become_the_templates_and_answers_follow() -> None:
    call = Call("call_abc", "add", "{}")
    messages = (Message("assistant", "", (call,)), Message("tool", "3", answers="call_abc"))
    text = spelled(Dialog(messages))
    assert "call_abc" not in text
    assert text.count("functions.add:0") == 2


def test_the_markers_take_the_ids_behind_the_end_of_a_document() -> None:
    assert [VOCABULARY.markers[name] for name in special_tokens()] == list(range(257, 267))
    assert int(VOCABULARY.known_W.sum()) == 267
    assert VOCABULARY.encode("<|im_end|>") == list(b"<|im_end|>")
