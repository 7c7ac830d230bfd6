"""What one rank updates at the end of a step, and how the part whose states are in host memory goes
through: in buckets, one part of the update behind the other.

Each bucket of states passes through the parts that its optimizer names (`twin.optimizers.Phase`):
copied up, updated, copied down. Buckets follow each other, so that a bucket is updated while the
next one comes up and the one before goes down, as in ZeRO-Infinity (Rajbhandari et al. 2021,
arXiv:2104.07857, section 6.2). No more buckets are under way than there are parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from twin.arch.ops import Weights
from twin.optimizers import Holders, Phase, Share
from twin.planning.types import Chunk, Mesh
from twin.scenario import Scenario

BUCKET: Final = 2.0**29
"""Most bytes that one copy of a bucket moves: 10 ms at 55 GB/s, so that neither the first and last
bucket, which nothing hides, nor the start of a copy weigh much. Ours: the K2 report gives none."""


def share_of(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk]) -> Share:
    """What one rank that holds these chunks updates."""
    layers = [layer for chunk in chunks for layer in chunk.layers]
    return Share(
        weights=sum((chunk.weights for chunk in chunks), Weights()),
        matrices=tuple(shape for layer in layers for shape in layer.matrices),
        dense=mesh.dense_replicas,
        expert=mesh.expert_replicas,
        sharded=scenario.parallel.zero >= 1,
        attentions=sum(1 for layer in layers if layer.heads),
        heads=sum(layer.heads for layer in layers),
        query_key=sum(layer.query_key for layer in layers),
    )


def on_device(scenario: Scenario, share: Share) -> Share:
    """The part whose states are in device memory."""
    everything: frozenset[Holders] = frozenset(("dense", "expert"))
    return share.only(everything - scenario.memory.states_on_host)


def host_phases(scenario: Scenario, share: Share) -> tuple[Phase, ...]:
    """The parts of the update of what is in host memory, over all buckets; none without."""
    memory, optimizer = scenario.memory, scenario.train.optimizer
    away = share.only(memory.states_on_host)
    if not away.learned:
        return ()
    if memory.optimizer_update == "host":
        return optimizer.on_host(away)
    return optimizer.through_device(away)


def buckets(phases: Sequence[Phase]) -> int:
    """Buckets of an update: as many as its largest copy needs."""
    return max(1, ceil(_largest_copy(phases) / BUCKET))


def staged_bytes(phases: Sequence[Phase]) -> float:
    """Bytes on the device of the buckets that are under way, at most one in each part."""
    number = buckets(phases)
    return min(len(phases), number) * _largest_copy(phases) / number


def _largest_copy(phases: Sequence[Phase]) -> float:
    return max((one.bytes for one in phases if one.place in ("to_host", "from_host")), default=0.0)
