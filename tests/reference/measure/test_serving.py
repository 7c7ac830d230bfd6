"""What an engine takes beside kernels: found again where it is known, and measured at all."""

from __future__ import annotations

import pytest
import torch

from reference.measure.case import Case
from reference.measure.ceilings import Best
from reference.measure.clock import summary
from reference.measure.groups.serving import CACHED, PARTS, cases
from reference.measure.point import Point
from reference.measure.serving import fit_serving
from tests.reference.measure.machines import setting

BEST = Best(1e11, 1e10, "", "")
STEP, SEQUENCE, PER_TENSOR = 1e-3, 5e-4, 4e-5


def point(op: str, shape: dict[str, int], seconds: float, size: float = 0.0) -> Point:
    return Point("serving", op, shape, "bf16", 0.0, size, 0, summary([seconds] * 3, 1))


def points() -> list[Point]:
    found: list[Point] = []
    for batch in (1, 4, 16, 64):
        shape, alone = {"sequences": batch, "cached": CACHED}, 0.01 + 1e-4 * batch
        found.append(point("engine_pass", shape, alone))
        found.append(point("engine_step", shape, alone + STEP + SEQUENCE * batch))
    size = 4e6
    copied = 2 * size / BEST.bandwidth
    took = {"sleep": 1e-3, "update": copied + 100 * PER_TENSOR, "wake": 2e-3}
    return found + [point(f"engine_{name}", {"tensors": 100}, took[name], size) for name in PARTS]


def test_what_steps_take_beside_their_passes_is_found_again() -> None:
    found = fit_serving(points(), BEST)
    assert found is not None
    assert found.step.value == pytest.approx(STEP, rel=1e-3)
    assert found.sequence.value == pytest.approx(SEQUENCE, rel=1e-3)
    assert found.per_tensor.value == pytest.approx(PER_TENSOR, rel=1e-6)
    assert (found.sleep.value, found.wake.value) == (1e-3, 2e-3)


def test_without_an_engine_nothing_is_said() -> None:
    assert fit_serving([], BEST) is None
    assert fit_serving([one for one in points() if one.op != "engine_wake"], BEST) is None


def test_steps_take_longer_than_their_passes_and_more_with_more_sequences() -> None:
    """The real engine, with few samples."""
    torch.set_num_threads(1)
    here = setting("cpu", "kimi-k2-nano", quick=True)
    made = [one for one in cases(here) if isinstance(one, Case)]
    took = {(one.op, one.shape.get("sequences", 0)): one.run(here).least for one in made}
    assert took["engine_step", 4] > took["engine_pass", 4] > took["engine_pass", 1] * 0.5
    assert all(took[f"engine_{part}", 0] > 0 for part in PARTS)
