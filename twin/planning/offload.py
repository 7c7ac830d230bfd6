"""Which activations wait in host memory for their backward pass, and from when to when.

Of a stage's ordered actions let F_i be the i-th forward and B_j the j-th backward. What F_i keeps
is copied to the host under F_{i+1}, and copied back from the beginning of B_{j-1} on, one backward
ahead of its own, B_j (Kimi K2 report, arXiv:2507.20534, section 2.4: a copy engine offloads what
the last micro-batch's forward kept and fetches ahead for the next backward). It goes at all only
where B_{j-1} comes later than F_{i+1}; else the two copies would chase each other. F_{i+2} waits
for the copy out, and B_j for the copy back, so that a slow link makes a step longer and never
holds more.

Left out: copies in pieces. A chunk's activations leave and come back whole: the device has all of
them until the last byte is out, and from the first byte back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from twin.arch.ops import Layer
from twin.planning.columns import columns
from twin.planning.footprint import kept_bytes
from twin.schedules.action import Action
from twin.spec.memory import MemorySpec


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


def offload_bytes(layers: Iterable[Layer], memory: MemorySpec) -> float:
    """Bytes of a chunk's activations of one micro-batch that go to the host and come back; none
    unless the memory policy says so. What the head keeps stays: its backward comes at once."""
    if "activations" not in memory.offload:
        return 0.0
    return sum(kept_bytes(layer, memory) for layer in layers if layer.kind != "head")
