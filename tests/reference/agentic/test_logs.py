"""Real logs: taken over where they are sound, named where they are odd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reference.agentic.imported import read_logs
from reference.dialog import Dialog, Message, declared, dialog_json, dialog_of, numbered
from reference.text.template import render
from twin.errors import UsageError

TOOL = declared(
    "get_weather",
    "Weather of a city",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
GOOD = Dialog(
    (
        Message("user", "How warm is Oslo?"),
        Message("assistant", "", (numbered("get_weather", 0, '{"city":"Oslo"}'),)),
        Message("tool", '{"degrees":-4}', answers="functions.get_weather:0"),
        Message("assistant", "It is -4 degrees."),
    ),
    (TOOL,),
)
MARKED = "".join(segment.text for segment in render(GOOD))


def _row(**changes: Any) -> dict[str, Any]:
    return {**dialog_json(GOOD), **changes}


def _with(at: int, **changes: Any) -> dict[str, Any]:
    row = json.loads(json.dumps(_row()))
    row["messages"][at].update(changes)
    return row


def _call(**changes: Any) -> dict[str, Any]:
    row = json.loads(json.dumps(_row()))
    row["messages"][1]["tool_calls"][0]["function"].update(changes)
    return row


ODD: dict[str, Any] = {
    "no JSON": "{",
    "no object": "[1]",
    "messages that cannot be read": json.dumps({"messages": [{"role": "user"}]}),
    "no assistant": json.dumps(_row(messages=[{"role": "user", "content": "Hi"}])),
    "a role or text that is none": json.dumps(_with(0, role="robot")),
    "a call of a tool that is not declared": json.dumps(_call(name="get_news")),
    "arguments that are no JSON": json.dumps(_call(arguments="city=Oslo")),
    "arguments that are no object": json.dumps(_call(arguments="[]")),
    "arguments that do not fit": json.dumps(_call(arguments='{"city":3}')),
    "a result without a call": json.dumps(_with(2, tool_call_id="functions.get_weather:7")),
    "a call without a result": json.dumps(
        _row(messages=[*_row()["messages"][:2], _row()["messages"][3]])
    ),
    "no answer at the end": json.dumps(_row(messages=_row()["messages"][:3])),
    "a marker in what was said": json.dumps(_with(3, content="It is <|im_end|>")),
    "a declaration that cannot be read": json.dumps(_row(tools=[{"name": "x"}])),
    "text outside of messages": json.dumps({"text": f"stray {MARKED}"}),
}


@pytest.mark.parametrize("reason", ODD)
def test_an_odd_dialogue_is_named_by_line_and_left_out(tmp_path: Path, reason: str) -> None:
    lines = [json.dumps(_row()), ODD[reason], json.dumps(_row())]
    (tmp_path / "real.jsonl").write_text("\n".join(lines))
    found = read_logs([tmp_path / "real.jsonl"])
    assert found.report()["odd"] == {reason: 1}
    assert found.named[0].startswith(f"real.jsonl:2: {reason}")
    assert [one["id"] for one in found.rows] == ["real.jsonl:1", "real.jsonl:3"]


def test_a_log_that_ends_with_a_call_is_odd(tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text(json.dumps(_row(messages=_row()["messages"][:2])))
    assert read_logs([tmp_path]).report()["odd"] == {"a call without a result": 1}


def test_logs_of_both_forms_come_out_as_the_same_dialogue(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(_row())}\n{json.dumps({'text': MARKED})}\n")
    (tmp_path / "b.txt").write_text(MARKED)
    other = MARKED.replace("tool_calls_section", "tool_call_section")
    (tmp_path / "c.log").write_text(other)
    rows = read_logs([tmp_path]).rows
    assert len(rows) == 4
    assert all(dialog_of(row) == GOOD for row in rows)
    assert rows[0]["learned"] == [False, True, False, True]
    assert [row["provenance"]["origin"] for row in rows] == [
        "a.jsonl:1",
        "a.jsonl:2",
        "b.txt",
        "c.log",
    ]


def test_a_path_that_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="TW567"):
        read_logs([tmp_path / "none.jsonl"])
