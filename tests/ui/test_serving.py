"""The section Serving: an engine's figures, how a plan without one gets one, and what is wrong."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.conftest import checked
from tests.ui.test_pages import words
from twin.loading import load
from twin.reports.serving import DATA, heads, sentence, serving
from twin.ui.scenarios import scenario_files
from twin.ui.workspace import Draft, History, Workspace

PLAN, SHIPPED = "gpt-175b-64xa100-full", "deepep-32gpu"
OWN = "{gpus: 8, tensor: 8, precision: bf16}"


def shown(*edits: tuple[str, str]) -> AppTest:
    """The section alone: without the sidebar, no step is simulated."""
    app = AppTest.from_string(_SECTION, default_timeout=120)
    app.session_state["history"] = History(Workspace((Draft(PLAN, PLAN, edits=edits),)))
    app.session_state["known scenarios"] = scenario_files()
    return checked(app.run())


_SECTION = """
from twin.ui import session
from twin.ui.place import OpenPlan, ask_about
from twin.ui.cost import serving_section

space = session.workspace()
serving_section(OpenPlan(space, ask_about(space.open), has_baseline=False))
"""


def test_the_page_shows_an_engine_with_its_figures() -> None:
    app = shown((DATA, OWN))
    (found,) = serving(load(PLAN, [f"{DATA}={OWN}"]))
    charts, said = app.get("plotly_chart"), words(app)
    assert len(charts) == 3
    assert all(chart.proto.alt for chart in charts)
    assert all(line.rstrip(".") in said for line in sentence(found).split(". "))
    assert heads(found).rstrip(".") in said
    (table,) = (one.value for one in app.table if "Each GPU" in one.value.columns)
    assert len(table) == sum(len(at.points) for at in found.curve.contexts)
    # 42k tokens of cache: one sequence of 32k, none of 128k.
    assert list(table["No more because"]).count("memory ends") == 2
    assert "no room for one sequence of 131,072 tokens" in said


def test_a_plan_without_engine_is_told_how_to_declare_one_and_can_try_it() -> None:
    app = shown()
    assert "declares no inference engine" in words(app)
    assert f"data:\n  engine: {SHIPPED}" in words(app)
    (button,) = (one for one in app.button if one.label == f"Try {SHIPPED}")
    app = checked(button.click().run())
    assert app.session_state["history"].now.open.edits == ((DATA, SHIPPED),)
    assert "TW180" in words(app)  # an A100 has no FP8: said as on the command line


def test_an_engine_without_room_says_so() -> None:
    app = shown((DATA, "{gpus: 4, tensor: 4, precision: bf16}"))
    assert "no memory for a sequence" in app.error[0].value
    assert not app.get("plotly_chart")


@pytest.mark.slow
def test_the_page_is_reached_from_the_app(opened) -> None:
    app = opened(f"{PLAN};{DATA}={OWN}", page="result", section="serving")
    assert len(app.get("plotly_chart")) == 3
