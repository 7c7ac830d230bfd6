"""What a person waits for: CPU time of a warm process, best of several: machines are shared."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from twin.answers.nearest import nearest_fit
from twin.engine import lower, plan, simulate
from twin.loading import load
from twin.reports import report


def cpu_seconds(action: Callable[[int], object], times: int) -> float:
    """The shortest of several runs; each gets its number, so that none repeats another."""
    taken: list[float] = []
    for number in range(times):
        begin = time.process_time()
        action(number)
        taken.append(time.process_time() - begin)
    return min(taken)


@pytest.mark.benchmark
@pytest.mark.parametrize(("name", "most"), [("kimi-k2-2048xh800", 0.15), ("kimi-k2-256xh800", 0.3)])
def test_a_slider_is_answered_while_it_moves(name: str, most: float) -> None:
    def moved(number: int) -> object:
        planned = plan(load(name, [f"calibration.gemm={0.7 + number / 100}"]))
        return report(planned, simulate(lower(planned)))

    moved(29)
    seconds = cpu_seconds(moved, 8)
    print(f"{name}: {1000 * seconds:.0f} ms")
    assert seconds < most


@pytest.mark.benchmark
def test_the_nearest_fit_is_found_in_two_seconds() -> None:
    scenario = load("kimi-k2-256xh800", ["parallel.pipeline=8"])
    seconds = cpu_seconds(lambda _: nearest_fit(scenario), 3)
    print(f"nearest fit: {seconds:.2f} s")
    assert seconds < 2.0
