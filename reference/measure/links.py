"""Links of a host, fitted on copies and collectives: a rate and a latency each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from reference.measure import laws
from reference.measure.ceilings import Best
from reference.measure.point import Point, Statistic
from reference.measure.profile import FEWEST, Number
from reference.measure.solve import Array, Solution, Unknown, solve

COPIES = ("host_copy", "host_to_device", "device_to_host")


@dataclass(frozen=True, slots=True)
class Links:
    """Between ranks of the host, between host and device, and the host's own memory; the network
    card, over which nothing was sent, is assumed to be as fast as the link between ranks."""

    rate: Number
    latency: Number
    pcie_rate: Number
    pcie_latency: Number
    dram: Number
    ranks: int
    statistic: Statistic

    @property
    def nic_rate(self) -> Number:
        """Of a network card."""
        return replace(self.rate, kind="assumed", note=_UNUSED)

    @property
    def nic_latency(self) -> Number:
        """Of a network card."""
        return replace(self.latency, kind="assumed", note=_UNUSED)


_UNUSED = "one host: nothing crosses it"
_ALONE = "one device: nothing crosses it"


def fit_links(points: Sequence[Point], best: Best, statistic: Statistic) -> Links:
    """What copies and collectives say; assumed where there were none."""
    copied, start = _copies(points, best, statistic)
    rate, latency, ranks = _ranks(points, copied, start, statistic)
    note = "as a device's memory: the host's is the same" if best.gpu is None else ""
    dram = Number(best.bandwidth, best.bandwidth, best.bandwidth, note, "measured", "bytes_per_s")
    return Links(rate, latency, copied, start, dram, ranks, statistic)


def _copies(points: Sequence[Point], best: Best, statistic: Statistic) -> tuple[Number, Number]:
    own = [point for point in points if point.op in COPIES]
    if len(own) < FEWEST:
        return _assumed(best.bandwidth / 2, 1e-6, "no copies were measured")
    size = np.array([point.bytes for point in own])
    solution = _rate_and_start(size, np.ones(len(own)), own, statistic)
    return _pair(solution, f"{len(own)} copies of {_sizes(own)}, both ways together")


def _ranks(
    points: Sequence[Point], copied: Number, start: Number, statistic: Statistic
) -> tuple[Number, Number, int]:
    own = [point for point in points if point.group == "collectives"]
    if len(own) < FEWEST:
        return *_assumed(copied.value, start.value, _ALONE), 1
    ranks = own[0].shape["ranks"]
    flows = [laws.sent(cast("Any", p.op), p.bytes, p.shape["ranks"]) for p in own]
    size, hops = (np.array(column, dtype=np.float64) for column in zip(*flows, strict=True))
    solution = _rate_and_start(size, hops, own, statistic)
    errors = np.expm1(np.abs(solution.residuals))
    note = (
        f"{len(own)} collectives of {_sizes(own)} over {ranks} ranks, median error "
        f"{np.median(errors):.0%}; the latency counts {laws.START_HOPS} hops to start"
    )
    return *_pair(solution, note), ranks


def _rate_and_start(
    size: Array, hops: Array, points: Sequence[Point], statistic: Statistic
) -> Solution:
    """Bytes per second and seconds per hop."""
    measured = np.array([point.timing.seconds(statistic) for point in points])

    def predict(at: Array) -> Array:
        return size / at[0] + hops * at[1]

    rate, hop = float((size / measured).max()), float((measured / hops).min())
    found = [Unknown(rate, 1e5, 1e15), Unknown(max(hop, 1e-9), 1e-9, 1.0)]
    return solve(predict, measured, found)


def _pair(solution: Solution, note: str) -> tuple[Number, Number]:
    rate, hop = (
        Number(value, max(least, value - 2 * error), value + 2 * error, note)
        for value, error, least in zip(solution.values, solution.errors, (1e5, 0.0), strict=True)
    )
    return replace(rate, dimension="bytes_per_s"), replace(hop, dimension="seconds")


def _assumed(rate: float, latency: float, note: str) -> tuple[Number, Number]:
    return (
        Number(rate, rate, rate, note, "assumed", "bytes_per_s"),
        Number(latency, latency, latency, note, "assumed", "seconds"),
    )


def _sizes(points: Sequence[Point]) -> str:
    sizes = [point.bytes for point in points]
    return f"{min(sizes):,.0f} to {max(sizes):,.0f} bytes"
