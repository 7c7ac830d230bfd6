"""A programming task as a world: tools, ends and verdicts."""

from __future__ import annotations

from reference.agentic.code.environment import CAUSES, CodeEnvironment, answer_of
from reference.agentic.code.generate import CallExample, CodeTask
from reference.agentic.environment import Turn, follow, judged
from reference.dialog import Call, Message

TASK = CodeTask(
    id="half-0",
    entry="half",
    signature="def half(number: int) -> int:",
    statement="Return half of a number, rounded down.",
    examples=(CallExample((4,), 2),),
    hidden=(
        CallExample((6,), 3),
        CallExample((7,), 3),
        CallExample((-1,), -1),
        CallExample((0,), 0),
    ),
    difficulty=1,
)
HALF = CodeEnvironment(TASK, cpu_s=0.3)
RIGHT = "def half(number):\n    return number // 2\n"
CUT = "def half(number):\n    return int(number / 2)\n"


def _submit(text: str) -> tuple[Turn, ...]:
    return Turn(calls=(("submit", {"code": text}),)), Turn("Done.")


def test_the_opening_tells_the_examples_and_no_hidden_test() -> None:
    told = HALF.opening.messages[-1].content
    assert "half(4) == 2" in told
    assert "half(7)" not in told


def test_a_right_answer_passes_handed_in_or_in_a_block() -> None:
    assert judged(HALF, _submit(RIGHT)).success
    said = f"First:\n```python\n{CUT}```\nNo, better:\n```python\n{RIGHT}```"
    assert answer_of(*follow(HALF, [Turn(said)])) == RIGHT


def test_the_score_is_the_share_of_hidden_tests() -> None:
    verdict = judged(HALF, _submit(CUT))
    assert (verdict.success, verdict.score, verdict.causes) == (False, 0.75, ("wrong answer",))
    assert set(verdict.causes) <= set(CAUSES)


def test_a_dialogue_without_code_is_reminded_and_ends() -> None:
    state, dialog = follow(HALF, [Turn("Hello."), Turn("Well."), Turn("Bye.")])
    assert [one.role for one in dialog.messages[2:]] == ["assistant", "user"] * 2 + ["assistant"]
    assert HALF.reply(state, dialog) is None
    assert HALF.judge(state, dialog).causes == ("no answer",)


def test_trials_are_told_equally_each_time_and_change_nothing() -> None:
    text = "print({'a', 'b', 'c'}, object())\nraise KeyError(1)"
    turns = [Turn(calls=(("run_python", {"code": text}),) * 2)]
    state, dialog = follow(HALF, turns)
    first, second = (one.content for one in dialog.messages[-2:])
    assert first == second
    assert "KeyError: 1" in first
    assert '"/work/' in first
    assert "ended by exit code 1" in first
    assert state == HALF.start()


def test_wrong_calls_are_told() -> None:
    for name, arguments, told in (
        ("fly", "{}", "there is no tool fly"),
        ("submit", "{", "no JSON"),
        ("submit", "{}", "arguments.code: is missing"),
        ("submit", '{"code": 3}', "must be string"),
        ("run_python", '{"code": "\\ud800"}', "not Unicode"),
    ):
        state, said = HALF.call(HALF.start(), Call("functions.x:0", name, arguments))
        assert told in said
        assert state == HALF.start()


def test_a_second_submission_is_refused() -> None:
    state, dialog = follow(HALF, [*_submit(CUT)[:1], *_submit(RIGHT)])
    assert state.text == CUT
    assert dialog.messages[-2].content.startswith("Error: there is one submission")
    assert dialog.messages[-1] == Message("assistant", "Done.")
