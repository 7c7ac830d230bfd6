"""Figures with failures stand beside those without, and are never mixed with them."""

from __future__ import annotations

from dataclasses import replace
from math import exp, hypot, log
from typing import Any

import pytest

from tests.reports import made
from twin.engine import plan
from twin.engine.lower import lower
from twin.engine.trace import Trace
from twin.kinds.base import kind_named
from twin.planning.types import Plan
from twin.reports import report
from twin.reports.explain import explain
from twin.reports.kpis import with_spans
from twin.reports.report import Report
from twin.spec.expect import FIGURES
from twin.spec.kpis import OF_FAILURES

GOODPUT: dict[str, Any] = {
    "failures": {
        "name": "paper",
        "gpu": "paper",
        "causes": [{"name": "gpu", "rate": 0.05, "per": "gpu"}],
    },
    "checkpoint": {
        "every": "10min",
        "save": "synchronous",
        "overhead": "30s",
        "storage": {"per_node": "1GB/s", "total": "1GB/s"},
    },
    "restart": {
        "name": "paper",
        "detect": "1min",
        "reschedule": "1min",
        "initialise": "1min",
        "load": "1min",
        "warm_up": "1min",
    },
    "seeds": 20,
}


def whole(**changes: Any) -> Plan:
    """A run of four GPUs as the real plan has it, long enough for failures."""
    sections = {"train": {"tokens": "64000000tok"}, "goodput": GOODPUT, **changes}
    return plan(made.scenario(**sections))


def answer(**changes: Any) -> Report:
    return report(whole(**changes), trace())


def trace() -> Trace:
    """The made trace, as often as the real plan has micro-batches."""
    return made.trace()


def test_days_and_cost_grow_by_the_same_share_and_those_without_stay() -> None:
    with_them, without = answer(), answer(goodput=None)
    kpis = with_them.kpis
    share = kpis["goodput_fraction"] or 0.0
    assert 0.5 < share < 0.95
    for key in ("days", "gpu_hours", "cost_usd"):
        assert kpis[key] == without.kpis[key]
    assert kpis["days_with_failures"] == pytest.approx((kpis["days"] or 0) / share)
    assert kpis["cost_usd_with_failures"] == pytest.approx((kpis["cost_usd"] or 0) / share)


def test_without_the_section_they_are_null_and_a_warning_says_why() -> None:
    found = answer(goodput=None)
    assert {found.kpis[key] for key in OF_FAILURES} == {None}
    assert found.to_json()["goodput"] is None
    (told,) = (one for one in found.warnings if one.code == "no-goodput")
    assert all(key in told.message for key in OF_FAILURES)


def test_with_the_section_nothing_is_said_to_be_without() -> None:
    assert "no-goodput" not in {one.code for one in answer().warnings}


def test_without_a_price_only_the_cost_is_null() -> None:
    kpis = answer(cost=None).kpis
    assert kpis["cost_usd_with_failures"] is None
    assert kpis["days_with_failures"] is not None


def test_the_document_has_the_losses_and_they_sum() -> None:
    goodput = answer().to_json()["goodput"]
    assert goodput["useful_ns"] + sum(goodput["losses_ns"].values()) == goodput["wall_ns"]
    assert goodput["fraction"] == answer().kpis["goodput_fraction"]


def test_the_verdict_says_which_days_are_which() -> None:
    said = answer().to_json()["verdict"]
    assert "with failures" in said
    assert "without failures" not in said
    assert "without failures" in answer(goodput=None).to_json()["verdict"]


def test_a_plan_has_one_answer_for_its_days() -> None:
    """With failures where they are known: in the verdict, and as the deciding key figure."""
    with_, without = answer(), answer(goodput=None)
    step = kind_named("step")
    assert "days" in step.deciding(without)
    assert "days" not in step.deciding(with_)
    assert "days_with_failures" in step.deciding(with_)
    assert with_.ranged(FIGURES["days_with_failures"]) in with_.verdict
    assert with_.ranged(FIGURES["days"]) not in with_.verdict


def test_an_interval_with_failures_holds_that_of_the_step_and_that_of_the_seeds() -> None:
    """Distances in logarithms add up as independent errors do."""
    found = answer()
    goodput = found.goodput
    assert goodput is not None
    days = found.kpis["days"] or 0.0
    spans = with_spans({"days": (0.8 * days, 1.5 * days)}, found.kpis, goodput)
    low, high = spans["days_with_failures"] or (0.0, 0.0)
    middle = days / goodput.fraction
    assert low == pytest.approx(
        middle * exp(-hypot(log(1 / 0.8), log(goodput.interval[1] / goodput.fraction)))
    )
    assert high == pytest.approx(
        middle * exp(hypot(log(1.5), log(goodput.fraction / goodput.interval[0])))
    )
    assert spans["goodput_fraction"] == goodput.interval
    assert spans["cost_usd_with_failures"] is None


def test_a_step_without_an_interval_leaves_days_with_failures_without_one() -> None:
    found = answer()
    assert found.intervals["days_with_failures"] is None
    assert found.intervals["goodput_fraction"] is not None


@pytest.mark.parametrize("key", sorted(OF_FAILURES))
def test_each_figure_has_a_derivation_that_gives_it(key: str) -> None:
    planned = whole()
    found = report(planned, trace())
    tree = explain(planned, lower(planned), trace(), found, key)
    assert tree.value == pytest.approx(found.kpis[key])
    assert tree.formula


def test_an_unknown_figure_says_why_in_its_derivation() -> None:
    planned = whole(goodput=None)
    tree = explain(planned, lower(planned), trace(), report(planned, trace()), "days_with_failures")
    assert tree.value is None
    assert "no section goodput" in tree.source


def test_expectations_see_failures() -> None:
    found = answer(expect=["goodput_fraction > 99%", "days_with_failures > 0d"])
    assert [one.passed for one in found.expectations] == [False, True]


def test_a_run_that_makes_no_progress_never_ends() -> None:
    found = answer()
    dead = replace(found, kpis={**found.kpis, "days_with_failures": None})
    assert "never ends" in dead.to_json()["verdict"]
