"""Which activations wait in host memory for their backward pass, and from when to when.

Of a stage's ordered actions let F_i be the i-th forward and B_j the j-th backward. What F_i keeps
is copied to the host under F_{i+1}, and copied back from the beginning of B_{j-1} on, one backward
ahead of its own, B_j (Kimi K2 report, arXiv:2507.20534, section 2.4: a copy engine offloads what
the last micro-batch's forward kept and fetches ahead for the next backward). It goes at all only
where B_{j-1} comes later than F_{i+1}; else the two copies would chase each other. F_{i+2} waits
for the copy out, and B_j for the copy back, so that a slow link makes a step longer and never
holds more.

Megatron-LM copies what each named module keeps behind its forward, and back one group ahead of its
backward (`fine_grained_activation_offload.py`): as many bytes.

Left out: copies in pieces. A chunk's activations leave and come back whole: the device has all of
them until the last byte is out, and from the first byte back.

What one rank updates at the end of a step, and how the part whose states are in host memory goes
through: in buckets, one part of the update behind the other.

Each bucket of states passes through the parts that its optimizer names (`twin.optimizers.Phase`):
copied up, updated, copied down. Buckets follow each other, so that a bucket is updated while the
next one comes up and the one before goes down, as in ZeRO-Infinity (Rajbhandari et al. 2021,
arXiv:2104.07857, section 6.2). No more buckets are under way than there are parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from twin.arch.ops import Layer, Weights
from twin.optimizers.base import Holders, Phase, Share
from twin.planning.columns import columns
from twin.planning.footprint import sent_by_op
from twin.planning.types import Chunk, Mesh
from twin.scenario import Scenario
from twin.schedules.base import Action


@dataclass(frozen=True, slots=True)
class Trip:
    """The way of one chunk's activations of one micro-batch, as places in the stage's order."""

    out: int
    """The forward under which they are copied out: on the host from its beginning."""
    gone: int
    """The action from whose beginning on the device is free of them; not before `back` where
    nothing waits for the copy out."""
    back: int
    """The backward under which they are copied back: on the device from its beginning, off the host
    at its end."""


def trips(actions: Sequence[Action]) -> dict[tuple[int, int], Trip]:
    """The trips in a stage's ordered actions, by chunk and micro-batch, as the forwards come."""
    found = columns(actions).trips
    ways = np.stack((found.forward, found.out, found.gone, found.back), axis=1)
    placed: list[list[int]] = ways.tolist()
    return {
        (actions[forward].chunk, actions[forward].microbatch): Trip(out, gone, back)
        for forward, out, gone, back in placed
    }


def offloaded(actions: Sequence[Action]) -> frozenset[tuple[int, int]]:
    """Chunk and micro-batch of the activations that wait in host memory."""
    return frozenset(trips(actions))


def offload_bytes(layers: Iterable[Layer]) -> float:
    """Bytes of a chunk's activations of one micro-batch that go to the host and come back; none
    unless their memory policy says so."""
    return sum(sum(sent_by_op(layer, layer.policy).values()) for layer in layers)


BUCKET: Final = 2.0**29
"""Most bytes that one copy of a bucket moves: 10 ms at 55 GB/s, so that neither the first and last
bucket, which nothing hides, nor the start of a copy weigh much. Ours: the K2 report gives none."""


def share_of(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk]) -> Share:
    """What one rank that holds these chunks updates."""
    layers = [layer for chunk in chunks for layer in chunk.layers]
    return Share(
        weights=sum((chunk.weights for chunk in chunks), Weights()),
        matrices=tuple(shape for layer in layers for shape in layer.matrices),
        dense=mesh.dense_replicas // scenario.parallel.shard_copies,
        expert=mesh.expert_replicas // scenario.parallel.shard_copies,
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
