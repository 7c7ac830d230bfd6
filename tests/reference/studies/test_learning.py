"""What the study of learning from rewards says of outcomes that are made up."""

from __future__ import annotations

import pytest

from reference.dialog import dialog_of
from reference.rl.gym.environments import item
from reference.studies import learning
from reference.studies.learning import PLAN, LearningOutcome, Outcomes, dialogues, gains, raised
from tests.house.pages import unsourced

SEEDS = (0, 1, 2)
FIRST = LearningOutcome({"morse": 0.3, "tables": 0.1}, (), 0.0)


def found(gain: float) -> Outcomes:
    """Verdicts add `gain` to one family and a little by seed; the control adds nothing."""
    return {
        (shuffle, seed): LearningOutcome(
            {"morse": 0.3 + (0.0 if shuffle else gain) + (-1) ** seed / 50, "tables": 0.1},
            (0.1, 0.2, 0.3),
            60.0 + seed,
        )
        for seed in SEEDS
        for shuffle in (False, True)
    }


def test_a_family_is_raised_where_the_interval_over_seeds_lies_above_zero() -> None:
    assert gains(FIRST, found(0.4), "morse", shuffle=False) == pytest.approx([0.42, 0.38, 0.42])
    assert raised(FIRST, found(0.4), shuffle=False) == ["morse"]
    assert raised(FIRST, found(0.03), shuffle=False) == []
    assert raised(FIRST, found(0.4), shuffle=True) == []


def test_the_page_tells_both_and_has_no_figure_without_a_source() -> None:
    page = learning.page(PLAN, FIRST, found(0.4), SEEDS).text("here")
    verdicts, control = " ".join(page.split()).split("- Rewards ")[1:]
    assert "of 2 families 1 gain with every seed (morse)" in verdicts
    assert "1 with an interval above zero (morse)" in verdicts
    assert "0 with an interval above zero (none)" in control
    assert not unsourced(page)


def test_what_is_shown_are_right_answers() -> None:
    rows = list(dialogues(learning.QUICK))
    assert len(rows) == learning.QUICK.shown
    for number, row in enumerate(rows):
        made = item("morse", 1, number)
        assert made.environment.judge(made.environment.start(), dialog_of(row)).success
