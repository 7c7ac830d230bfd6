"""Whether calls are valid, and whether a dialogue did its task."""

from __future__ import annotations

import pytest

from reference.dialog import Call
from reference.evaluate.tool_use import attempts, attempts_in, fault_of, tool_use
from reference.evaluate.worlds.store import Store
from reference.generate.request import Reply, Tokens
from reference.text.template import parse_answer, segments_of
from twin.errors import Problem, UsageError

TOOLS = Store((), (), "", "").opening.tools
B, E = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"


def call(head: str, arguments: str, end: str = "<|tool_call_end|>") -> str:
    return f"<|tool_call_begin|>{head}<|tool_call_argument_begin|>{arguments}{end}"


def section(*calls: str) -> str:
    return f"{B}{''.join(calls)}{E}"


A = '{"name": "a"}'
GET = "functions.get:0"


@pytest.mark.parametrize(
    ("written", "faults"),
    [
        ("no call at all", []),
        (section(call(GET, A)) + "<|im_end|>", [None]),
        (B + call(GET, A, ""), ["form"]),
        (section(call("get:0", A)), ["form"]),
        (section(call("functions.got:0", A)), ["name"]),
        (section(call(GET, "{name: a}")), ["json"]),
        (section(call(GET, '["a"]')), ["json"]),
        (section(call("functions.put:0", A)), ["arguments"]),
        (section(call("functions.put:0", '{"name": "a", "value": "1"}')), ["arguments"]),
        (section(), ["form"]),
        (section("<|tool_call_begin|>functions.get:0<|tool_call_end|>"), ["form"]),
        (section(call(GET, A), call("functions.get:1", "{}")), [None, "arguments"]),
        ("<|im_end|>" + section(call(GET, "{}")), []),
    ],
)
def test_a_call_has_the_first_fault_that_applies(written, faults):
    assert [fault_of(one, TOOLS) for one in attempts_in(segments_of(written))] == faults


class _Scripted:
    """Says what the script says, turn by turn; tells its raw text as a model here does."""

    def __init__(self, *turns):
        self.turns, self.seeds = turns, []

    def complete(self, request):
        self.seeds.append(request.sampling.seed)
        turn = self.turns[sum(one.role == "assistant" for one in request.messages)]
        if turn == "too long":
            raise UsageError([Problem("TW552", "generator", "too long")])
        message = parse_answer(segments_of(turn), request.calls)
        return Reply(message.content, message.calls, Tokens(10, 5), "stop", None, turn)

    def stream(self, request):
        raise NotImplementedError


PUT = section(call("functions.put:0", '{"name": "kibo", "value": 41}')) + "<|im_end|>"
TASK = Store((), (("kibo", 41),), "Store 41 under the name kibo.", "")


def test_a_valid_call_that_reaches_the_goal_is_a_success():
    (play,) = tool_use([TASK], _Scripted(PUT, "Done.")).plays
    assert play.verdict.success
    assert (play.ended, play.steps, play.opened) == ("over", 3, True)
    assert (play.prompt_tokens, play.reply_tokens) == (20, 10)
    assert [one.role for one in play.dialog.messages] == ["user", "assistant", "tool", "assistant"]


def test_saying_so_without_a_call_is_none_and_has_no_validity():
    found = tool_use([TASK], _Scripted("I stored 41."))
    assert found.success.value == 0
    assert found.validity is None
    assert found.valid_turns.value == 0


def test_a_wrong_value_is_valid_and_no_success():
    found = tool_use([TASK], _Scripted(PUT.replace("41", "14"), "Done."))
    assert found.validity is not None
    assert (found.validity.value, found.success.value) == (1, 0)
    assert found.causes == {"not stored": 1}


def test_steps_and_length_end_a_dialogue_that_is_judged_as_it_stands():
    (endless,) = tool_use([TASK], _Scripted(*[PUT] * 9), steps=3).plays
    assert (endless.ended, endless.steps, endless.verdict.success) == ("steps", 4, True)
    (unasked,) = tool_use([TASK], _Scripted(PUT), steps=1).plays
    assert (unasked.ended, unasked.verdict.success) == ("steps", False)
    (long,) = tool_use([TASK], _Scripted(PUT, "too long")).plays
    assert (long.ended, long.verdict.success) == ("context", True)


def test_invalid_calls_are_counted_by_fault_and_the_world_tells_them():
    bad = section(call("functions.put:0", '{"name": "kibo"}'))
    found = tool_use([TASK, TASK], _Scripted(bad, PUT, "Done."))
    assert found.faults == {"arguments": 2}
    assert found.validity is not None
    assert found.validity.value == pytest.approx(0.5)
    assert found.opened.value == 0
    assert "is missing" in found.plays[0].dialog.messages[2].content


def test_every_dialogue_and_turn_has_a_seed_of_its_own():
    generator = _Scripted(PUT, "Done.")
    tool_use([TASK] * 3, generator)
    assert len(set(generator.seeds)) == 6


def test_a_reply_without_raw_text_counts_the_calls_that_it_has():
    reply = Reply("", (Call("functions.get:0", "get", "{}"),), Tokens(None, None), "tool_calls")
    assert [one.name for one in attempts(reply)] == ["get"]


def test_an_answer_without_tools_and_one_that_spoils_the_store_solve_nothing():
    task = Store((("b", 2),), (("b", 2),), "Which number is under b?", "2")
    drop = section(call("functions.drop:0", '{"name": "b"}'))
    for turns in (["2"], [""], [task.asked], [drop, "2"]):
        assert not tool_use([task], _Scripted(*turns)).plays[0].verdict.success
    assert tool_use([task], _Scripted(section(call(GET, '{"name": "b"}')), "2")).success.value == 1
