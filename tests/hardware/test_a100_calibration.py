"""The A100 profile follows from one measured layer by hand arithmetic, repeated here."""

from __future__ import annotations

import pytest

from tests.hardware.catalog import leaf, plain, published
from twin.arch.ops import CollectiveKind
from twin.collectives.traffic import traffic
from twin.network.placement import Placement
from twin.spec.cluster import NodeSpec

PROFILE = "calibrations/a100-megatron"
NODE = NodeSpec.model_validate(plain("nodes/a100-80gb-8gpu-800g"))
T4 = published("a100-megatron.yaml")["korthikanti22-t4-layer-22b"]["metrics"]
BATCH, SEQUENCE, HIDDEN, HEADS, TENSOR = 4, 2048, 6144, 64, 8
ACTIVATION = 2.0 * BATCH * SEQUENCE * HIDDEN
"""Bytes of one 16-bit activation of the layer."""
SPLIT = 2 * 2 * ACTIVATION + 2 * 3.5 * ACTIVATION
"""Bytes that sequence parallelism splits: two layer norms (read, write), two dropout-adds (read
two, write one, and a mask)."""
SCORES = 2.0 * BATCH * HEADS / TENSOR * SEQUENCE**2
CORE = (1 + 2 + 2.5 + 1) * SCORES
"""Bytes of the attention core: scores written, softmax, dropout with its mask, scores read."""
GELU = 2 * 4 * ACTIVATION / TENSOR
KERNELS = 13
FLOP = 24.0 * BATCH * SEQUENCE * HIDDEN**2 / TENSOR


def collectives(*kinds: CollectiveKind) -> float:
    """Seconds of collectives on one activation over the eight GPUs of a node."""
    port = NODE.nvlink.bandwidth * NODE.nvlink.efficiency
    costs = [traffic(kind, ACTIVATION, Placement(TENSOR, NODE.gpus)) for kind in kinds]
    return sum(c.nvlink_bytes / port + c.nvlink_hops * NODE.nvlink.latency for c in costs)


REDUCES = collectives("all_reduce", "all_reduce")
SCATTERS = collectives("all_gather", "reduce_scatter", "all_gather", "reduce_scatter")


def test_bandwidth_is_what_sequence_parallelism_saves_of_the_forward_pass() -> None:
    saved = (T4["baseline"][0] - T4["sequence_parallel"][0]) * 1e-3 + (SCATTERS - REDUCES)
    share = SPLIT * 7 / 8 / saved / NODE.gpu.memory_bandwidth
    assert leaf(PROFILE, "bandwidth")["value"] == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize(
    ("column", "communication", "split"),
    [("baseline", REDUCES, SPLIT), ("sequence_parallel", SCATTERS, SPLIT / TENSOR)],
)
def test_gemm_is_what_remains_of_the_forward_pass(
    column: str, communication: float, split: float
) -> None:
    memory = NODE.gpu.memory_bandwidth * leaf(PROFILE, "bandwidth")["value"]
    other = communication + (split + CORE + GELU) / memory + KERNELS * 5e-6
    share = FLOP / (T4[column][0] * 1e-3 - other) / NODE.gpu.bf16_dense
    assert leaf(PROFILE, "gemm")["value"] == pytest.approx(share, abs=0.005)


def test_gemm_stays_below_the_best_product_ever_measured() -> None:
    best = published("a100-megatron.yaml")["mamf-bf16-a100-sxm"]["metrics"]
    ceiling = best["max_achievable_matmul_tflops"] * 1e12 / NODE.gpu.bf16_dense
    assert leaf(PROFILE, "gemm")["range"][1] == pytest.approx(ceiling, abs=0.005)


def test_the_backward_pass_comes_out_within_ten_percent_without_having_been_fitted() -> None:
    """Backward: twice the products, twice the core and the split bytes, the same collectives, twice
    the kernels."""
    memory = NODE.gpu.memory_bandwidth * leaf(PROFILE, "bandwidth")["value"]
    products = 2 * FLOP / (leaf(PROFILE, "gemm")["value"] * NODE.gpu.bf16_dense)
    rest = 2 * (SPLIT / TENSOR + CORE + GELU) / memory + 2 * KERNELS * 5e-6
    measured = T4["sequence_parallel"][1] * 1e-3
    assert products + rest + SCATTERS == pytest.approx(measured, rel=0.10)
