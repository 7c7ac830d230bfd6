"""A limit is a change from the baseline that is too much; it is judged on raw values."""

from __future__ import annotations

import pytest

from tests.reports import made
from tests.reports.test_compare import pair
from twin.errors import FieldError
from twin.reports import compare, report
from twin.reports.kpis import Failure, failures, read_limit, sentence
from twin.units import QuantityError


def failed(*texts: str) -> tuple[Failure, ...]:
    """What fails of the pair on paper, whose step grows from 2 s to 2.5 s."""
    return failures(compare(pair()).deltas, tuple(map(read_limit, texts)))


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("step_seconds > +24%", True),
        ("step_seconds > +25%", False),
        ("step_seconds >= +25%", True),
        ("step_seconds > +26 %", False),
        ("step_seconds > +0.4s", True),
        ("step_seconds > +400ms", True),
        ("step_seconds > +0.5s", False),
        ("step_seconds > -1%", True),
        ("tokens_per_second < -19%", True),
        ("tokens_per_second < -20%", False),
        ("tokens_per_second < -10tok/s", True),
        ("mfu < -1%", True),
        ("bubble_fraction < -0.04", True),
        ("bubble_fraction < -0.06", False),
        ("peak_device_bytes > +0B", False),
        ("peak_device_bytes > +0%", False),
    ],
)
def test_a_change_is_held_against_its_limit(text: str, fails: bool) -> None:
    assert bool(failed(text)) is fails


def test_a_failure_says_what_changed_and_by_how_much() -> None:
    (one,) = failed("step_seconds > +2%")
    assert (one.baseline, one.candidate, one.change) == (2.0, 2.5, pytest.approx(0.25))
    assert sentence(one) == ("slower is beyond step_seconds > +2%: 2.00 s became 2.50 s (+25.0 %).")
    (one,) = failed("step_seconds > +0.1s")
    assert sentence(one).endswith("2.00 s became 2.50 s (+500 ms).")
    (one,) = failed("bubble_fraction < -0.01")
    assert sentence(one).endswith("25.0 % became 20.0 % (-0.0500).")


def test_every_candidate_is_held_against_every_limit() -> None:
    first, second = pair()
    limits = tuple(map(read_limit, ("step_seconds > +2%", "mfu < -1%")))
    found = failures(compare([first, second, first, second]).deltas, limits)
    assert [(one.text, one.name) for one in found] == [
        ("step_seconds > +2%", "slower"),
        ("step_seconds > +2%", "slower"),
        ("mfu < -1%", "slower"),
        ("mfu < -1%", "slower"),
    ]


def test_what_is_unknown_is_beyond_every_limit() -> None:
    free = report(made.plan(cost=None), made.trace())
    comparison = compare([free, pair()[1]])
    (one,) = failures(comparison.deltas, (read_limit("cost_usd > +2%"),))
    assert one.change is None
    assert "unknown became" in sentence(one)


def test_a_rise_from_zero_is_beyond_every_share() -> None:
    """Without a bubble, none may appear."""
    none = report(made.plan(), made.trace(({"compute": 2_000_000_000},)))
    some = pair()[0]
    limit = (read_limit("bubble_fraction > +2%"),)
    (one,) = failures(compare([none, some]).deltas, limit)
    assert one.change is None
    assert sentence(one).endswith("0 % became 25.0 %.")
    assert failures(compare([none, none]).deltas, limit) == ()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("step_seconds > 2%", "TW050"),
        ("step_seconds > 0.5s", "TW050"),
        ("step_seconds +2%", "TW050"),
        ("step_seconds > +2%%", "TW050"),
        ("step_seconds > +-2%", "TW050"),
        ("step_seconds > +nan%", "TW050"),
        ("step_seconds > +", "TW050"),
        ("step_second > +2%", "TW051"),
        ("step_seconds == +2%", "TW052"),
        ("fits > +2%", "TW052"),
        ("mfu < -2", "TW015"),
    ],
)
def test_what_is_no_limit_is_refused_with_its_code(text: str, code: str) -> None:
    with pytest.raises((FieldError, QuantityError)) as caught:
        read_limit(text)
    assert getattr(caught.value, "code", "TW050") == code
    assert caught.value.hint


def test_a_change_of_another_dimension_is_refused() -> None:
    with pytest.raises(QuantityError):
        read_limit("step_seconds > +2GiB")
