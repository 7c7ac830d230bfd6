"""The editor's fields come from the schema: every value of every shipped scenario can be edited,
and what a widget shows is what a planner would write."""

import pytest

from twin.loading import load, rows, scenario_hash
from twin.loading.files import shipped_scenarios
from twin.reports import resolved
from twin.ui.editor import (
    as_text,
    at,
    choices,
    listed,
    schema,
    sections,
    typed,
    with_kinds,
    written,
)

K2 = "kimi-k2-256xh800"


def every_field(found):
    """The fields of all sections, those of catalog parts included."""
    return [field for one in found for part in (one, *one.details) for field in part.fields]


def fields(scenario):
    return {one.path: one for one in every_field(sections(schema(), resolved(scenario)))}


@pytest.fixture(scope="module")
def k2():
    return load(K2)


@pytest.mark.parametrize("name", shipped_scenarios())
def test_every_value_of_a_scenario_has_a_field(name):
    scenario = load(name)
    found = fields(scenario)
    missing = {
        row.path
        for row in rows(scenario)
        if not any(f"{row.path}.".startswith(f"{path}.") for path in found)
        and not any(path.startswith(f"{row.path}.") for path in found)  # an absent section
    }
    assert {path for path in missing if path.rpartition(".")[2] != "name"} == {"schema"}


@pytest.mark.parametrize("name", shipped_scenarios())
def test_what_the_fields_show_loads_to_the_same_scenario(name):
    scenario = load(name)
    plain = resolved(scenario)
    edits = {
        path: typed(one, written(plain, one))
        for path, one in fields(scenario).items()
        if at(plain, path.rpartition(".")[0] or path) is not None  # its section is there
    }
    parts = ("model", "calibration", "cluster.node", "cluster.node.gpu", "cluster.fabric")
    again = load(name, [f"{path}={text}" for path, text in edits.items() if path not in parts])
    assert scenario_hash(again) == scenario_hash(scenario)


def test_names_of_the_catalog_are_choices(k2):
    found = fields(k2)
    assert "h800-8gpu" in found["cluster.node"].options
    assert "deepseek-v3" in found["model"].options
    assert {"interleaved_1f1b", "gpipe"} <= set(found["parallel.schedule.kind"].options)


def test_the_settings_of_the_chosen_kind_are_shown(k2):
    plain = resolved(k2)
    assert "parallel.schedule.extra_warmup" in fields(k2)
    other = with_kinds(plain, {"parallel.schedule.kind": "gpipe"})
    paths = [one.path for one in every_field(sections(schema(), other))]
    assert "parallel.schedule.extra_warmup" not in paths
    assert plain["parallel"]["schedule"]["kind"] == "interleaved_1f1b", "the values are not touched"


def test_quantities_are_shown_with_their_units(k2):
    found, plain = fields(k2), resolved(k2)
    assert written(plain, found["cluster.node.nic.bandwidth"]) == "50GB/s"
    assert written(plain, found["train.global_batch"]) == "67108864tok"
    assert written(plain, found["memory.recompute"]) == "[norms, swiglu, mla_up]"
    assert written(plain, found["parallel.layers"]) == ""
    assert written(plain, found["cluster.node"]) == "h800-8gpu"


def test_every_field_says_what_it_means_and_has_a_label_of_its_own(k2):
    for section in sections(schema(), resolved(k2)):
        for part in (section, *section.details):
            assert all(one.help for one in part.fields), part.key
            assert len({one.label for one in part.fields}) == len(part.fields), part.key


@pytest.mark.parametrize("names", [[], ["full"], ["full", "attention_core"]])
def test_choices_survive_being_written(names):
    assert choices(listed(names)) == names


def test_a_field_that_was_emptied_holds_nothing(k2):
    found = fields(k2)
    assert typed(found["cost.gpu_hour"], " ") == "null"
    assert typed(found["memory.recompute"], "[]") == "[]"
    assert as_text(None) == ""
