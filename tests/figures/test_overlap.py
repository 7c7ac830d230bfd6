"""Overlap drawn: kernels beside what the links need, and what shows at each degree."""

from tests.figures.made import layout, traces
from tests.reports.runs import played
from twin.explore.study.hidden import LIMIT, HiddenExpert, Trial, hidden_degrees
from twin.figures.network import windows
from twin.reports.overlap import KIND_WORDS

SHOWN = Trial(64, 16, fits=False, step_seconds=1.0, ramp_seconds=0.04, steady_seconds=0.2)
HIDDEN = Trial(64, 8, fits=True, step_seconds=1.0, ramp_seconds=0.03, steady_seconds=0.01)
IMPOSSIBLE = Trial(64, 128, impossible="128 does not divide the 16 ranks of a stage")
FOUND = HiddenExpert((HIDDEN, SHOWN, IMPOSSIBLE))


def lengths(figure):
    """The sum of the bars of every row."""
    total = {}
    for trace in traces(figure):
        for row, size in zip(trace.y, trace.x, strict=True):
            total[row] = total.get(row, 0.0) + size
    return total


def test_a_layer_has_a_bar_of_kernels_and_one_for_each_link():
    _, _, answer = played("k2")
    drawn = lengths(windows(answer.overlap, "plan", "light").figure)
    for one in answer.overlap:
        assert round(drawn[f"{KIND_WORDS[one.kind]} layer, kernels"], 6) == round(
            1e3 * one.window.total, 6
        )
        if one.demand.alone:
            for link, words in (("nic", "RDMA"), ("nvlink", "NVLink")):
                size = drawn[f"{KIND_WORDS[one.kind]} layer, {words}"]
                assert round(size, 6) == round(1e3 * one.demand.links[link], 6)
    assert len(drawn) == len(answer.overlap) + 2, "only layers with experts ask for links"


def test_a_line_says_how_much_can_be_hidden():
    _, _, answer = played("k2")
    figure = windows(answer.overlap, "plan", "light").figure
    (line,) = layout(figure).shapes
    (asking,) = [one for one in answer.overlap if one.demand.alone]
    assert round(line.x0, 6) == round(1e3 * asking.window.hiding, 6)


def test_every_degree_that_ran_has_its_steady_and_its_ramp_part():
    picture = hidden_degrees(FOUND, "plan", "light")
    steady, ramp = traces(picture.figure)
    assert list(steady.y) == ["64 heads, expert 8", "64 heads, expert 16"]
    assert [list(steady.x), list(ramp.x)] == [[1.0, 20.0], [3.0, 4.0]]
    assert layout(picture.figure).shapes[0].x0 == 100 * LIMIT


def test_the_title_says_the_largest_hidden_degree_and_the_table_why_others_cannot_be():
    picture = hidden_degrees(FOUND, "plan", "light")
    assert picture.title.startswith("plan: with 64 heads expert parallelism stays hidden up to 8")
    assert picture.table[-1]["Steady"] == f"impossible: {IMPOSSIBLE.impossible}"
    assert picture.table[1]["Memory"] == "does not fit"
