"""The page New plan: the example at first sight, errors beside their fields, the first answer at
once, an own model without YAML, the decision, and the way to the plan."""

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.ui.conftest import checked
from tests.ui.test_pages import words
from twin.explore.search.decision_page import Decision, page
from twin.explore.search.new_plan import PlanQuestion, PlanRequest
from twin.ui.answers import Refusal
from twin.ui.question import CONFIG, OWN, question, request

CONFIGS = Path(__file__).parents[1] / "interop" / "importing" / "configs"
SMALL = {"model": "qwen3-4b", "gpu": "H800", "tokens": "1T", "gpus": "16", "price": "2USD"}


def field(app, label):
    (found,) = (one for one in app.text_input if label in one.label)
    return found


def test_the_first_sight_is_an_example_with_its_plans_and_needs_no_simulation(opened):
    begin = time.process_time()
    app = opened(page="new")
    assert app.title[0].value == "How many GPUs, how long, how much?"
    assert "Example answer" in [one.value for one in app.header]
    assert "GPUs finish in" in app.success[0].value
    assert "What must be true" in [one.value for one in app.header]
    assert time.process_time() - begin < 10
    assert not app.sidebar.children


def test_a_number_without_its_unit_is_told_beside_the_field_and_the_rest_stays(opened):
    app = opened(page="new")
    field(app, "Training tokens").set_value("8")
    checked(app.run())
    assert "`8` has no unit" in words(app)
    assert "Write `8T`" in words(app)
    field(app, "Training tokens").set_value("8T")
    checked(app.run())
    assert ":red[" not in words(app)
    assert "GPUs (" in words(app), "the first answer is there at once"


def test_labels_say_units_so_that_a_number_alone_is_enough():
    typed = {**SMALL, "target": "60", "budget": "20M", "price": "2", "gpus": "1,024"}
    asked = question(typed)
    assert isinstance(asked, PlanQuestion)
    assert (asked.target, asked.budget, asked.price, asked.gpus) == (
        "60d",
        "20MUSD",
        "2USD",
        "1024",
    )


def test_an_own_configuration_is_read_and_what_is_wrong_with_it_is_told():
    text = (CONFIGS / "qwen3-30b-a3b.json").read_text(encoding="utf-8")
    own = json.loads(text) | {"num_experts": 96}
    asked = question({**SMALL, OWN: "yes", CONFIG: json.dumps(own), "source": "mine.json"})
    assert isinstance(asked, PlanQuestion)
    found = request(asked)
    assert isinstance(found, PlanRequest)
    assert '"experts": 96' in asked.model
    assert found.scenario.name == "mine on h800"
    assert "mine.json" in asked.command
    wrong = question({**SMALL, OWN: "yes", CONFIG: "{}"})
    assert isinstance(wrong, Refusal)
    empty = question({**SMALL, OWN: "yes"})
    assert isinstance(empty, Refusal)
    assert "missing" in empty.text


def test_a_link_carries_the_question_and_the_search_ends_in_a_plan_that_opens(opened):
    app = opened(page="new", **{**SMALL, "stack": "megatron-core"})
    assert "qwen3-4b" in app.query_params["model"]
    assert "16 GPUs take about" in words(app)
    next(one for one in app.button if one.label == "Find the plan").click()
    deadline = time.monotonic() + 120
    while not app.success and time.monotonic() < deadline:
        checked(app.run())
        time.sleep(0.2)
    assert "16 GPUs finish in" in app.success[0].value
    assert "per GPU" in words(app)
    friend = opened(page="new", **{**SMALL, "stack": "megatron-core"})
    assert friend.success[0].value == app.success[0].value, "the link opens the kept decision"
    assert friend.header[0].value == "Answer", "before the question"
    next(one for one in app.button if one.label == "Open the plan").click()
    checked(app.run())
    assert "qwen3-4b on h800, 16 GPUs" in app.sidebar.selectbox[0].options


def test_a_decision_survives_json(opened):
    del opened
    stored = json.loads((Path(__file__).parents[2] / "twin" / "ui" / "example.json").read_text())
    one = Decision.read(stored["decision"])
    assert json.loads(json.dumps(asdict(one))) == stored["decision"]
    assert "GPUs finish in" in page(one)
    assert PlanQuestion(**stored["question"]).model in one.title


@pytest.mark.parametrize("name", ["price", "target"])
def test_what_is_not_said_is_no_problem(name):
    asked = question({**SMALL, name: ""})
    assert isinstance(asked, PlanQuestion)
    assert not isinstance(request(replace(asked, gpu="h800")), Refusal)
