"""A profile follows the pace of its machine: by made-up seconds, and on committed points."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from reference.measure import clock
from reference.measure.limits import fit_messages
from reference.measure.points import MESSAGE, MeasuredPoint, read_points
from reference.measure.retime import Retimed, at_pace, compare, serve
from tests.reference.measure.machines import CORE
from twin.loading import load_part

MEASURED = Path("scenarios/measured/epyc-zen5-2cores-torch2.13")


def test_a_groups_pace_is_the_median_over_its_cases() -> None:
    base = {"gemm": {"a": 1.0, "b": 2.0, "c": 4.0}, "host": {"norm": 5e-6}}
    now = {"gemm": {"a": 1.1, "b": 2.4, "c": 40.0}, "host": {"norm": 4e-6}}
    assert compare(now, base) == pytest.approx({"gemm": 1.2, "host": 0.8})


def test_every_point_lasts_longer_by_the_pace_of_its_group(tmp_path: Path) -> None:
    """Groups that were not timed again have the median of the paces: 1.5 of 1, 1.5 and 2."""
    paces = {"gemm": 2.0, "host": 1.0, "attention": 1.5}
    machine = replace(CORE, name="slower")
    at_pace(MEASURED, paces, tmp_path, machine, "kimi-k2-nano")
    before, after = read_points(MEASURED), read_points(tmp_path)
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        assert (one.group, one.op, one.shape) == (other.group, other.op, other.shape)
        pace = paces.get(one.group, 1.5)
        assert other.timing.median == pytest.approx(pace * one.timing.median, rel=1e-5)
        assert other.timing.samples == one.timing.samples


def test_the_parts_of_a_slower_machine_are_slower(tmp_path: Path) -> None:
    name, slower = MEASURED.name, replace(CORE, name="slower")
    even = {"gemm": 2.0, "grouped": 2.0, "bandwidth": 2.0, "host": 2.0}
    at_pace(MEASURED, even, tmp_path, slower, "kimi-k2-nano")
    was, now = (
        load_part("gpus", part, (folder,)).spec
        for part, folder in ((name, MEASURED), ("slower", tmp_path))
    )
    assert now.bf16_dense == pytest.approx(was.bf16_dense / 2, rel=1e-3)
    assert now.memory_bandwidth == pytest.approx(was.memory_bandwidth / 2, rel=1e-3)
    hosts = [
        load_part("software", part, (folder,)).spec.host
        for part, folder in ((name, MEASURED), ("slower", tmp_path))
    ]
    before, after = (cast("Any", host) for host in hosts)
    assert after.items["norm"] == pytest.approx(2 * before.items["norm"], rel=1e-3)
    assert after.message.piece == pytest.approx(2 * before.message.piece, rel=1e-2)


class Asked:
    """A profile whose pace is made up."""

    def __init__(self) -> None:
        self.written: list[tuple[Mapping[str, float], Path]] = []

    def paces(self) -> dict[str, float]:
        return {"gemm": 1.25}

    def write(self, paces: Mapping[str, float], place: Path) -> None:
        self.written.append((paces, place))


def test_each_line_has_an_answer() -> None:
    alone, told = Asked(), io.StringIO()
    lines = [{"time": "alone"}, {"write": "alone", "paces": {"gemm": 1.25}, "place": "here"}]
    asked = io.StringIO("\n".join(map(json.dumps, lines)))
    serve({"alone": cast("Retimed", alone)}, asked, told)
    answers = [json.loads(line) for line in told.getvalue().splitlines()]
    assert answers == [{"gemm": 1.25}, {"catalog": "here/catalog"}]
    assert alone.written == [({"gemm": 1.25}, Path("here"))]


def test_messages_are_fitted_on_the_pieces_of_their_links() -> None:
    """80 us and 25 us for each frame of 3,948 bytes; at 1 Gbps three are a piece."""
    found = [
        message(size, rate, 80e-6 + 25e-6 * pieces)
        for size, rate, pieces in (
            (1 << 16, 12.5e6, 17),
            (1 << 18, 12.5e6, 67),
            (1 << 16, 125e6, 6),
            (1 << 18, 125e6, 23),
        )
    ]
    assert fit_messages(found).values == pytest.approx((80e-6, 25e-6), rel=1e-6)


def message(size: int, rate: float, seconds: float) -> MeasuredPoint:
    shape = {"bytes": size, "ranks": 2, "rate": round(rate)}
    timing = clock.summary([seconds], 1)
    return MeasuredPoint("messages", MESSAGE, shape, "uint8", 0.0, float(size), 1, timing)


def test_the_committed_profile_knows_its_messages() -> None:
    found = [point for point in read_points(MEASURED) if point.op == MESSAGE]
    assert {point.shape["rate"] for point in found} >= {12_500_000, 125_000_000}
