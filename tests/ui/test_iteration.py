"""The page RL iteration: every figure with its finding, every scenario that has one."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.kinds.rl.iterations import APART, SMALL, reported
from tests.ui.test_pages import words
from twin.kinds.iteration.figures import occupation, timeline, ways
from twin.kinds.iteration.report import IterationReport
from twin.kinds.iteration.types import Fit
from twin.ui import iterations
from twin.ui.answers import Question, question
from twin.ui.desk import Desk, Draft
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
    other = Desk((Draft("kimi-k2-256xh800", "kimi-k2-256xh800"),))
    assert sorted(plan.title for plan in iterating(other, known())) == sorted(NAMES)


def test_plans_on_the_desk_come_first_and_with_their_edits() -> None:
    edited = Draft(NAMES[1], NAMES[1], edits=(("rl.rollout.requests", "320"),))
    wrong = edited.edited("rl.rollout.requests", "many")
    desk = Desk((Draft(NAMES[0], NAMES[0]), edited, wrong))
    plans = iterating(desk, known())
    assert plans[:3] == desk.plans
    assert sorted(plan.scenario for plan in plans[3:]) == sorted(NAMES[1:])


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


def test_iterations_of_other_work_are_compared_by_tokens_per_second() -> None:
    """Half of the requests take less time, which says nothing for the plan."""
    few = replace(report("rl.rollout.requests=64"), name="few")
    every = report()
    assert (few.kpis["iteration_seconds"] or 0) < (every.kpis["iteration_seconds"] or 0)
    picture = ways([few, every], "light")
    rate = "trained_tokens_per_second_per_gpu"
    assert (every.kpis[rate] or 0) > (few.kpis[rate] or 0)
    assert picture.title.startswith(f"Most tokens per second: {every.name}")
    assert "tok/s/GPU" in drawn(picture)[0].text[0]


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
    monkeypatch.setattr(iterations, "answer", lambda _: Pending())
    app = opened(page="iteration")
    assert not app.exception
    assert "is being played" in words(app)
    assert not app.get("plotly_chart")


def test_the_page_answers_and_compares(opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterations, "answer", lambda _: made(report()))
    app = opened(page="iteration")
    assert not app.exception
    assert "An iteration takes" in words(app)
    assert [one.label for one in app.sidebar.metric][:2] == ["Iteration", "Iterations"]
    assert len(app.get("plotly_chart")) == 2
    (toggle,) = (one for one in app.toggle if one.label == "Compare all of them")
    app = toggle.set_value(True).run()
    assert len(app.get("plotly_chart")) == 3
    assert words(app).count("an iteration is as long as in") == 2


def test_the_page_plays_the_open_plan_under_its_edits(
    opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Question] = []

    def note(one: Question) -> Pending[IterationReport]:
        asked.append(one)
        return made(report())

    monkeypatch.setattr(iterations, "answer", note)
    app = opened(f"{NAMES[2]};rl.rollout.requests=320", page="iteration")
    assert asked[-1].name == NAMES[2]
    assert asked[-1].sets == ("rl.rollout.requests=320",)
    (box,) = (one for one in app.sidebar.selectbox if one.label == "Iteration")
    assert box.options[0] == f"{NAMES[2]} (edited)"
    box.set_value(box.options.index(NAMES[0])).run()
    assert (asked[-1].name, asked[-1].sets) == (NAMES[0], ())


def test_an_answer_is_that_of_the_command_line() -> None:
    asked = question(known(), NAMES[0], None, tuple(SMALL))
    found = iterations.play(asked, lambda _: None)
    assert isinstance(found, IterationReport)
    assert found.kpis == report().kpis
    assert found.provenance["reproduce"].startswith(f"twin run {NAMES[0]} --set ")


def test_beside_every_page_stands_what_a_step_leaves_out(opened) -> None:
    app = opened(NAMES[0], page="result")
    said = " ".join(one.value for one in app.sidebar.caption)
    assert "This is the trainer's step alone" in said
    assert "trainer's step alone" not in " ".join(
        one.value for one in opened("kimi-k2-256xh800", page="result").sidebar.caption
    )


def test_ways_are_not_compared_before_all_are_played(
    opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending: Pending[IterationReport] = Pending()
    answers = {NAMES[-1]: pending}
    monkeypatch.setattr(iterations, "answer", lambda asked: answers.get(asked.name, made(report())))
    app = opened(page="iteration")
    (toggle,) = (one for one in app.toggle if one.label == "Compare all of them")
    app = toggle.set_value(True).run()
    assert f"{NAMES[-1]} is being played" in words(app)
    assert "Shortest" not in words(app)
    pending.future.set_result(report(*APART))
    assert "Shortest" in words(app.run())
