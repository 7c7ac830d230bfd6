"""Families as sources of tasks, and in the shape of Gymnasium: reset and step."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from reference.dialog import Message, numbered
from reference.rl.gym.environments import Play, item
from reference.rl.prompts import History, PromptsSpec, document, draw
from reference.rl.tasks import RlTask, TasksSpec, tasks_of
from reference.text.template import ARGUMENTS, CALL, CALL_END, CALLS, CALLS_END
from twin.errors import UsageError


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


MORSE = tasks_of([TasksSpec(source="morse", count=12, levels=(1, 2, 4))])


def test_a_family_is_a_source_with_levels_in_turn() -> None:
    assert [one.level for one in MORSE.values()] == [1, 2, 4] * 4
    assert {one.kind for one in MORSE.values()} == {"morse"}
    assert len(MORSE) == 12
    first = MORSE["0/morse-1-0"]
    assert first.environment.opening == item("morse", 1, 0).environment.opening
    assert first.tags == ("morse", "morse 1", "morse encode")
    every = tasks_of([TasksSpec(source="morse", count=10, seed=3)])
    assert {one.level for one in every.values()} == {1, 2, 3, 4, 5}


def test_levels_that_are_not_there_are_refused() -> None:
    for spec in (
        TasksSpec(source="morse", levels=(9,)),
        TasksSpec(source="characters", levels=(1,)),
    ):
        with pytest.raises(UsageError, match="TW650"):
            tasks_of([spec])
    with pytest.raises(UsageError, match="morse"):
        tasks_of([TasksSpec(source="mors")])


def test_a_function_gets_its_options_and_says_which_it_does_not_take() -> None:
    lengths = {"prompt": [20, 30], "written": [4, 8]}
    made = tasks_of([TasksSpec(source="lengths", count=3, options=lengths)])
    assert [one.kind for one in made.values()] == ["lengths-4", "lengths-8", "lengths-4"]
    openings = [one.environment.opening.messages[-1].content for one in made.values()]
    assert [len(one) for one in openings] == [20, 30, 20]
    for options in ({}, {"prompt": [1]}, {**lengths, "more": 1}):
        with pytest.raises(UsageError, match=r"options: TW640.*(missing|unexpected)"):
            tasks_of([TasksSpec(source="lengths", options=options)])


def test_the_next_level_joins_when_the_last_is_mastered_and_leaves_when_it_is_forgotten() -> None:
    spec, history = PromptsSpec(advance=0.7, count=2), History()

    def levels() -> set[int]:
        drawn = {draw(MORSE, history, spec, (), 0) for _ in range(60)}
        return {MORSE[name].level for name in drawn}

    def answer(level: int, right: int) -> None:
        for name, one in MORSE.items():
            if one.level == level:
                history.add(name, 4, right)

    assert levels() == {1}
    answer(1, 2)
    assert levels() == {1}
    answer(1, 4)
    assert levels() == {1, 2}, "0.5, then the mean with 1"
    answer(2, 4)
    assert levels() == {1, 2, 4}
    answer(1, 0)
    assert levels() == {1}


def test_levels_of_one_kind_do_not_wait_for_another() -> None:
    both = {**MORSE, **tasks_of([TasksSpec(source="sudoku", count=4, levels=(1, 2))])}
    history = History()
    for name, one in both.items():
        if one.kind == "sudoku":
            history.add(name, 4, 4)
    spec = PromptsSpec(advance=0.7, count=2)
    drawn = {draw(both, history, spec, (), 0) for _ in range(80)}
    assert {(both[one].kind, both[one].level) for one in drawn} == {
        ("morse", 1),
        ("sudoku", 1),
        ("sudoku", 2),
    }


def test_rare_tags_are_raised() -> None:
    given = item("morse", 1, 0).environment
    tags = ["common"] * 18 + ["rare"] * 2
    tasks = {str(at): RlTask(str(at), "", given, tags=(tag,)) for at, tag in enumerate(tags)}
    counts: dict[float, Counter[str]] = {}
    for cover in (0.0, 1.0):
        history, spec = History(), PromptsSpec(cover=cover, seed=1)
        names = [draw(tasks, history, spec, (), 0) for _ in range(400)]
        counts[cover] = Counter(tags[int(name)] for name in names)
    assert counts[0.0]["rare"] == 40, "every task equally often"
    # In inverse proportion to a tag's own draws, 18 tasks of the one against 2 of the other settle
    # where 18 / c = 2 / r weighs c to r as 3 to 1.
    assert counts[1.0]["rare"] / 400 == pytest.approx(1 / 4, abs=0.04)


def test_difficulty_is_told_by_level_and_tag() -> None:
    history = History()
    for name, one in MORSE.items():
        history.add(name, 2, 2 if one.level == 1 else 1 if one.level == 2 else 0)
    means = document(history, MORSE)["means"]
    assert means["morse 1"] == {"tasks": 4, "pass_at": [1.0, 1.0]}
    assert means["morse 2"] == {"tasks": 4, "pass_at": [0.5, 1.0]}
    assert means["morse 4"]["pass_at"] == [0.0, 0.0]
    assert means["morse"]["pass_at"] == [0.5, pytest.approx(2 / 3)]
    assert sum(means[tag]["tasks"] for tag in means if "code" in tag) == 12
