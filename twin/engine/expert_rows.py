"""What each expert rank has to do in each layer, where ranks are told apart.

Templates are made for the fullest rank of an expert group: its kernels, and its part of an
all-to-all. What another rank takes lies on the straight line through the mean rank and the fullest.
Its `excess` is 0 for the mean rank, 1 for the fullest, and below 0 for fewer rows than the mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twin.arch.ops import Layer, Op
from twin.collectives.traffic import Traffic
from twin.planning.experts import expert_spread, places
from twin.planning.types import Plan

Place = tuple[int, int]
"""A chunk, and a layer's place in it."""


@dataclass(frozen=True, slots=True)
class ExpertRows:
    """Of each layer with experts the excess of every rank of an expert group; how many times the
    mean rank's bytes the fullest has on NVLink and on its NIC; and ranks whose rows share NICs."""

    excess: Mapping[Place, NDArray[np.float64]]
    fullest: Mapping[Place, tuple[float, float]]
    per_node: int

    def later(self, chunk: int, parts: tuple[tuple[int, float], ...]) -> NDArray[np.float64]:
        """By rank, how much longer kernels take than on the mean rank; `parts` are layers, and by
        how much the fullest takes longer in each."""
        every = [ns * self.excess[chunk, layer] for layer, ns in parts]
        return np.sum(every, axis=0)

    def sent(self, flow: Traffic, place: Place, rank: int) -> Traffic:
        """A rank's part of the fullest one's traffic. As much arrives as is sent, so a rank with
        few rows has the mean rank's part: what it sends."""
        own = self.excess[place]
        node = rank // self.per_node * self.per_node
        nvlink, nic = self.fullest[place]
        on_nvlink = _part(nvlink, float(own[rank]))
        on_nic = _part(nic, float(own[node : node + self.per_node].mean()))
        return replace(
            flow,
            nvlink_bytes=flow.nvlink_bytes * on_nvlink,
            nic_bytes=flow.nic_bytes * on_nic,
            far_bytes=flow.far_bytes * on_nic,
        )


def _part(fullest: float, excess: float) -> float:
    return (1 + min(1.0, max(0.0, excess)) * (fullest - 1)) / fullest


def expert_rows(plan: Plan) -> ExpertRows | None:
    """The rows of every expert rank in each layer; None where all have as many, or chance deals
    them anew in each exchange."""
    scenario = plan.scenario
    moe, routing, ranks = scenario.model.moe, scenario.train.routing, scenario.parallel.expert
    if moe is None or ranks == 1 or routing.drawn or places(scenario) is not None:
        return None
    merged = expert_spread(scenario, plan.placements["expert"])
    excess: dict[Place, NDArray[np.float64]] = {}
    fullest: dict[Place, tuple[float, float]] = {}
    for place, layer, ordinal in _with_experts(plan):
        most = max(item.load for item in layer.items if isinstance(item, Op))
        if most > 1:
            loads = np.array(routing.loads_in(ordinal, moe.experts, ranks, moe.top_k))
            excess[place] = (loads - 1) / (most - 1)
            fullest[place] = (merged.fullest_rank, merged.fullest_node) if merged else (most, most)
    per_node = plan.placements["expert"].per_node if merged else 1
    return ExpertRows(excess, fullest, per_node) if excess else None


def _with_experts(plan: Plan) -> Iterator[tuple[Place, Layer, int]]:
    """The layers with experts: where each is, and its number among them. Copies of a layer have
    one number."""
    parallel = plan.scenario.parallel
    part_of = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).part_of
    order = sorted(plan.chunks, key=lambda chunk: part_of[chunk.index])
    ordinal, begins = 0, dict[int, int]()
    for chunk in order:
        number = begins.setdefault(part_of[chunk.index], ordinal)
        for place, layer in enumerate(chunk.layers):
            if any(
                isinstance(item, Op) and item.name.startswith("experts") for item in layer.items
            ):
                yield (chunk.index, place), layer, number
                number += 1
        ordinal = max(ordinal, number)
