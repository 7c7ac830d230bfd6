"""The page Result by kind: every kind of work has its verdict, its figures and its tables."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.conftest import checked, events
from tests.ui.test_pages import words
from twin.answers import Run, ask
from twin.ui import answers
from twin.ui.background import Worker
from twin.ui.place import sections

STEP = "gpt-175b-64xa100-full"
UPDATE = "kimi-k2-weight-update-16xh20"
ROLLOUTS = "kimi-k2-rollout-256xh800;rl.rollout.requests=64"
ITERATION = "kimi-k2-rl-256xh800;rl.rollout.requests=64"
UNEVEN = (
    "kimi-k2-256xh800;model.layers=9;model.moe.experts=16;memory.recompute=[full];memory.fp8_store=[]"
    ";memory.offload=[];cluster.nodes=6;parallel.pipeline=2;parallel.virtual=1;parallel.expert=8"
    ";parallel.schedule=1f1b;train.global_batch=96seq;train.routing={kind: zipf, s: 0.4}"
)
PHASES = f"{STEP};phases=[{{name: first, steps: 5}}, {{name: rest, until: 300B}}]"
KINDS = {
    STEP: ("Run time, no failures", 2, "step"),
    UPDATE: ("Update time", 3, "weight update"),
    ROLLOUTS: ("Rollouts of an iteration", 2, "rollouts"),
    ITERATION: ("Iteration", 2, "iteration"),
    PHASES: ("Run time, no failures", 2, "phases"),
}
"""Links of a plan of each kind: its first key figure and the figures of its summary."""


def answer(plan: str) -> Run:
    """The simulated answer to a plan of a link."""
    name, *sets = plan.split(";")
    return events(name, *sets)


def shown(opened: Any, plan: str, **query: str) -> AppTest:
    """The page Result of a plan."""
    answer(plan)
    return opened(plan, page="result", **query)


@pytest.mark.parametrize("plan", KINDS, ids=[words for *_, words in KINDS.values()])
def test_every_kind_has_a_result(opened, plan) -> None:
    app = shown(opened, plan)
    first, figures, _ = KINDS[plan]
    run = answer(plan)
    assert run.kind.sentences(run)[0].split(".")[0] in words(app).replace(" (edited)", "")
    assert app.sidebar.metric[0].label == first
    charts = app.get("plotly_chart")
    assert len(charts) == figures
    assert all(chart.proto.alt for chart in charts)
    assert "Assumptions and limits" in [one.value for one in app.header]
    assert f"twin run {plan.partition(';')[0]}" in words(app)


@pytest.mark.parametrize("plan", [UPDATE, ROLLOUTS], ids=["weight update", "rollouts"])
def test_every_kind_has_its_tables(opened, plan) -> None:
    run = answer(plan)
    app = shown(opened, plan, section="tables")
    assert [one.label for one in app.expander] == [block.title for block in run.kind.tables(run)]


@pytest.mark.parametrize("plan", KINDS, ids=[words for *_, words in KINDS.values()])
def test_every_view_is_drawn_with_its_defaults(plan) -> None:
    run = answer(plan)
    views = list(run.kind.figures(run))
    assert len({one.key for one in views}) == len(views)
    for view in views:
        picture = view.drawn("dark")
        assert picture.title
        assert picture.caption


def test_sections_of_a_step_are_in_the_link(opened) -> None:
    app = shown(opened, STEP, section="memory")
    assert "Memory over the step" in [one.value for one in app.header]
    assert app.query_params["section"] == "memory"
    assert set(sections(list(answer(STEP).kind.figures(answer(STEP))))) >= {
        "Summary",
        "Timeline",
        "Memory",
        "Network",
    }


@pytest.mark.slow
def test_every_rank_opens_by_window_where_all_were_simulated(opened) -> None:
    run = answer(UNEVEN)
    whole = ask(run.scenario, fidelity="all").trace
    app = shown(opened, UNEVEN, section="timeline")
    assert [one.value for one in app.header][-2:] == [
        "Every rank",
        "Who waits for the fullest expert ranks",
    ]
    ranks = next(one for one in app.selectbox if one.label == "Ranks")
    assert len(ranks.options) == len(whole.roles) / 8
    app = checked(ranks.select_index(1).run())
    deadline = time.monotonic() + 60
    while (
        "With expert ranks"
        not in (charts := [one.proto for one in app.get("plotly_chart")])[-1].alt
    ):
        assert time.monotonic() < deadline, words(app)
        time.sleep(0.3)
        app = checked(app.run())
    assert whole.roles[8] in charts[-2].spec
    assert whole.roles[7] not in charts[-2].spec


def test_an_answer_passes_between_processes() -> None:
    run = answer(UPDATE)
    assert pickle.loads(pickle.dumps(run)).report == run.report


def test_a_page_says_that_a_plan_is_being_simulated(opened, monkeypatch) -> None:
    monkeypatch.setattr(Worker, "perform", lambda *_: time.sleep(5))
    monkeypatch.setattr(answers, "GLANCE", 0)
    monkeypatch.setattr(answers, "MOMENT", 0)
    app = opened(f"{UPDATE};cluster.nodes=4", page="result")
    assert "is being simulated" in words(app)
    assert not app.get("plotly_chart")


def test_sensitivity_has_the_fit_and_all_numbers_while_a_plan_is_being_simulated(
    opened, monkeypatch
) -> None:
    monkeypatch.setattr(Worker, "perform", lambda *_: time.sleep(5))
    monkeypatch.setattr(answers, "GLANCE", 0)
    monkeypatch.setattr(answers, "MOMENT", 0)
    plan = "gpt-175b-64xa100-full;cluster.nodes=32"  # that no other test simulates
    app = opened(plan, page="explore", section="sensitivity")
    assert "is being simulated" in words(app)
    assert "gpt-175b-64xa100-full" in app.main.info[0].value
    assert "Every number and its source" in [one.value for one in app.header]
    assert len(app.dataframe[0].value) > 50
    assert not app.get("plotly_chart")


def test_beside_its_own_figures_an_iteration_has_those_of_the_training_step(opened) -> None:
    app = shown(opened, ITERATION, section="training-step")
    deadline = time.monotonic() + 120
    while not app.get("plotly_chart"):
        assert time.monotonic() < deadline, words(app)
        time.sleep(0.3)
        app = checked(app.run())
    assert "This section answers the trainer's step alone" in words(app)


def test_an_edit_of_a_weight_update_changes_its_answer_and_its_command(opened) -> None:
    app = shown(opened, f"{UPDATE};weight_update.stages=three")
    assert "--set weight_update.stages=three" in words(app)
    assert "Nothing" not in [one.value for one in app.sidebar.caption]


def test_an_old_link_to_a_weight_update_opens_it(opened) -> None:
    app = opened(STEP, update=f"{UPDATE};weight_update.stages=three")
    assert not app.warning
    plans = app.query_params["plan"]
    assert plans == [STEP, f"{UPDATE};weight_update.stages=three"]
    assert app.query_params["open"] == "1"
