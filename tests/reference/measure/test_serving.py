"""What an engine takes beside kernels: found again where it is known, and measured at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from reference.measure.catalog import write_passes
from reference.measure.clock import summary
from reference.measure.groups.models import CACHED, PARTS, serving_cases
from reference.measure.limits import DeviceLimits, fit_engine, fit_links
from reference.measure.points import MeasuredPoint, TimedCase
from tests.reference.measure.machines import setting

BEST = DeviceLimits(1e11, 1e10, "", "")
LINKS = fit_links([], BEST, "least")
STEP, SEQUENCE, PER_TENSOR = 1e-3, 5e-4, 4e-5


def point(op: str, shape: dict[str, int], seconds: float, size: float = 0.0) -> MeasuredPoint:
    return MeasuredPoint("serving", op, shape, "bf16", 0.0, size, 0, summary([seconds] * 3, 1))


def points() -> list[MeasuredPoint]:
    found: list[MeasuredPoint] = []
    for batch in (1, 4, 16, 64):
        shape = {"sequences": batch, "cached": CACHED}
        found.append(point("engine_pass", shape, 0.01 + 1e-4 * batch))
        found.append(point("engine_host", shape, STEP + SEQUENCE * batch))
    size = 4e6
    copied = size / LINKS.pcie_rate.value + 4 * size / BEST.bandwidth
    took = {"sleep": 1e-3, "update": copied + 100 * PER_TENSOR, "wake": 2e-3}
    return found + [point(f"engine_{name}", {"tensors": 100}, took[name], size) for name in PARTS]


def test_what_steps_take_beside_their_passes_is_found_again() -> None:
    found = fit_engine(points(), BEST, LINKS)
    assert found is not None
    assert found.step.value == pytest.approx(STEP, rel=1e-3)
    assert found.sequence.value == pytest.approx(SEQUENCE, rel=1e-3)
    assert found.per_tensor.value == pytest.approx(PER_TENSOR, rel=1e-6)
    assert (found.sleep.value, found.wake.value) == (1e-3, 2e-3)


def test_without_an_engine_nothing_is_said() -> None:
    assert fit_engine([], BEST, LINKS) is None
    for op in ("engine_wake", "engine_host"):
        assert fit_engine([one for one in points() if one.op != op], BEST, LINKS) is None


@pytest.mark.slow
def test_the_engine_is_measured_and_its_passes_are_written_as_a_table(tmp_path: Path) -> None:
    """The real engine, with few samples: all is above nothing, and four draw longer than one."""
    torch.set_num_threads(1)
    here = setting("cpu", "kimi-k2-nano", quick=True)
    made = [one for one in serving_cases(here) if isinstance(one, TimedCase)]
    found = [one.measured("serving", here) for one in made]
    took = {(one.op, one.shape.get("sequences", 0)): one.timing.median for one in found}
    assert min(took.values()) > 0
    assert took["engine_host", 4] > took["engine_host", 1]
    assert all(("engine_" + part, 0) in took for part in PARTS)
    lines = write_passes(tmp_path, "kimi-k2-nano", found).read_text().splitlines()
    assert lines[0] == "name,scenario,decoding,cached,seconds"
    assert [line.split(",")[2] for line in lines[1:]] == ["1", "4"]
