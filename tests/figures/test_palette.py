"""Colours are legible on both themes, and one meaning has one look."""

import tomllib
from itertools import combinations
from pathlib import Path

import pytest

from twin.figures.memory import MEANING as CATEGORIES
from twin.figures.palette import (
    BACKGROUND,
    INK,
    MEANINGS,
    SERIES,
    SYMBOLS,
    Theme,
    contrast,
    series,
    swatch,
)
from twin.figures.step import MEANING as CAUSES
from twin.figures.step import MEANING as LOSSES

THEMES: tuple[Theme, ...] = ("light", "dark")
TIMELINE = (
    "forward",
    "backward",
    "weight",
    "recompute",
    "optimizer",
    "tensor",
    "expert",
    "pipeline",
    "data",
)


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("meaning", MEANINGS)
def test_every_meaning_stands_out_from_the_background_by_its_fill_or_its_outline(meaning, theme):
    look = swatch(meaning, theme)
    background = BACKGROUND[theme]
    assert max(contrast(look.fill, background), contrast(look.line, background)) >= 3


@pytest.mark.parametrize("theme", THEMES)
def test_text_on_the_page_is_legible(theme):
    assert contrast(INK[theme], BACKGROUND[theme]) >= 7


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(
    "group",
    [TIMELINE, *(tuple(one.values()) for one in (CAUSES, CATEGORIES, LOSSES))],
)
def test_no_two_meanings_of_one_figure_look_the_same(group, theme):
    looks = [(swatch(one, theme).fill, swatch(one, theme).pattern) for one in group]
    assert len(set(looks)) == len(group)


@pytest.mark.parametrize("theme", THEMES)
def test_passes_differ_by_hue_alone_since_a_timeline_has_no_room_for_patterns(theme):
    passes = [swatch(one, theme).fill for one in TIMELINE]
    assert all(a != b for a, b in combinations(passes, 2))


@pytest.mark.parametrize("theme", THEMES)
def test_series_stand_out_and_no_two_of_forty_look_the_same(theme):
    looks = [series(place, theme) for place in range(len(SERIES) * len(SYMBOLS))]
    for look, _ in looks:
        assert (
            max(contrast(look.fill, BACKGROUND[theme]), contrast(look.line, BACKGROUND[theme])) >= 3
        )
    assert len({(look.fill, symbol) for look, symbol in looks}) == len(looks) == 40


def test_the_page_around_the_figures_has_the_background_they_were_checked_on():
    settings = tomllib.loads(Path(".streamlit/config.toml").read_text())
    for theme in THEMES:
        assert settings["theme"][theme]["backgroundColor"] == BACKGROUND[theme]
        assert settings["theme"][theme]["textColor"] == INK[theme]
