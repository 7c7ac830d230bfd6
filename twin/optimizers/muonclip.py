"""MuonClip: Muon for matrices, AdamW for embeddings, head and vectors, and QK-clip on the query and
key projections.

Sources: Kimi K2 report (arXiv:2507.20534), algorithm 1; Liu et al. 2025, "Muon is scalable for LLM
training" (arXiv:2502.16982), section 2.2 and algorithm 1. Distributed as there, under ZeRO-1:
momentum is updated on the local shard, gathered in bf16 over the replicas, every replica
orthogonalises every whole matrix by itself, keeps its slice of the result and updates its shard. So
the Newton-Schulz work does not shrink with replicas. Under tensor parallelism each rank
orthogonalises its own part of a matrix (blockwise); gathering the parts first would cost more. Left
out: QK-clip itself, which rescales a few rows of two projections, and then only on heads above the
threshold.
"""

from __future__ import annotations

from typing import Literal, final

from twin.arch.ops import Matrices, OpClass, Weights, Work
from twin.optimizers.base import Optimizer, OptimizerStep, adamw_update, dense_weights

NEWTON_SCHULZ_STEPS = 5
"""Iterations of the quintic (arXiv:2502.16982, section 2.2: 10 are more accurate and give no better
loss)."""
MATRIX_STATE_BYTES = 8.0
"""Per weight of a matrix: fp32 master and momentum."""
OTHER_STATE_BYTES = 12.0
"""Per other weight, as AdamW: fp32 master, momentum and variance."""
BF16_BYTES = 2.0
"""Momentum is gathered and orthogonalised in bf16 (algorithm 1)."""


@final
class MuonClip(Optimizer):
    """Orthogonalised momentum for matrices, AdamW for the rest."""

    kind: Literal["muonclip"] = "muonclip"

    def state_bytes(self, weights: Weights) -> tuple[float, float]:
        """8 bytes for each weight of a matrix, 12 for each other weight."""
        dense_matrices = weights.replicated_matrices + weights.tensor_matrices
        dense_other = dense_weights(weights) - dense_matrices
        expert_other = weights.expert - weights.expert_matrices
        return (
            MATRIX_STATE_BYTES * dense_matrices + OTHER_STATE_BYTES * dense_other,
            MATRIX_STATE_BYTES * weights.expert_matrices + OTHER_STATE_BYTES * expert_other,
        )

    def step(
        self,
        weights: Weights,
        dense_shards: int,
        expert_shards: int,
        matrices: tuple[Matrices, ...] = (),
    ) -> OptimizerStep:
        """Elementwise work of the local shard, Newton-Schulz on all matrices of the rank, momentum
        gathered in bf16."""
        assert_shapes_cover(weights, matrices)
        dense = weights.replicated_matrices + weights.tensor_matrices
        expert = weights.expert_matrices
        other = (dense_weights(weights) - dense) / dense_shards
        other += (weights.expert - expert) / expert_shards
        local = dense / dense_shards + expert / expert_shards
        elementwise = adamw_update(other) + momentum_and_update(local)
        works: list[tuple[OpClass, Work]] = [("bandwidth", elementwise)]
        for group in matrices:
            works.append(("bandwidth", normalisation(group)))
            works.append(("gemm", newton_schulz(group)))
        return OptimizerStep(
            works=tuple(works),
            gather_dense_bytes=BF16_BYTES * dense if dense_shards > 1 else 0.0,
            gather_expert_bytes=BF16_BYTES * expert if expert_shards > 1 else 0.0,
        )


def newton_schulz(matrices: Matrices) -> Work:
    """The five iterations on whole matrices: A = X X^T, B = b A + c A A, X = a X + B X, with X of n
    x m, n <= m.

    FLOP of one iteration: 2 n^2 m + 2 n^3 + 2 n^2 m (symmetry of A not used). HBM traffic in bf16:
    X read twice and written once, A and B written once and read once, A read once more. Three fused
    matrix products are three kernels.
    """
    n, m = sorted((matrices.rows, matrices.cols))
    steps = NEWTON_SCHULZ_STEPS * matrices.count
    return Work(
        flop=steps * (4.0 * n * n * m + 2.0 * n**3),
        bytes=steps * BF16_BYTES * (3.0 * n * m + 5.0 * n * n),
        kernels=3 * steps,
    )


def normalisation(matrices: Matrices) -> Work:
    """Division by the Frobenius norm before the iterations: read, then read and write, in bf16; two
    kernels each."""
    return Work(bytes=3.0 * BF16_BYTES * matrices.weights, kernels=2 * matrices.count)


def momentum_and_update(weights: float) -> Work:
    """Elementwise work on some weights of matrices, before and after the iterations: 26 bytes of
    HBM traffic per weight.

    Before: read gradient and momentum (2 x 4), write momentum (4) and its bf16 copy (2). After:
    read the orthogonal matrix (2) and the master (4), write master (4) and the bf16 parameter (2).
    Two fused kernels.
    """
    return Work(bytes=26.0 * weights, kernels=2 if weights else 0)


def assert_shapes_cover(weights: Weights, matrices: tuple[Matrices, ...]) -> None:
    """Fails when the shapes and the counts speak of different matrices: a mistake in the plan, not
    in the scenario."""
    for bucket in ("replicated", "tensor", "expert"):
        counted = getattr(weights, f"{bucket}_matrices")
        shaped = sum(group.weights for group in matrices if group.bucket == bucket)
        assert shaped == counted, f"{bucket}: shapes hold {shaped} weights, counts say {counted}"
