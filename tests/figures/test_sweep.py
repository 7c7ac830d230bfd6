"""A sweep as a picture: what fits has its figure, what does not says so."""

from __future__ import annotations

from dataclasses import replace

from twin.figures.cost import SweepMark, one_field, two_fields
from twin.figures.plotly import plain
from twin.spec.kpis import KPIS

STEP = KPIS[0]
FITS, ALSO = SweepMark(("8",), 20.0, "20 s", True, ""), SweepMark(("16",), 18.0, "18 s", True, "")
LARGE = SweepMark(("4",), 25.0, "25 s", False, "stage 0 is 3 GiB over")
NEVER = SweepMark(("7",), None, "", False, "TW102 not whole")


def test_along_one_field_what_fits_is_a_line_and_the_rest_is_grey_with_its_reason() -> None:
    picture = one_field((LARGE, NEVER, FITS, ALSO), "parallel.pipeline", STEP, "light")
    line, *dots = plain(picture.figure)["data"]
    assert line["y"] == [None, None, 20.0, 18.0]
    assert [one["name"] for one in dots] == [
        "Fits", "Does not fit: its value if it did", "Cannot run"
    ]  # fmt: skip
    assert "3 GiB over" in dots[1]["customdata"][0][1]
    assert picture.title == "Step time is best at 16: 18 s; worst at 8: 20 s"
    assert [row["Fits"] for row in picture.table] == ["does not fit", "cannot run", "fits", "fits"]


def test_over_two_fields_cells_that_cannot_run_are_empty_and_crossed() -> None:
    values = (("8", "1"), ("8", "2"), ("16", "1"), ("16", "2"))
    points = zip(values, (FITS, LARGE, ALSO, NEVER), strict=True)
    answers = [replace(one, values=pair) for pair, one in points]
    drawn = plain(two_fields(answers, ("a", "b"), STEP, "dark").figure)
    (cells,) = drawn["data"]
    assert cells["z"] == [[20.0, None], [18.0, None]]
    assert cells["zmin"] < 18.0
    assert [note["text"] for note in drawn["layout"]["annotations"]] == [
        "✕ does not fit", "✕ cannot run"
    ]  # fmt: skip


def test_of_points_none_of_which_fits_none_is_called_best() -> None:
    assert one_field((LARGE, NEVER), "a.b", STEP, "light").title == "None of 2 points fits"
