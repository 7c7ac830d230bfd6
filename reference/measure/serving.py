"""What an inference engine and a colocated loop of this machine take beside kernels, from the group
`serving`: the host's part of a step, and of an update by tensors.

A step of B sequences lasts its pass and a + b B of the host; an update each tensor's part beside
the copies of its bytes. Medians, since a loop has no row of
calls to take the least of. Breaks for engines whose host works beside their kernels, as those of
GPUs do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reference.measure.ceilings import Best
from reference.measure.links import Links
from reference.measure.point import Point
from reference.measure.profile import Number
from reference.measure.solve import Array, Unknown, solve

MOST = 10.0
"""Seconds of anything here, at most."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Seconds: per step, per sequence of a step, per tensor of an update, until an engine sleeps,
    and until it is awake."""

    step: Number
    sequence: Number
    per_tensor: Number
    sleep: Number
    wake: Number


def fit_serving(points: Sequence[Point], best: Best, links: Links) -> Serving | None:
    """What the points say; None where the engine was not measured. The twin counts an update's
    bytes once over the host's link and twice within the device, reading and writing."""
    hosts = {p.shape["sequences"]: p.timing.median for p in points if p.op == "engine_host"}
    turns = {name: [p for p in points if p.op == f"engine_{name}"] for name in _TURN}
    if len(hosts) < 2 or not all(turns.values()):
        return None
    sleep, update, wake = (turns[name][0] for name in _TURN)
    step, sequence = _host(hosts)
    copied = update.bytes * (1 / links.pcie_rate.value + 4 / best.bandwidth)
    tensors = update.shape["tensors"]
    ends = [max(1e-9, (seconds - copied) / tensors) for seconds in _quartiles(update)]
    note = f"{tensors} tensors, {update.bytes:,.0f} bytes, {update.timing.samples} updates"
    return Serving(
        step=step,
        sequence=sequence,
        per_tensor=Number(ends[1], ends[0], ends[2], note, "measured", "seconds"),
        sleep=_seconds(sleep),
        wake=_seconds(wake),
    )


_TURN = ("sleep", "update", "wake")


def _quartiles(point: Point) -> tuple[float, float, float]:
    return point.timing.lower, point.timing.median, point.timing.upper


def _seconds(point: Point) -> Number:
    low, middle, high = _quartiles(point)
    note = f"median and quartiles of {point.timing.samples} turns"
    return Number(middle, low, high, note, "measured", "seconds")


def _host(hosts: Mapping[int, float]) -> tuple[Number, Number]:
    """Of a step, and of each of its sequences."""
    batches = np.array(sorted(hosts), dtype=np.float64)
    measured = np.array([hosts[int(batch)] for batch in batches])

    def predict(at: Array) -> Array:
        return at[0] + at[1] * batches

    start = float((measured / batches).min())
    found = solve(predict, measured, [Unknown(start, 1e-9, MOST), Unknown(start, 1e-9, MOST)])
    error = float(np.median(np.expm1(np.abs(found.residuals))))
    note = f"steps of {', '.join(f'{one:.0f}' for one in batches)} sequences less their passes, "
    note += f"median error {error:.0%}"
    step, sequence = (
        Number(value, max(0.0, value - 2 * wide), value + 2 * wide, note, "fitted", "seconds")
        for value, wide in zip(found.values, found.errors, strict=True)
    )
    return step, sequence
