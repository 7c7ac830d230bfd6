"""What a device and its links can do: peaks from the datasheet where the catalog knows the device,
otherwise the best that was measured; links fitted on copies and collectives; what an inference
engine and a colocated loop take beside kernels.

A step of B sequences lasts its pass and a + b B of the host; an update each tensor's part beside
the copies of its bytes. Medians, since a loop has no row of calls to take the least of. Breaks for
engines whose host works beside their kernels, as those of GPUs do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np

from reference.cluster.namespaces import BURST, PAYLOAD
from reference.machine import Machine
from reference.measure import fitting
from reference.measure.clock import Statistic
from reference.measure.fitting import FEWEST, Array, FittedLaw, Number, Unknown, exactly, fit
from reference.measure.points import BF16, MeasuredPoint
from twin.loading import catalog_parts, load_part

SAME: Final = 0.03
"""How far memory may lie from a catalog part's for it to be the same GPU: drivers differ by less
than 1 %, capacities on sale by at least 10 %."""
COPIES: Final = ("host_copy", "host_to_device", "device_to_host")
EAGER: Final = "fsdp2"
"""The catalog's software whose items say what calls take on an H100 server."""
_MOST: Final = 10.0
"""Seconds of a step or an update, at most."""
_UNUSED: Final = "one host: nothing crosses it"
_ALONE: Final = "one device: nothing crosses it"
_TURN: Final = ("sleep", "update", "wake")


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """FLOP/s and bytes/s at best, how each is known, and the catalog's GPU and node that this
    device is, if it is one."""

    peak: float
    bandwidth: float
    peak_note: str
    bandwidth_note: str
    gpu: str | None = None
    node: str | None = None


def device_limits(
    points: Sequence[MeasuredPoint], machine: Machine, statistic: Statistic
) -> DeviceLimits:
    """The limits of the machine. Without products or copies among the points they are zero."""
    gpu = known_gpu(machine)
    if gpu is not None:
        spec = load_part("gpus", gpu).spec
        note = f"datasheet, as in the catalog's {gpu}"
        return DeviceLimits(spec.bf16_dense, spec.memory_bandwidth, note, note, gpu, _node(gpu))
    products = [p for p in points if p.group in ("gemm", "grouped") and p.dtype == BF16]
    fastest = max(products, key=lambda p: p.rate(statistic), default=None)
    copies = [p for p in points if p.op in ("copy", "add", "accumulate")]
    longest = max((p.bytes for p in copies), default=0.0)
    moves = [p for p in copies if p.bytes >= longest / 4]
    quickest = max(moves, key=lambda p: p.bytes / p.timing.seconds(statistic), default=None)
    return DeviceLimits(
        fastest.rate(statistic) if fastest else 0.0,
        quickest.bytes / quickest.timing.seconds(statistic) if quickest else 0.0,
        f"no datasheet: the fastest bf16 product measured, {_shape(fastest)}",
        f"no datasheet: the fastest of the longest copies and sums measured, {_shape(quickest)}",
    )


def known_gpu(machine: Machine) -> str | None:
    """The catalog's name of a GPU with these words in its name, this memory and as many SMs."""
    if machine.kind != "cuda":
        return None
    words = set(_words(machine.device))
    found: list[tuple[int, str]] = []
    for name in catalog_parts("gpus"):
        spec = load_part("gpus", name).spec
        own = set(_words(spec.name))
        close = abs(machine.memory / spec.memory - 1) < SAME
        if own <= words and close and spec.sms == machine.units:
            found.append((len(own), name))
    return max(found)[1] if found else None


def _node(gpu: str) -> str | None:
    """The catalog's first node of that GPU."""
    name = load_part("gpus", gpu).spec.name
    nodes = catalog_parts("nodes")
    return next((n for n in nodes if load_part("nodes", n).spec.gpu.name == name), None)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _shape(point: MeasuredPoint | None) -> str:
    if point is None:
        return "none"
    return f"{point.op} of {' x '.join(f'{value:,}' for value in point.shape.values())}"


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
    slowness: Number | None = None
    """Time of a thread of the host over that of an H100 server's; None where it is the device."""

    @property
    def nic_rate(self) -> Number:
        """Of a network card."""
        return replace(self.rate, kind="assumed", note=_UNUSED)

    @property
    def nic_latency(self) -> Number:
        """Of a network card."""
        return replace(self.latency, kind="assumed", note=_UNUSED)


def fit_links(points: Sequence[MeasuredPoint], limits: DeviceLimits, statistic: Statistic) -> Links:
    """The links by copies and collectives; assumed where there were none."""
    copied, start = _copies(points, limits, statistic)
    rate, latency, ranks = _ranks(points, copied, start, statistic)
    note = "as a device's memory: the host's is the same" if limits.gpu is None else ""
    dram = exactly(limits.bandwidth, note, "bytes_per_s")
    return Links(rate, latency, copied, start, dram, ranks, statistic, _slowness(points))


def _slowness(points: Sequence[MeasuredPoint]) -> Number | None:
    """By one call of the framework, a linear layer, whose time on an H100 server is known. The twin
    knows no faster host."""
    own = next((p.timing for p in points if (p.group, p.op) == ("host", "linear")), None)
    host = load_part("software", EAGER).spec.host
    if own is None or host is None:
        return None
    known = host.items["linear"]
    low, middle, high = (max(1.0, each / known) for each in (own.lower, own.median, own.upper))
    note = f"a linear layer takes {own.median * 1e6:.3g} us, {known * 1e6:.3g} on an H100 server"
    return Number(middle, low, high, note, "measured")


def _copies(
    points: Sequence[MeasuredPoint], limits: DeviceLimits, statistic: Statistic
) -> tuple[Number, Number]:
    own = [point for point in points if point.op in COPIES]
    if len(own) < FEWEST:
        return _assumed(limits.bandwidth / 2, 1e-6, "no copies were measured")
    size = np.array([point.bytes for point in own])
    found = _rate_and_start(size, np.ones(len(own)), own, statistic)
    return _pair(found, f"{len(own)} copies of {_sizes(own)}, both ways together")


def _ranks(
    points: Sequence[MeasuredPoint], copied: Number, start: Number, statistic: Statistic
) -> tuple[Number, Number, int]:
    own = [point for point in points if point.group == "collectives"]
    if len(own) < FEWEST:
        return *_assumed(copied.value, start.value, _ALONE), 1
    ranks = own[0].shape["ranks"]
    flows = [fitting.sent(cast("Any", p.op), p.bytes, p.shape["ranks"]) for p in own]
    size, hops = (np.array(column, dtype=np.float64) for column in zip(*flows, strict=True))
    found = _rate_and_start(size, hops, own, statistic)
    note = (
        f"{len(own)} collectives of {_sizes(own)} over {ranks} ranks, median error "
        f"{found.residuals('').median:.0%}; the latency counts {fitting.START_HOPS} hops to start"
    )
    return *_pair(found, note), ranks


def _rate_and_start(
    size: Array, hops: Array, points: Sequence[MeasuredPoint], statistic: Statistic
) -> FittedLaw:
    """Bytes per second and seconds per hop."""
    measured = np.array([point.timing.seconds(statistic) for point in points])

    def predict(at: Array) -> Array:
        return size / at[0] + hops * at[1]

    rate, hop = float((size / measured).max()), float((measured / hops).min())
    hops_from = Unknown(max(hop, 1e-9), 1e-9, 1.0, "seconds")
    return fit(predict, measured, [Unknown(rate, 1e5, 1e15, "bytes_per_s"), hops_from])


def _pair(found: FittedLaw, note: str) -> tuple[Number, Number]:
    """Both numbers; one that may be at its least bound may be nothing at all."""
    first, second = (
        replace(number, note=note, low=0.0 if number.low <= 1e-9 else number.low)
        for number in found.numbers(note)
    )
    return first, second


def _assumed(rate: float, latency: float, note: str) -> tuple[Number, Number]:
    return (
        exactly(rate, note, "bytes_per_s", "assumed"),
        exactly(latency, note, "seconds", "assumed"),
    )


def _sizes(points: Sequence[MeasuredPoint]) -> str:
    sizes = [point.bytes for point in points]
    return f"{min(sizes):,.0f} to {max(sizes):,.0f} bytes"


def fit_messages(points: Sequence[MeasuredPoint]) -> FittedLaw:
    """Processor seconds of any message, and of each piece in which a link hands it over."""
    sizes = np.array([p.shape["bytes"] for p in points], dtype=np.float64)
    rates = np.array([p.shape["rate"] for p in points], dtype=np.float64)
    pieces = np.ceil(sizes / (PAYLOAD * np.maximum(1, np.floor(BURST * rates / PAYLOAD))))
    measured = np.array([max(1e-9, p.timing.median) for p in points])

    def predict(at: Array) -> Array:
        return at[0] + at[1] * pieces

    start = float((measured / pieces).min())
    return fit(predict, measured, [Unknown(start, 1e-9, 1.0, "seconds")] * 2)


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """Seconds: per step, per sequence of a step, per tensor of an update, until an engine sleeps,
    and until it is awake."""

    step: Number
    sequence: Number
    per_tensor: Number
    sleep: Number
    wake: Number


def fit_engine(
    points: Sequence[MeasuredPoint], limits: DeviceLimits, links: Links
) -> EngineTimes | None:
    """The engine by the group `serving`; None where that was not measured. The twin counts an
    update's bytes once over the host's link and twice within the device, reading and writing."""
    hosts = {p.shape["sequences"]: p.timing.median for p in points if p.op == "engine_host"}
    turns = {name: [p for p in points if p.op == f"engine_{name}"] for name in _TURN}
    if len(hosts) < 2 or not all(turns.values()):
        return None
    sleep, update, wake = (turns[name][0] for name in _TURN)
    copied = update.bytes * (1 / links.pcie_rate.value + 4 / limits.bandwidth)
    tensors = update.shape["tensors"]
    low, middle, high = (max(1e-9, (each - copied) / tensors) for each in _quartiles(update))
    note = f"{tensors} tensors, {update.bytes:,.0f} bytes, {update.timing.samples} updates"
    per_tensor = Number(middle, low, high, note, "measured", "seconds")
    return EngineTimes(*_host(hosts), per_tensor, _seconds(sleep), _seconds(wake))


def _quartiles(point: MeasuredPoint) -> tuple[float, float, float]:
    return point.timing.lower, point.timing.median, point.timing.upper


def _seconds(point: MeasuredPoint) -> Number:
    low, middle, high = _quartiles(point)
    note = f"median and quartiles of {point.timing.samples} turns"
    return Number(middle, low, high, note, "measured", "seconds")


def _host(hosts: Mapping[int, float]) -> tuple[Number, Number]:
    """Of a step, and of each of its sequences."""
    batches = np.array(sorted(hosts), dtype=np.float64)
    measured = np.array([hosts[int(batch)] for batch in batches])

    def predict(at: Array) -> Array:
        return at[0] + at[1] * batches

    start = Unknown(float((measured / batches).min()), 1e-9, _MOST, "seconds")
    found = fit(predict, measured, [start, start])
    listed = ", ".join(f"{batch:.0f}" for batch in batches)
    note = f"steps of {listed} sequences less their passes, median error "
    return _pair(found, f"{note}{found.residuals('').median:.0%}")
