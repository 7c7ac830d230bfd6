"""What the study of the critic says of outcomes that are made up, and one seed of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reference.agentic.environment import Environment, Verdict
from reference.dialog import Dialog, Message
from reference.studies import critic
from reference.studies.critic import COMMON, ENDS, PLAN, Found, Group, ends, margins, rises
from reference.studies.critic_runs import (
    BOOTSTRAP,
    CHARACTERS,
    LOOP,
    Judged,
    Refined,
    bootstrapped,
    compared,
    make,
    refined,
)
from reference.studies.report import text
from tests.house.pages import unsourced

SEEDS = (0, 1, 2)
BEFORE: dict[int, Judged] = {seed: Judged(0.5, 1.0) for seed in SEEDS}


def run(first: float, last: float, success: float) -> Refined:
    """A run whose agreement goes from the one to the other at once."""
    shares = (*[first] * ENDS, None, *[last] * ENDS, None)
    return Refined(shares, (0.3, success), Judged(last, 0.9), 40.0)


FOUND: Found = {
    (closed, seed): run(0.5, 0.8 + seed / 100, 0.6) if closed else run(0.5, 0.51, 0.9)
    for seed in SEEDS
    for closed in (True, False)
}


def test_the_first_and_the_last_iterations_are_those_with_a_comparison() -> None:
    assert ends(run(0.4, 0.75, 0.5)) == pytest.approx((0.4, 0.75))
    assert ends(Refined((None, 0.25, None), (0.0,), Judged(0.5, 0.5), 1.0)) == (0.25, 0.25)
    assert ends(Refined((None,), (0.0,), Judged(0.5, 0.5), 1.0)) == (0.5, 0.5)


def test_a_rise_is_of_a_run_and_a_margin_of_a_seed() -> None:
    assert rises(FOUND, closed=True) == pytest.approx([0.3, 0.31, 0.32])
    assert rises(FOUND, closed=False) == pytest.approx([0.01, 0.01, 0.01])
    assert margins(FOUND) == pytest.approx([0.29, 0.3, 0.31])


def test_the_page_tells_both_arms_and_has_no_figure_without_a_source() -> None:
    one = Group("one start", BEFORE, FOUND)
    made = critic.report(PLAN, one, replace(one, name="own starts"))
    assert "One start, closed loop: agreement" in made.findings[0]
    assert "`81.0 %` in the last; it rises by `+31.0 points`" in made.findings[0]
    assert "`51.0 %` in the last; it rises by `+1.0 points`" in made.findings[1]
    assert "ends above its ablation by `+30.0 points` [`+27.5`, `+32.5`]" in made.findings[2]
    assert "`60.0 %` of the responses are right with it, `90.0 %` without" in made.findings[3]
    assert made.findings[4].startswith("Own starts, closed loop")
    table, _ = made.tables
    assert table.rows[0] == [
        "0", "closed loop", "50.0", "80.0", "50.0", "80.0", "60.0", f"{2 * ENDS} of {2 * ENDS + 2}",
    ]  # fmt: skip
    (figure,) = made.figures
    assert [one.label for one in figure.panels[0].curves] == ["closed loop", "ablation"]
    assert not unsourced(text(made, "here", []))


def test_without_a_comparison_there_is_no_picture() -> None:
    none = {key: replace(one, agreement=(None, None)) for key, one in FOUND.items()}
    one = Group("one start", BEFORE, none)
    assert critic.report(PLAN, one, one).figures == ()


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
    (margin,) = margins(found)
    print({arm: ends(one) for (arm, _), one in found.items()})
    assert margin > 0.4
    assert found[True, 0].after.apart > found[False, 0].after.apart + 0.4
