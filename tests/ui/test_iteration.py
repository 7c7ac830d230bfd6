"""The page RL iteration: every figure with its finding, every scenario that has one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.rl.iterations import APART, reported
from tests.ui.test_pages import words
from twin.figures.iteration import occupation, timeline, ways
from twin.rl.iteration import Fit, IterationReport
from twin.ui import iterations
from twin.ui.iterations import iterating
from twin.ui.jobs import Pending
from twin.ui.known import known

SIDES = ["All GPUs", "GPUs of engines", "GPUs of the trainer"]
NAMES = [f"kimi-k2-rl-256xh800{end}" for end in ("", "-disaggregated", "-one-step-off")]


@cache
def report(*sets: str) -> IterationReport:
    return reported(*sets)


def drawn(picture: Any) -> Any:
    """The traces of a figure."""
    return picture.figure.data


def test_scenarios_with_an_iteration_are_found() -> None:
    assert sorted(iterating(known())) == sorted(NAMES)


def test_a_timeline_has_a_bar_for_every_phase() -> None:
    picture = timeline(report(*APART), "light")
    assert len(picture.table) == len(report(*APART).rounds[-1].spans)
    assert picture.title.startswith("Rollouts take")


def test_what_gpus_do_sums_to_all_of_it() -> None:
    rows = occupation(report(*APART), "light").table
    assert sum(float(row["Share"].removesuffix(" %")) for row in rows) == pytest.approx(
        100, abs=0.5
    )


def test_ways_are_compared_by_their_seconds() -> None:
    both = [report(), report(*APART)]
    picture = ways(both, "light")
    assert [row["Mode"] for row in picture.table] == ["colocated", "disaggregated"]


@pytest.mark.parametrize(
    ("sets", "sides"), [((), ["All GPUs"]), (APART, SIDES)], ids=["in turns", "apart"]
)
def test_colours_of_a_timeline_tell_whose_gpus_a_phase_has(
    sets: tuple[str, ...], sides: list[str]
) -> None:
    picture = timeline(report(*sets), "light")
    assert [one.name for one in drawn(picture)] == sides
    assert picture.figure.layout.showlegend == (len(sides) > 1)


def test_what_does_not_fit_is_not_the_shortest() -> None:
    full = replace(report(), fits_of=(Fit("everything", 2.0, 1.0),))
    picture = ways([full, report(*APART)], "light")
    assert picture.title.startswith("Shortest: Apart, in turns")
    assert drawn(picture)[0].text[0].endswith(", does not fit")


def test_scenarios_of_one_kind_are_called_by_their_names() -> None:
    other = replace(report(), name="another")
    assert [one.name for one in drawn(ways([report(), other], "light"))] == [
        report().name,
        "another",
    ]


def made(report: IterationReport) -> Pending[IterationReport]:
    """An answer that is there."""
    pending: Pending[IterationReport] = Pending()
    pending.future.set_result(report)
    return pending


def test_an_answer_passes_between_processes() -> None:
    assert pickle.loads(pickle.dumps(report(*APART))) == report(*APART)


def test_a_page_says_what_is_being_played(opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterations, "answer", lambda *_: Pending())
    app = opened(page="iteration")
    assert not app.exception
    assert "is being played" in words(app)
    assert not app.get("plotly_chart")


def test_the_page_answers_and_compares(opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterations, "answer", lambda *_: made(report()))
    app = opened(page="iteration")
    assert not app.exception
    assert "An iteration takes" in words(app)
    assert [one.label for one in app.sidebar.metric][:2] == ["Iteration", "Iterations"]
    assert len(app.get("plotly_chart")) == 2
    (toggle,) = (one for one in app.toggle if one.label == "Compare all of them")
    app = toggle.set_value(True).run()
    assert len(app.get("plotly_chart")) == 3


def test_ways_are_not_compared_before_all_are_played(
    opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = known().files[NAMES[-1]]
    pending: Pending[IterationReport] = Pending()
    answers = {late: pending}
    monkeypatch.setattr(iterations, "answer", lambda file, _: answers.get(file, made(report())))
    app = opened(page="iteration")
    (toggle,) = (one for one in app.toggle if one.label == "Compare all of them")
    app = toggle.set_value(True).run()
    assert f"{NAMES[-1]} is being played" in words(app)
    assert "Shortest" not in words(app)
    pending.future.set_result(report(*APART))
    assert "Shortest" in words(app.run())
