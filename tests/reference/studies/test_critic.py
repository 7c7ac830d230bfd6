"""What the study of the critic says of outcomes that are made up, and one seed of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reference.agentic.environment import Environment, Verdict
from reference.dialog import Dialog, Message
from reference.studies import critic
from reference.studies.critic import (
    BOOTSTRAP,
    CHARACTERS,
    COMMON,
    ENDS,
    LOOP,
    PLAN,
    CriticScores,
    LoopOutcome,
    Outcomes,
    RunGroup,
    bootstrapped,
    compared,
    ends,
    make,
    margins,
    refined,
    rises,
)
from tests.house.pages import unsourced

SEEDS = (0, 1, 2)
BEFORE: dict[int, CriticScores] = {seed: CriticScores(0.5, 1.0) for seed in SEEDS}


def run(first: float, last: float, success: float) -> LoopOutcome:
    """A run whose agreement goes from the one to the other at once."""
    shares = (*[first] * ENDS, None, *[last] * ENDS, None)
    return LoopOutcome(shares, (0.3, success), CriticScores(last, 0.9), 40.0)


FOUND: Outcomes = {
    (closed, seed): run(0.5, 0.8 + seed / 100, 0.6) if closed else run(0.5, 0.51, 0.9)
    for seed in SEEDS
    for closed in (True, False)
}


def test_the_first_and_the_last_iterations_are_those_with_a_comparison() -> None:
    assert ends(run(0.4, 0.75, 0.5)) == pytest.approx((0.4, 0.75))
    assert ends(LoopOutcome((None, 0.25, None), (0.0,), CriticScores(0.5, 0.5), 1.0)) == (
        0.25,
        0.25,
    )
    assert ends(LoopOutcome((None,), (0.0,), CriticScores(0.5, 0.5), 1.0)) == (0.5, 0.5)


def test_a_rise_is_of_a_run_and_a_margin_of_a_seed() -> None:
    group = RunGroup("one start", BEFORE, FOUND)
    assert rises(group, closed=True) == pytest.approx([0.3, 0.31, 0.32])
    assert rises(group, closed=False) == pytest.approx([0.01, 0.01, 0.01])
    assert margins(group) == pytest.approx([0.29, 0.3, 0.31])


def test_the_page_tells_both_arms_and_has_no_figure_without_a_source() -> None:
    one = RunGroup("one start", BEFORE, FOUND)
    made = critic.page(PLAN, one, replace(one, name="own starts"))
    page = made.text("here")
    said = " ".join(page.split())
    assert "One start, closed loop: agreement" in said
    assert "`81.0 %` in the last; it rises by `+31.0 points`" in said
    assert "`51.0 %` in the last; it rises by `+1.0 points`" in said
    assert "ends above its ablation by `+30.0 points` [`+27.5`, `+32.5`]" in said
    assert "`60.0 %` of the responses are right with it, `90.0 %` without" in said
    assert "- Own starts, closed loop" in said
    cells = "50.0 | 80.0 | 50.0 | 80.0 | 60.0"
    assert f"| 0 | closed loop | {cells} | {2 * ENDS} of {2 * ENDS + 2} |" in page
    (figure,) = made.figures
    assert [curve.label for curve in figure.panels[0].curves] == ["closed loop", "ablation"]
    assert not unsourced(page)


def test_without_a_comparison_there_is_no_picture() -> None:
    none = {key: replace(one, agreement=(None, None)) for key, one in FOUND.items()}
    one = RunGroup("one start", BEFORE, none)
    assert critic.page(PLAN, one, one).figures == ()


def test_no_character_of_the_loop_is_in_what_the_critic_saw_before_it() -> None:
    before = {one for kind in BOOTSTRAP for one in CHARACTERS[kind]}
    assert not before & {one for kind in LOOP for one in CHARACTERS[kind]}


def test_verifier_and_comparisons_take_the_same_answers() -> None:
    (task,) = make(1, 0)
    for one in compared(LOOP, 20, 0):
        assert judged(task.environment, one.right).success
        assert not judged(task.environment, one.wrong).success
    assert judged(task.environment, "AB#C").success
    assert not judged(task.environment, "AB#!").success


def judged(environment: Environment[Any], answer: str) -> Verdict:
    said = Dialog((Message("user", LOOP[0]), Message("assistant", answer)))
    return environment.judge(environment.start(), said)


@pytest.mark.slow
def test_the_closed_loop_makes_the_model_agree_with_the_verifier_and_its_ablation_does_not(
    tmp_path: Path,
) -> None:
    before = bootstrapped(PLAN, tmp_path, COMMON)
    assert before.taught > 0.9, "it is bootstrapped"
    assert before.apart < 0.7, "but not in what the loop is about"
    found = {
        (closed, 0): refined(PLAN, tmp_path, (COMMON, 0), closed=closed) for closed in (True, False)
    }
    (margin,) = margins(RunGroup("one start", {0: before}, found))
    print({arm: ends(one) for (arm, _), one in found.items()})
    assert margin > 0.4
    assert found[True, 0].after.apart > found[False, 0].after.apart + 0.4
