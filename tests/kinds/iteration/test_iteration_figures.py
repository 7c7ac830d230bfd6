"""Figures of an iteration: phases over time, what GPUs do, and scenarios side by side."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.kinds.iteration.iterations import APART, reported
from twin.kinds.iteration.figures import occupation, timeline, ways
from twin.kinds.iteration.report import IterationReport

SIDES = ["All GPUs", "GPUs of engines", "GPUs of the trainer"]


@cache
def report(*sets: str) -> IterationReport:
    return reported(*sets)


def drawn(picture: Any) -> Any:
    """The traces of a figure."""
    return picture.figure.data


def test_a_timeline_has_a_bar_for_every_phase() -> None:
    picture = timeline(report(*APART), "light")
    assert len(picture.table) == len(report(*APART).rounds[-1].spans)
    assert picture.title.startswith("Rollouts take")


def test_what_gpus_do_sums_to_all_of_it() -> None:
    rows = occupation(report(*APART), "light").table
    assert sum(float(row["Share"].removesuffix(" %")) for row in rows) == pytest.approx(
        100, abs=0.5
    )


def test_ways_are_compared_by_their_seconds() -> None:
    both = [report(), report(*APART)]
    picture = ways(both, "light")
    assert [row["Mode"] for row in picture.table] == ["colocated", "disaggregated"]


@pytest.mark.parametrize(
    ("sets", "sides"), [((), ["All GPUs"]), (APART, SIDES)], ids=["in turns", "apart"]
)
def test_colours_of_a_timeline_tell_whose_gpus_a_phase_has(
    sets: tuple[str, ...], sides: list[str]
) -> None:
    picture = timeline(report(*sets), "light")
    assert [one.name for one in drawn(picture)] == sides
    assert picture.figure.layout.showlegend == (len(sides) > 1)


def test_iterations_of_other_work_are_compared_by_tokens_per_second() -> None:
    """Half of the requests take less time, which says nothing for the plan."""
    few = replace(report("rl.rollout.requests=64"), name="few")
    every = report()
    assert (few.kpis["iteration_seconds"] or 0) < (every.kpis["iteration_seconds"] or 0)
    picture = ways([few, every], "light")
    rate = "trained_tokens_per_second_per_gpu"
    assert (every.kpis[rate] or 0) > (few.kpis[rate] or 0)
    assert picture.title.startswith(f"Most tokens per second: {every.name}")
    assert "tok/s/GPU" in drawn(picture)[0].text[0]


def test_what_does_not_fit_is_not_the_shortest() -> None:
    full = replace(report(), fits=False)
    picture = ways([full, report(*APART)], "light")
    assert picture.title.startswith("Shortest: Disaggregated")
    assert drawn(picture)[0].text[0].endswith(", does not fit")


def test_scenarios_of_one_kind_are_called_by_their_names() -> None:
    other = replace(report(), name="another")
    assert [one.name for one in drawn(ways([report(), other], "light"))] == [
        report().name,
        "another",
    ]
