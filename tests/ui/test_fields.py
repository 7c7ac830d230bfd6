"""An edit in the app is the same as an edit on the command line."""

import pytest

from twin.errors import TwinError
from twin.loading import load, scenario_hash
from twin.loading.files import shipped_scenarios
from twin.ui.fields import FIELDS, choices, faulty, listed, overrides, rows, written

K2 = "kimi-k2-256xh800"


@pytest.mark.parametrize("name", shipped_scenarios())
def test_writing_every_field_as_it_stands_changes_nothing(name):
    scenario = load(name)
    fields = written(scenario)
    again = load(name, [f"{path}={text}" for path, text in fields.items() if text])
    assert scenario_hash(again) == scenario_hash(scenario)


def test_fields_are_shown_as_a_planner_writes_them():
    fields = written(load(K2))
    assert fields["cluster.nodes"] == "32"
    assert fields["cluster.node.nic.bandwidth"] in ("400Gbps", "50GB/s")
    assert fields["memory.recompute"] == "[full]"
    assert fields["parallel.schedule.kind"] == "interleaved_1f1b"
    assert fields["cost.gpu_hour"] == "2USD"


def test_a_section_that_a_scenario_lacks_is_empty():
    assert written(load("gpt-175b-64xa100-full"))["cost.gpu_hour"] == ""


def test_only_what_was_edited_becomes_an_override():
    base = written(load(K2))
    edited = base | {"memory.recompute": "[]", "cluster.nodes": "64"}
    assert overrides(base, base) == ()
    assert overrides(base, edited) == ("cluster.nodes=64", "memory.recompute=[]")


def test_edits_reach_the_scenario():
    scenario = load(K2, overrides({}, {"cluster.node.nic.bandwidth": "200Gbps"}))
    assert scenario.cluster.node.nic.bandwidth == 25e9


@pytest.mark.parametrize("names", [[], ["full"], ["full", "attention_core"]])
def test_choices_survive_being_written(names):
    assert choices(listed(names)) == names


def test_every_field_has_a_label_of_its_own():
    assert len({field.label for field in FIELDS}) == len({field.path for field in FIELDS})


@pytest.mark.parametrize(
    ("edit", "label"),
    [
        ("cluster.node.nic.bandwidth=400 banana", "NIC per GPU"),
        ("parallel.schedule.kind=[", "Schedule"),
        ("train.global_batch=1.5GB", "Global batch"),
    ],
)
def test_what_is_wrong_is_headed_by_the_label_of_its_field(edit, label):
    edits = ("cluster.nodes=32", edit)
    with pytest.raises(TwinError) as error:
        load(K2, edits)
    assert [faulty(one, edits).startswith(f"**{label}**: ") for one in error.value.problems] == [
        True
    ]


def test_rows_hold_every_field_once_and_choices_alone():
    laid = rows(FIELDS)
    assert [field for row in laid for field in row] == list(FIELDS)
    assert all(len(row) == 1 for row in laid for field in row if field.options)
    assert max(len(row) for row in laid) == 2
