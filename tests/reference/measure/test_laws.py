"""The reference states the twin's laws once more; both statements must agree."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from reference.measure import fitting
from reference.measure.fitting import AttentionLaw, Ceilings, Collective, MatmulLaw
from reference.measure.groups import GROUPS
from tests.reference.measure.machines import runnable, setting, timed
from tests.reference.measure.twins import twin_seconds
from twin.collectives import all_to_all, ring
from twin.collectives.base import START_HOPS, started
from twin.hardware.matmul import briefly
from twin.loading import load_part
from twin.network.placement import Placement

GPU = load_part("gpus", "h100").spec
PROFILE = briefly(load_part("calibrations", "h100-hopper-bf16").spec)
REACHED = GPU.memory_bandwidth * PROFILE.bandwidth
CEILINGS = Ceilings(GPU.bf16_dense, REACHED, GPU.sms, PROFILE.launch)


@pytest.mark.parametrize("whole_tiles", [False, True])
def test_products_take_as_long_as_the_twin_says(whole_tiles: bool) -> None:
    assert PROFILE.matmuls is not None
    assert PROFILE.matmuls.bf16 is not None
    known = PROFILE.matmuls.bf16.model_copy(
        update={"whole_tiles": whole_tiles, "weight_gradient": 0.9, "group_launch": 3e-6}
    )
    profile = PROFILE.model_copy(
        update={"matmuls": PROFILE.matmuls.model_copy(update={"bf16": known})}
    )
    here = setting("cuda", "kimi-k2")
    cases = [c for c in runnable(GROUPS["gemm"](here)) if c.dtype == "bf16"]
    cases += [c for c in runnable(GROUPS["grouped"](here)) if c.op in ("grouped", "grouped_weight")]
    points = [timed("gemm", case, 1.0) for case in cases]
    law = MatmulLaw(known.efficiency, known.ramp, known.launch, known.grouped, 3e-6, 0.9)
    own = fitting.product_seconds(fitting.products(points, GPU.sms, whole_tiles), law, CEILINGS)
    assert {point.op for point in points} >= {"gemm", "gemm_input", "gemm_weight", "grouped_weight"}
    np.testing.assert_allclose(own, [twin_seconds(c, GPU, profile) for c in cases], rtol=1e-12)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_attention_takes_as_long_as_the_twin_says(direction: str) -> None:
    cases = [
        case
        for case in runnable(GROUPS["attention"](setting("cuda", "kimi-k2")))
        if case.op == f"attention_{direction}"
    ]
    own = {f"attention_{direction}_width": 37.0, f"attention_{direction}_launch": 8e-6}
    profile = PROFILE.model_copy(update=own)
    share = getattr(profile, f"attention_{direction}")
    ramp = getattr(profile, f"attention_{direction}_ramp")
    law = AttentionLaw(share, ramp, 37.0, 8e-6)
    points = [timed("attention", case, 1.0) for case in cases]
    found = fitting.attention_seconds(points, law, CEILINGS)
    np.testing.assert_allclose(found, [twin_seconds(c, GPU, profile) for c in cases], rtol=1e-12)


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("kind", get_args(Collective))
def test_collectives_send_as_many_bytes_and_hops_as_the_twin_says(
    kind: Collective, ranks: int
) -> None:
    algorithm = all_to_all.all_to_all if kind == "all_to_all" else getattr(ring, kind)
    traffic = started(algorithm(1e6, Placement(ranks, ranks)), 0.0)
    assert fitting.sent(kind, 1e6, ranks) == (
        pytest.approx(traffic.nvlink_bytes),
        traffic.nvlink_hops,
    )


def test_starting_a_collective_costs_the_twins_hops() -> None:
    assert fitting.START_HOPS == START_HOPS
