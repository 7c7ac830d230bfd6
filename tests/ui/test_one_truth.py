"""A plan has one answer on every page: the same verdict, the same figures, in the same words."""

from __future__ import annotations

import re
from concurrent.futures import Future

import pytest

from tests.ui.conftest import checked, events
from tests.ui.test_pages import PAGES, words
from twin.spec.expect import FIGURES
from twin.ui import answers
from twin.ui.answers import Question, Reply
from twin.ui.background import Pending
from twin.ui.scenarios import stamp

FAILING = "kimi-k2-2048xh800-goodput"
"""A plan whose run has failures."""
LABELS = {"days_with_failures": "Run, with failures"}
PLAN, EDIT = "gpt-175b-64xa100-full", "cluster.nodes=16"


def figures(app) -> dict[str, set[str]]:
    """Every value that the page shows under the label of a key figure."""
    found: dict[str, set[str]] = {}
    for one in app.metric:
        found.setdefault(one.label, set()).add(one.value)
    return found


@pytest.fixture(scope="module")
def report():
    return events(FAILING).report


@pytest.mark.parametrize(("page", "section"), [*PAGES, ("result", "cost"), ("result", "tables")])
def test_every_page_has_the_same_figures_of_a_plan(opened, report, page, section):
    app = opened(FAILING, page=page, section=section)
    shown = figures(app)
    for key in ("step_seconds", "days_with_failures", "cost_usd_with_failures"):
        kpi = FIGURES[key]
        label = LABELS.get(key, kpi.label)
        assert {report.ranged(kpi).partition(" (")[0]} == shown[label], label
    text = words(app)
    runs = set(re.findall(r"tokens take ([0-9.]+ d)", text))
    assert runs <= {report.ranged(FIGURES["days_with_failures"]).partition(" (")[0]}
    assert section == "cost" or "without failures" not in text.partition("Assumptions")[0]


@pytest.mark.parametrize("page", ["plan", "result", "compare"])
def test_a_simulation_that_ends_while_a_page_is_drawn_changes_no_half_of_it(
    opened, monkeypatch, page
):
    """At the first reply of a page there is no answer, later there is one: all of it shows none."""
    asked = Question(PLAN, None, (EDIT,), stamp())
    made = events(PLAN, EDIT)
    given: list[Question] = []

    def reply(one: Question) -> Reply:
        if one != asked:
            return Reply(events(PLAN))
        given.append(one)
        return Reply(None, Pending(Future())) if len(given) == 1 else Reply(made)

    monkeypatch.setattr(answers, "reply", reply)
    monkeypatch.setattr("twin.ui.place.reply", reply)
    app = opened(f"{PLAN};{EDIT}", page=page)
    given.clear()
    app = checked(app.run())
    assert "Step time" not in figures(app)
    assert "being simulated" in words(app)
    assert made.report.ranged(FIGURES["step_seconds"]) not in words(app)
    assert figures(checked(app.run()))["Step time"]
