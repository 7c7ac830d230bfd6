"""Memory bars end where the ledger says, and what is over budget says so in words."""

import pytest

from tests.figures.made import layout, memory_of, traces
from tests.reports.runs import played
from twin.figures.memory import host_memory, stage_memory
from twin.figures.palette import ALARM

GIB = 2.0**30
FULL = {"parameters": 40.0, "gradients": 20.0, "activations": 30.0}
HALF = {"parameters": 20.0, "gradients": 10.0, "activations": 10.0}


def test_categories_of_a_stage_sum_to_its_peak():
    memory = memory_of(HALF, FULL)
    figure = stage_memory(memory, "plan", "light").figure
    for at, stage in enumerate(memory.stages):
        assert sum(trace.x[at] for trace in traces(figure)) == pytest.approx(stage.peak_bytes / GIB)


def test_lines_stand_at_budget_and_capacity():
    figure = stage_memory(memory_of(HALF, capacity=80.0, reserve=5.0), "plan", "light").figure
    assert [line.x0 for line in layout(figure).shapes] == [75.0, 80.0]
    labels = [note.text for note in layout(figure).annotations]
    assert labels == ["budget 75 GiB", "capacity 80 GiB"]


def test_a_stage_over_budget_says_by_how_much_and_others_do_not():
    figure = stage_memory(memory_of(HALF, FULL), "plan", "light").figure
    fitting, over = traces(figure)[0].y
    assert fitting == "Stage 0"
    assert "Stage 1: 15 GiB over" in over
    assert ALARM["light"] in over


@pytest.mark.parametrize(
    ("stages", "finding"),
    [
        ((HALF, FULL), "1 of 2 stages are over budget, stage 1 by 15 GiB"),
        ((HALF, HALF), "fits, with 35 GiB to spare on stage 0"),
    ],
)
def test_the_title_states_the_finding(stages, finding):
    assert finding in stage_memory(memory_of(*stages), "plan", "light").title


def test_the_axis_reaches_past_the_largest_bar():
    figure = stage_memory(memory_of({"parameters": 150.0}), "plan", "light").figure
    assert layout(figure).xaxis.range[1] > 150.0


def test_a_category_that_nobody_has_is_not_drawn():
    figure = stage_memory(memory_of({"parameters": 1.0, "logits": 0.0}), "plan", "light").figure
    assert [trace.name for trace in traces(figure)] == ["Parameters"]


def test_figures_side_by_side_can_share_a_scale():
    small, large = memory_of(HALF), memory_of({"parameters": 150.0})
    reach = large.peak.peak_bytes
    ranges = [
        layout(stage_memory(memory, "plan", "light", reach).figure).xaxis.range
        for memory in (small, large)
    ]
    assert ranges[0] == ranges[1]


def test_the_legend_has_room_for_more_rows_where_labels_leave_less_beside_them():
    names = ("optimizer_dense", "optimizer_expert", "pipeline_buffers", "working_set")
    fitting, over = (
        stage_memory(memory_of(dict.fromkeys(names, gib)), "plan", "light").figure
        for gib in (10.0, 23.5)
    )
    assert layout(over).margin.t > layout(fitting).margin.t


def test_the_hosts_bars_are_what_a_gpu_of_each_stage_keeps_there():
    memory = played("offload")[2].memory
    picture = host_memory(memory, "plan", "light")
    bars = traces(picture.figure)
    for at, stage in enumerate(memory.stages):
        assert sum(bar.x[at] for bar in bars) == pytest.approx(sum(stage.host.values()) / 2**30)
    assert "in its" in picture.title
    assert all("Activations kept before offload" in row for row in picture.table)
