"""Cascades begin where the bar above ends and end where they should; titles say the finding."""

import pytest

from tests.figures.made import layout, memory_of, traces
from twin.answers.nearest import MemoryLever
from twin.explore.study.hidden import memory_levers
from twin.figures.charts import Rung, cascade
from twin.figures.memory import memory_map, peak_memory
from twin.figures.palette import swatch
from twin.figures.step import LOSS_MEANING, step_losses
from twin.reports.waterfall import LOSSES, Loss, LossKey, Waterfall

S = 10**9
LOST: tuple[tuple[LossKey, int], ...] = (("efficiency", 5 * S), ("bubble", S))
FALL = Waterfall(4 * S, tuple(Loss(key, *LOSSES[key], ns) for key, ns in LOST), 10 * S)
FULL = {"parameters": 40.0, "activations": 30.0}


def bars(figure):
    """Start and length of every bar by its row."""
    found = {}
    for trace in traces(figure):
        if trace.type == "bar":
            for row, start, size in zip(trace.y, trace.base, trace.x, strict=True):
                found[row] = (min(start, start + size), abs(size))
    return [found[row] for row in sorted(found)]


def test_every_loss_has_a_colour():
    assert set(LOSS_MEANING) == set(LOSSES)


def test_each_bar_begins_where_the_one_above_ends():
    drawn = bars(step_losses(FALL, "plan", "light").figure)
    assert drawn == [(0, 4), (4, 5), (9, 1), (0, 10)]


def test_the_title_says_how_far_from_the_step_losses_and_why():
    title = step_losses(FALL, "plan", "light").title
    assert title == (
        "plan: a step takes 2.50x its theoretical minimum; the largest loss is kernels below peak, "
        "50.0 % of the step"
    )


def test_the_table_ends_at_the_utilisation_that_is_achieved():
    table = step_losses(FALL, "plan", "light").table
    assert [row["MFU"] for row in table] == ["100 %", "44.4 %", "40.0 %", "40.0 %"]
    assert all(row["Why"] for row in table[:-1])


def test_a_loss_of_nearly_nothing_has_no_digits():
    fall = Waterfall(8 * S, (Loss("bubble", *LOSSES["bubble"], 2 * S - 90),
                             Loss("efficiency", *LOSSES["efficiency"], 90)), 10 * S)  # fmt: skip
    texts = [
        text
        for trace in traces(step_losses(fall, "plan", "light").figure)
        if trace.type == "bar"
        for text in trace.text
    ]
    assert "90 ns (under 0.01 %)" in texts


def test_a_gain_is_drawn_backwards():
    look = swatch("other", "light")
    rungs = [Rung("a", 0, 5, look, "", ""), Rung("b", 5, -2, look, "", "")]
    assert bars(cascade(rungs, "s", "light")) == [(0, 5), (3, 2)]


def test_the_text_of_a_bar_in_the_right_half_stands_left_of_it_away_from_the_capacity():
    memory = memory_of(FULL, capacity=80.0, reserve=5.0)
    picture = peak_memory(memory, {"up": 20 * 2.0**30, "down": 10 * 2.0**30}, "plan", "light")
    found = {
        row: (size < 0, trace.textposition)
        for trace in traces(picture.figure)
        if trace.type == "bar"
        for row, size in zip(trace.y, trace.x, strict=True)
    }
    assert [found[row] for row in sorted(found)] == [(False, "inside"), *[(True, "outside")] * 4]


def test_without_a_mark_every_text_stands_right_of_its_bar_and_the_chart_begins_at_zero():
    figure = step_losses(FALL, "plan", "light").figure.to_dict()
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    assert all(trace["textposition"] == "outside" for trace in bars)
    assert figure["layout"]["xaxis"]["range"][0] == 0


def test_a_figure_says_in_words_what_it_shows():
    picture = step_losses(FALL, "plan", "dark")
    assert picture.alt.startswith("plan: a step takes 2.50x its")
    assert picture.caption in picture.alt


def test_the_peak_is_stacked_up_to_capacity_with_activations_by_op():
    memory = memory_of(FULL, capacity=80.0, reserve=5.0)
    by_op = {"up": 20 * 2.0**30, "down": 10 * 2.0**30}
    picture = peak_memory(memory, by_op, "plan", "light")
    assert bars(picture.figure) == [(0, 40), (40, 20), (60, 10), (70, 5), (75, 5)]
    assert [row["Part"] for row in picture.table] == [
        "Parameters",
        "Kept by up",
        "Kept by down",
        "Reserve: context",
        "Free",
    ]
    assert "75 GiB of 80 GiB, the largest part for parameters (40 GiB)" in picture.title


def test_many_ops_become_one_bar_beyond_the_largest():
    by_op = {f"op{at}": 3 * 2.0**30 for at in range(10)}
    picture = peak_memory(memory_of(FULL), by_op, "plan", "light")
    parts = [row["Part"] for row in picture.table]
    assert parts.count("Kept by 4 others") == 1
    rest = next(row for row in picture.table if row["Part"] == "Kept by 4 others")
    assert rest["Takes"] == "12 GiB"


def test_what_does_not_fit_has_no_free_bar_and_passes_the_capacity():
    picture = peak_memory(memory_of({"parameters": 90.0}), {}, "plan", "light")
    assert "Free" not in [row["Part"] for row in picture.table]
    assert layout(picture.figure).shapes[0].x0 == 80.0
    start, size = bars(picture.figure)[-1]
    assert start + size > 80.0


def test_the_map_has_a_cell_per_stage_and_category():
    figure = memory_map(memory_of(FULL, {"parameters": 10.0}), "plan", "light").figure
    (cells,) = traces(figure)
    assert [list(row) for row in cells.z] == [[40.0, 30.0], [10.0, 0.0]]
    assert list(cells.y) == ["Stage 0", "Stage 1"]


@pytest.mark.parametrize(("fits", "words"), [(True, "1 of 1 single"), (False, "0 of 1 single")])
def test_levers_say_what_they_free_and_whether_that_is_enough(fits, words):
    memory = memory_of({"parameters": 90.0})
    lever = MemoryLever("memory.recompute", "[full]", 2.0**30, 20 * 2.0**30, fits, 1.5)
    picture = memory_levers([lever], memory, "plan", "light")
    assert words in picture.title
    assert "20 GiB" in picture.title
    assert picture.table[0]["Step"] == "+1.50 s"


def test_a_plan_without_levers_says_so():
    assert "no single change" in memory_levers([], memory_of(FULL), "plan", "light").title
