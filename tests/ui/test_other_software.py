"""The software of a plan: asked for first on Plan, compared with other stacks on Result."""

from dataclasses import replace

import pytest

from tests.explore.search.conftest import SMALL
from tests.ui.conftest import checked, events
from tests.ui.test_pages import FULL, edited, field, plans, words
from twin.answers.executors import PoolChoice
from twin.answers.nearest import written
from twin.explore.search.improve import improve
from twin.loading import catalog_parts, load
from twin.reports import resolved
from twin.ui.answers import Question, stacks, studied
from twin.ui.explore.better_search import BetterAsked, PlanHistory, better, found_before
from twin.ui.other_software import about
from twin.ui.scenarios import stamp

NEXT = "choose the stack that trains. "


def step(app):
    """The step time beside the page."""
    return app.sidebar.metric[0].value


def test_the_plan_asks_for_the_software_first(opened):
    app = opened(FULL)
    fields = [str(one.key) for one in app.selectbox if str(one.key).startswith(FULL)]
    assert fields[0].startswith(f"{FULL}|software")
    box = field(app, "software")
    assert box.value == "megatron-lm-2022"
    assert box.options == ["not set", *catalog_parts("software")]
    assert "Megatron-LM with PyTorch 1.x" in words(app)


def test_a_chosen_stack_is_an_edit_and_can_be_taken_back(opened):
    events(FULL, "software=fsdp2")
    before = opened(FULL)
    usual = step(before)
    app = edited(before, "software", "fsdp2")
    assert plans(app) == [f"{FULL};software=fsdp2"]
    assert "PyTorch FSDP2, eager modules" in words(app)
    assert step(app) != usual
    assert "(was megatron-lm-20" in field(app, "software").label
    app = edited(app, "software", "megatron-lm-2022")
    assert plans(app) == [FULL]


def test_a_stack_of_the_file_can_be_unset(opened):
    app = edited(opened(FULL), "software", "")
    assert plans(app) == [f"{FULL};software=null"]
    assert "Bare kernels: the host takes `calibration.dispatch` per kernel" in words(app)


def test_a_stack_that_nobody_wrote_is_called_assumed():
    values = resolved(load(FULL))
    assumed, chosen = (about(values, assumed=one) for one in (True, False))
    assert assumed == f"Assumed, because no software is written: {NEXT}{chosen}"


@pytest.mark.parametrize(
    ("name", "said"),
    [("xla", "JAX and XLA"), ("fsdp2", "waits for the device"), ("null", "Bare kernels")],
)
def test_a_stack_is_a_sentence(name, said):
    assert said in about(resolved(load(FULL, [f"software={name}"])), assumed=False)


def test_the_result_compares_stacks_when_asked(opened):
    few = "train.global_batch=64seq"
    app = opened(f"{FULL};{few}", page="result")
    (box,) = (one for one in app.expander if one.label == "Under other software")
    assert not box.table
    found = studied(stacks, Question(FULL, None, (few,), stamp())).within(120)
    assert isinstance(found, tuple)
    app.session_state["under other software"] = True
    assert "Layout and batch stay" in words(checked(app.run()))
    (shown,) = (one.value for one in app.table if "calibration" in one.value.columns)
    assert len(shown) == len(found)
    names = {name.partition(" (")[0] for name in shown["software"]}
    assert names == {one.stack for one in found}


@pytest.fixture(scope="module")
def found(points):
    return improve(load("kimi-k2-256xh800", SMALL), pool=PoolChoice(jobs=1), folder=points)


def test_the_result_offers_edits_that_make_the_step_shorter(opened, monkeypatch, found):
    few = "train.global_batch=128seq"
    app = opened(f"{FULL};{few}", page="result")
    assert "beside computing" in words(app)
    assert any(one.label == "Try edits" for one in app.button)
    monkeypatch.setattr("twin.explore.search.improve.improving", lambda *_, **__: iter([found]))
    better(BetterAsked(Question(FULL, None, (few,), stamp())), lambda _: None)
    checked(app.run())
    assert not any(one.label == "Try edits" for one in app.button)
    assert "faster" in words(app)
    (losses,) = (one.value for one in app.table if "Loss" in one.value.columns)
    assert any(" with " in cell for cell in losses["With the best edit"])
    number, order = next(
        (number, one.edit.overrides["parallel.schedule"])
        for number, one in enumerate(found.offered)
        if "parallel.schedule" in one.edit.overrides
    )
    (button,) = (one for one in app.button if one.key == f"better {number}")
    app = checked(button.click().run())
    assert f"parallel.schedule={written(order)}" in (plans(app) or [""])[0]


def test_result_and_explore_search_a_plan_once(opened, monkeypatch, found):
    """Whichever page begins the search, the other shows it, under way and done."""
    few = "train.global_batch=192seq"
    began = []
    monkeypatch.setattr("twin.ui.background.Worker.perform", _here)
    monkeypatch.setattr(
        "twin.explore.search.improve.improving",
        lambda *_, **__: iter([began.append(few) or _early(found), found]),
    )
    app = opened(f"{FULL};{few}", page="result")
    (button,) = (one for one in app.button if one.label == "Try edits")
    checked(button.click().run())
    app = opened(f"{FULL};{few}", page="explore", section="better-plan")
    assert "faster: a step takes" in words(app)
    assert not any(one.label == "Find a better plan" for one in app.button)
    assert began == [few]


def _early(found):
    """What was known first."""
    return replace(found, tried=found.tried[-1:], pairs=(), milestones=found.milestones[:1])


def _here(_worker, work, arguments, note):
    return work(*arguments, note)


def test_a_search_for_a_better_plan_is_kept_and_its_best_is_used_with_one_click(
    opened, monkeypatch, found
):
    monkeypatch.setattr(
        "twin.explore.search.improve.improving", lambda *_, **__: iter([_early(found), found])
    )
    asked = BetterAsked(Question(FULL, None, (), stamp()))
    history = better(asked, lambda _: None)
    assert isinstance(history, PlanHistory)
    assert found_before(asked) == history
    assert [one.name for one in history.plans] == ["as written", "orders of passes"]
    assert history.plans[-1].step_seconds == found.best.step_ns / 1e9
    app = opened(FULL, page="explore", section="better-plan")
    (button,) = (one for one in app.button if one.label == "Use this plan")
    app = checked(button.click().run())
    path, value = next(iter(history.plans[-1].overrides.items()))
    assert f"{path}={value}" in (plans(app) or [""])[0]
