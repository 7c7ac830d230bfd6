"""Pictures as plotly takes them."""

from __future__ import annotations

import os
from itertools import pairwise
from math import log10
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.studies import figure
from reference.studies.figure import THEMES, Curve, Figure, Panel, apart, missing, plotly_json

STEPS = (1, 2, 3)
PICTURE = Figure(
    "What was found",
    "How to read it",
    "Step",
    (
        Panel(
            "Logit",
            (Curve(STEPS, (1, 10, 1000), "vermilion", "Muon"), Curve(STEPS, (1, 9, 10), "blue")),
            log=True,
            level=(100, "threshold"),
        ),
        Panel("Loss", (Curve(STEPS, (3, 2, 1), "blue", "MuonClip"),)),
    ),
)


@given(st.lists(st.floats(0, 300), min_size=1, max_size=8), st.floats(1, 30))
def test_names_never_cover_each_other_and_keep_their_order(
    places: list[float], least: float
) -> None:
    moved = apart(places, least)
    ordered = [moved[index] for index in sorted(range(len(places)), key=lambda at: places[at])]
    assert all(b - a >= least - 1e-6 for a, b in pairwise(ordered))


def test_names_that_are_far_apart_stay_where_they_are() -> None:
    assert apart([10.0, 50.0, 90.0], 20) == [10, 50, 90]


@pytest.mark.parametrize("theme", THEMES)
def test_every_name_stands_at_the_end_of_its_curve(theme: figure.Theme) -> None:
    layout = plotly_json(PICTURE, theme)["layout"]
    notes = {one["text"]: one for one in layout["annotations"]}
    assert notes["Muon"]["y"] == pytest.approx(log10(1000))
    assert notes["threshold"]["y"] == pytest.approx(2)
    assert (notes["MuonClip"]["y"], notes["MuonClip"]["yref"]) == (1, "y2")
    assert "What was found" in layout["title"]["text"]


def test_panels_stand_below_each_other_without_overlap() -> None:
    layout = plotly_json(PICTURE, "light")["layout"]
    assert layout["yaxis"]["domain"][1] == 1
    assert layout["yaxis2"]["domain"][0] == pytest.approx(0)
    assert layout["yaxis2"]["domain"][1] < layout["yaxis"]["domain"][0]


@pytest.mark.slow
@pytest.mark.browser
def test_a_picture_is_drawn_light_and_dark(tmp_path: Path) -> None:
    if (lacking := missing()) and not os.environ.get("TWIN_REQUIRE_BROWSER"):
        pytest.skip(f"no {lacking}")
    names = figure.write(PICTURE, tmp_path, "picture")
    assert names == ["picture-light.png", "picture-dark.png"]
    light, dark = ((tmp_path / name).read_bytes() for name in names)
    assert light != dark
    for picture in (light, dark):
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
        assert (width, height) == (1920, 2 * plotly_json(PICTURE, "light")["layout"]["height"])


def test_a_picture_without_plotly_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure, "find_spec", lambda name: None if name == "plotly" else object())
    assert missing() == "plotly (extra `ui`)"


def test_a_picture_without_chromium_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(figure, "find_spec", lambda _: object())
    monkeypatch.setenv("TWIN_CHROMIUM", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", "")
    assert missing().startswith("Chromium")
