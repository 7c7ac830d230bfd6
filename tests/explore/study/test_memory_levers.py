"""Levers are single changes that free memory, as planning the changed scenario says."""

from itertools import pairwise

import pytest

from tests.engine.scenarios import moe
from twin.answers.nearest import PRICES, StepAnswers, document, levers, replaced
from twin.engine import plan

BASE = moe(4, 4, 1, 8, "memory.recompute=[]")


def test_a_lever_frees_what_its_plan_says():
    usual = plan(BASE).memory.peak.peak_bytes
    changed = plan(replaced(document(BASE), {"memory.recompute": ["full"]})).memory
    (full,) = (one for one in levers(BASE) if one.value == "[full]")
    assert full.peak_bytes == changed.peak.peak_bytes
    assert full.saved_bytes == usual - changed.peak.peak_bytes
    assert full.fits == changed.fits


def test_every_lever_frees_something_and_the_largest_comes_first():
    found = levers(BASE)
    assert found
    assert all(one.saved_bytes > 0 and one.path in PRICES for one in found)
    assert all(more.saved_bytes >= less.saved_bytes for more, less in pairwise(found))


def test_what_is_done_already_is_no_lever():
    done = moe(4, 4, 1, 8, "parallel.zero=3", "memory.recompute=[full]")
    assert not [one for one in levers(done) if one.path == "parallel.zero"]
    assert not [one for one in levers(done) if one.path == "memory.recompute"]


def test_the_price_is_that_of_the_fast_path_where_asked_for():
    assert all(one.step_seconds is None for one in levers(BASE))
    answers = StepAnswers()
    usual = answers.of(BASE).step_ns
    changed = answers.of(replaced(document(BASE), {"memory.recompute": ["full"]})).step_ns
    (full,) = (one for one in levers(BASE, timed=True) if one.value == "[full]")
    assert changed > usual
    assert full.step_seconds == pytest.approx((changed - usual) / 1e9)
