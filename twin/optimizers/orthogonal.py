"""What optimizers that orthogonalise the momentum of matrices have in common.

Sources: Jordan et al. 2024, "Muon"; Liu et al. 2025, "Muon is scalable for LLM training"
(arXiv:2502.16982), section 2.2 and algorithm 1. Matrices are moved by Muon, embeddings, head and
vectors by AdamW. Under tensor parallelism each rank orthogonalises its own part of a matrix
(blockwise); gathering the parts first would cost more.

Newton-Schulz needs whole matrices, while ZeRO cuts their momentum:

- `replicated`: momentum is all-gathered in bf16, every replica orthogonalises every matrix and
  keeps its slice of the result. Moonlight's algorithm 1, read for the worst case: a replica may
  skip matrices of which it has no slice, and then does less.
- `partitioned`: each matrix has one owner among the replicas, which gets its momentum from all of
  them by an all-to-all, orthogonalises it, and sends the slices of the result back the same way.
  Without ZeRO every replica has the momentum, and the owners' results are all-gathered instead. As
  Microsoft's `dion` does for Muon (Ahn et al. 2025, arXiv:2504.05295). Owners are chosen by work;
  the busiest is what a step waits for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heapreplace
from math import ceil
from typing import Literal

from twin.arch.ops import Bucket, Matrices, OpClass, Weights, Work
from twin.optimizers.base import (
    GRADIENT_BYTES,
    Holders,
    Maxima,
    Optimizer,
    OptimizerStep,
    Phase,
    Sent,
    Share,
    adamw_on_host,
    adamw_update,
    dense_weights,
)

NEWTON_SCHULZ_STEPS = 5
"""Iterations of the quintic (arXiv:2502.16982, section 2.2: 10 are more accurate and give no better
loss)."""
MATRIX_STATE_BYTES = 8.0
"""Per weight of a matrix: fp32 master and momentum."""
OTHER_STATE_BYTES = 12.0
"""Per other weight, as AdamW: fp32 master, momentum and variance."""
BATCH_WEIGHTS = 1 << 26
"""Most weights in one batched matrix product. Matrices of one shape go through Newton-Schulz
together up to here, as in the reference trainer (`reference.optim.blocks.SHARED_WEIGHTS`) and in
Microsoft's `dion`; beyond it a launch is nothing beside the product. OURS."""
BF16_BYTES = 2.0
"""Momentum travels and is orthogonalised in bf16 (arXiv:2502.16982, algorithm 1)."""

_HOLDERS: dict[Holders, tuple[Bucket, ...]] = {
    "dense": ("replicated", "tensor"),
    "expert": ("expert",),
}


class Orthogonal(Optimizer):
    """Orthogonalised momentum for matrices, AdamW for the rest."""

    newton_schulz: Literal["replicated", "partitioned"] = "replicated"
    """who orthogonalises a matrix: every rank that holds it, or one of them"""

    def state_bytes(self, weights: Weights) -> tuple[float, float]:
        """8 bytes for each weight of a matrix, 12 for each other weight."""
        dense, expert = _matrix_weights(weights)
        return (
            MATRIX_STATE_BYTES * dense + OTHER_STATE_BYTES * (dense_weights(weights) - dense),
            MATRIX_STATE_BYTES * expert + OTHER_STATE_BYTES * (weights.expert - expert),
        )

    def step(self, share: Share) -> OptimizerStep:
        """Elementwise work of the local shard, Newton-Schulz on the matrices that this rank
        orthogonalises, and how their momentum and the result travel."""
        assert_shapes_cover(share.weights, share.matrices)
        dense, expert = _matrix_weights(share.weights)
        local = share.local(dense, expert)
        elementwise = adamw_update(share.learned - local) + momentum_and_update(local)
        works: list[tuple[OpClass, Work]] = [("update", elementwise)]
        works += self._products(share)
        clip, maxima = self.clip(share)
        if clip.bytes:
            works.append(("update", clip))
        before, after = self._travel(share)
        return OptimizerStep(tuple(works), before, after, maxima)

    def on_host(self, share: Share) -> tuple[Phase, ...]:
        """Momentum is updated on the host and sent up in bf16 (2 bytes), orthogonalised on the
        device, and the result goes down (2) to where the masters are; the rest is AdamW's.

        Host memory carries for each weight of a matrix 14 + 12 bytes of `momentum_and_update` and
        the 4 + 2 + 2 + 2 that are copied.
        """
        local = share.local(*_matrix_weights(share.weights))
        rest = adamw_on_host(share.learned - local)
        down, host, up = (phase.bytes for phase in rest)
        clip, _ = self.clip(share)
        half = BF16_BYTES * local
        before, after = 14.0 * local, 12.0 * local
        parts = (
            Phase("to_host", GRADIENT_BYTES * local + down),
            Phase("host", before + GRADIENT_BYTES * local + half + host),
            Phase("from_host", half + up),
        )
        if not local:
            return parts
        return (
            *parts,
            Phase("device", works=self._products(share)),
            Phase("to_host", half),
            Phase("host", after + 2 * half + clip.bytes),
            Phase("from_host", half),
        )

    def clip(self, share: Share) -> tuple[Work, Maxima | None]:  # noqa: ARG002 (members may use it)
        """What follows the update: work, and the maxima that ranks have to agree on for it; nothing
        unless a member says otherwise."""
        return Work(), None

    def _products(self, share: Share) -> tuple[tuple[OpClass, Work], ...]:
        """The kernels of Newton-Schulz on a rank."""
        found: list[tuple[OpClass, Work]] = []
        for group in alike(self._orthogonalised(share)):
            found.append(("bandwidth", normalisation(group)))
            found.append(("gemm", newton_schulz(group)))
        return tuple(found)

    def _orthogonalised(self, share: Share) -> tuple[Matrices, ...]:
        if self.newton_schulz == "replicated":
            return share.matrices
        ranks: dict[Holders, int] = {"dense": share.dense, "expert": share.expert}
        return tuple(
            group
            for holders, buckets in _HOLDERS.items()
            for group in busiest((m for m in share.matrices if m.bucket in buckets), ranks[holders])
        )

    def _travel(self, share: Share) -> tuple[tuple[Sent, ...], tuple[Sent, ...]]:
        """Collectives before and after Newton-Schulz."""
        before: list[Sent] = []
        after: list[Sent] = []
        ranks: dict[Holders, int] = {"dense": share.dense, "expert": share.expert}
        counts = dict(zip(ranks, _matrix_weights(share.weights), strict=True))
        for holders, shards in ranks.items():
            size = BF16_BYTES * counts[holders]
            if shards == 1 or size == 0:
                continue
            if self.newton_schulz == "replicated":
                if share.sharded:
                    before.append(Sent("momentum_gather", "all_gather", size, holders))
            elif share.sharded:
                before.append(Sent("momentum_to_owners", "all_to_all", size / shards, holders))
                after.append(Sent("update_from_owners", "all_to_all", size / shards, holders))
            else:
                after.append(Sent("update_gather", "all_gather", size, holders))
        return tuple(before), tuple(after)


def alike(matrices: Iterable[Matrices]) -> tuple[Matrices, ...]:
    """The same matrices, those of one shape in one group: of all layers of a rank, dense and expert
    ones apart, whose states may be in different places."""
    counts: dict[tuple[Bucket, int, int], int] = {}
    for group in matrices:
        kind = group.bucket, group.rows, group.cols
        counts[kind] = counts.get(kind, 0) + group.count
    return tuple(
        Matrices(bucket, count, rows, cols) for (bucket, rows, cols), count in counts.items()
    )


def calls(matrices: Matrices) -> int:
    """How many batched products it takes to go through a group once."""
    each = max(1, BATCH_WEIGHTS // (matrices.rows * matrices.cols))
    return ceil(matrices.count / each)


def busiest(matrices: Iterable[Matrices], owners: int) -> tuple[Matrices, ...]:
    """What the owner with most work orthogonalises when each matrix, largest first, goes to the
    owner with least."""
    by_size = sorted(matrices, key=lambda group: newton_schulz(group).flop / group.count)
    shares = [(0.0, owner) for owner in range(owners)]
    heapify(shares)
    held: list[dict[int, int]] = [{} for _ in shares]
    for index, group in reversed(list(enumerate(by_size))):
        each, rest = divmod(group.count, owners)
        one = newton_schulz(replace(group, count=1)).flop
        # All get as many; only what is left over makes a difference.
        for owner in range(owners if each else 0):
            held[owner][index] = each
        for _ in range(rest):
            work, owner = shares[0]
            held[owner][index] = held[owner].get(index, 0) + 1
            heapreplace(shares, (work + one, owner))
    most = max(shares)[1]
    return tuple(replace(by_size[index], count=count) for index, count in held[most].items())


def newton_schulz(matrices: Matrices) -> Work:
    """The five iterations on whole matrices: A = X X^T, B = b A + c A A, X = a X + B X, with X of n
    x m, n <= m.

    FLOP of one iteration: 2 n^2 m + 2 n^3 + 2 n^2 m (symmetry of A not used). HBM traffic in bf16:
    X read twice and written once, A and B written once and read once, A read once more. Three fused
    matrix products are three kernels, for as many matrices as go through together (`calls`).
    """
    n, m = sorted((matrices.rows, matrices.cols))
    rounds = NEWTON_SCHULZ_STEPS * matrices.count
    return Work(
        flop=rounds * (4.0 * n * n * m + 2.0 * n**3),
        bytes=rounds * BF16_BYTES * (3.0 * n * m + 5.0 * n * n),
        kernels=3 * NEWTON_SCHULZ_STEPS * calls(matrices),
    )


def normalisation(matrices: Matrices) -> Work:
    """Division by the Frobenius norm before the iterations: read, then read and write, in bf16; two
    kernels for as many matrices as go through together."""
    return Work(bytes=3.0 * BF16_BYTES * matrices.weights, kernels=2 * calls(matrices))


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


def _matrix_weights(weights: Weights) -> tuple[int, int]:
    """Dense and expert weights of matrices."""
    return weights.replicated_matrices + weights.tensor_matrices, weights.expert_matrices
