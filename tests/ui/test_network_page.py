"""The page Network: links in use, and whether the experts' all-to-all can hide."""

from twin.explore.study.hidden import HiddenExpert
from twin.ui import answers
from twin.ui.answers import hiding
from twin.ui.scenarios import stamp

SMALL = (
    "cluster.nodes=4",
    "model.layers=9",
    "model.moe.experts=16",
    "parallel.pipeline=4",
    "parallel.virtual=2",
    "parallel.expert=8",
    "train.global_batch=64seq",
)
K2 = "kimi-k2-256xh800"


def headings(app):
    """The sections of the page."""
    return [one.value for one in app.header]


def findings(app):
    """What every picture says."""
    return [chart.proto.alt for chart in app.get("plotly_chart")]


def test_a_model_with_experts_has_its_window_and_demand(opened):
    app = opened(";".join((K2, *SMALL)), page="result", section="network")
    assert "Can the experts' all-to-all hide?" in headings(app)
    assert any("the all-to-all of a MoE layer takes" in one for one in findings(app))
    assert any("the busiest class of link is" in one for one in findings(app))


def test_a_dense_model_has_none(opened):
    app = opened("gpt-175b-64xa100-full", page="result", section="network")
    assert "Can the experts' all-to-all hide?" not in headings(app)


def test_degrees_are_simulated_when_asked_for_only(opened):
    """Each of them is a run."""
    app = opened(";".join((K2, *SMALL)), page="explore", section="expert-parallelism")
    assert any(one.label == "Simulate each degree" for one in app.toggle)
    assert not any("heads" in one for one in findings(app))
    found = answers.studied(hiding, answers.Question(K2, None, SMALL, stamp())).within(120)
    assert isinstance(found, HiddenExpert)
    assert found.heads == (64, 128)


def test_expert_parallelism_begins_with_the_plan_s_own_degree(opened):
    app = opened(K2, page="explore", section="expert-parallelism")
    assert "At the plan's own degree" in [one.value for one in app.header]
    (chart,) = app.get("plotly_chart")
    assert "the all-to-all of a MoE layer takes" in chart.proto.alt
