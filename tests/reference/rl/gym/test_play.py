"""The shape of Gymnasium: reset and step, for every family alike."""

from __future__ import annotations

import json

import pytest

from reference.dialog import Message, numbered
from reference.rl.gym.family import item
from reference.rl.gym.play import Play
from reference.text.template import ARGUMENTS, CALL, CALL_END, CALLS, CALLS_END


def test_one_right_answer_ends_a_question_with_a_reward_of_one() -> None:
    play = Play("morse")
    observation, info = play.reset(seed=4)
    (answer,) = item("morse", 1, 4).solve()
    assert observation.startswith("morse: ")
    assert info["tags"] == ("encode",)
    said, reward, terminated, truncated, info = play.step(answer.text)
    assert (said, reward, terminated, truncated) == ("", 1.0, True, False)
    assert info["checks"] == {"answered": True, "right": True}
    assert info["score"] == 1.0
    with pytest.raises(RuntimeError, match="reset"):
        play.step("again")


def test_a_wrong_answer_ends_it_with_nothing_and_a_reset_begins_anew() -> None:
    play = Play("morse")
    first, _ = play.reset(seed=4)
    assert play.step("?")[1:4] == (0.0, True, False)
    assert play.reset(seed=4)[0] == first
    with pytest.raises(RuntimeError):
        Play("morse").step("before reset")


def test_calls_are_spelled_out_or_given_as_a_message() -> None:
    (first, last) = item("errands", 1, 0).solve()
    ((name, given),) = first.calls
    spelled = f"{CALLS}{CALL}functions.{name}:0{ARGUMENTS}{json.dumps(given)}{CALL_END}{CALLS_END}"
    for action in (spelled, Message("assistant", "", (numbered(name, 0, json.dumps(given)),))):
        play = Play("errands")
        play.reset(seed=0)
        told, reward, terminated, truncated, _ = play.step(action)
        assert (told, reward, terminated, truncated) == ("done", 0.0, False, False)
        assert play.step(last.text)[1:4] == (1.0, True, False)


def test_a_dialogue_of_too_many_turns_is_truncated_and_judged() -> None:
    play = Play("errands", steps=2)
    play.reset(seed=0)
    call = Message("assistant", "", (numbered("put", 0, "{}"),))
    assert play.step(call)[2:4] == (False, False)
    _, reward, terminated, truncated, info = play.step(call)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["causes"]


def test_an_attack_goes_on_over_several_turns() -> None:
    play = Play("safety", level=4)
    play.reset(seed=0)
    turns = item("safety", 4, 0).solve()
    steps = [play.step(one.text) for one in turns]
    assert [one[2] for one in steps] == [False, False, True]
    assert steps[0][0].startswith("say ")
    assert steps[-1][1] == 1.0
