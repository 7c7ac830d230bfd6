"""Timed transfers to the numbers of a node and a fabric: what nccl-tests, perftest and host copies
say of NVLink, network cards, the network and PCIe.

Each transfer is priced as the twin prices a step's (`twin.collectives.traffic`), and the numbers of
`cluster_factors.yaml` are moved from a base until the errors are small
(`twin.evidence.calibrate.ridge`). The noise is what the transfers themselves show: the fit is made
twice, the second time with the scatter of the first. A number's range is two standard deviations.
These are the larger of two: from the scatter of single transfers, and from leaving out whole runs
(delete-group jackknife; Efron and Tibshirani 1993, section 11.5), since the times of one run err
alike. An error is of a fit that has not seen the transfer's run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np

from twin.collectives.base import Traffic, started
from twin.collectives.traffic import alone, chosen
from twin.evidence.calibrate import factors as numbers
from twin.evidence.calibrate.factors import Array, Factor
from twin.evidence.calibrate.result import FittedNumber, RowError, share
from twin.evidence.calibrate.ridge import NOISE, Ridge, solve
from twin.evidence.calibrate.sources import Measurement
from twin.loading.files import read_data
from twin.network.links import capacity, latency
from twin.network.placement import Placement
from twin.reports.interval import BLACKWELL
from twin.spec.cluster import ClusterSpec, FabricSpec, NodeSpec

STILL: Final = 0.01
"""The least scatter, as a logarithm (OURS): two runs of nccl-tests differ by about a hundredth."""
TOLD: Final = 0.1
"""Of a number's spread, what transfers take away at least where they tell it."""
RUNS: Final = 3
"""Runs from which on leaving them out tells a spread."""
COUNTED: Final = "counted"
"""Who found a number that was counted."""
LINK_RATE: Final = {False: 25e9, True: 50e9}
"""Bytes per second and direction of one NVLink, up to Hopper and from Blackwell on (NVIDIA)."""
_MOVED: Final = 1e-3
"""Logarithm by which a number moves some transfer, for transfers to tell it."""


@dataclass(frozen=True, slots=True)
class ClusterFit:
    """A node and a fabric as transfers tell them, the numbers that moved, errors of transfers, and
    notes."""

    node: NodeSpec
    fabric: FabricSpec
    found: tuple[FittedNumber, ...]
    rows: tuple[RowError, ...]
    notes: tuple[str, ...] = ()


def why_not(measured: Measurement, node: NodeSpec) -> str:
    """Why a transfer cannot have been made by such nodes; empty where it can have been."""
    per_node = measured.ranks // max(1, measured.nodes)
    if per_node > node.gpus:
        return f"{per_node} ranks on a node, and {node.name} has {node.gpus} GPUs"
    if measured.what == "card" and measured.value > node.nic.bandwidth:
        rate = f"{measured.value * 8e-9:.0f} Gb/s"
        return f"{rate} is more than the card of {node.name} can: name the node with --defaults"
    return ""


def fit_cluster(
    measured: Sequence[Measurement], node: NodeSpec, fabric: FabricSpec
) -> ClusterFit | None:
    """What transfers say of a node and a fabric; None where they say nothing."""
    rows = _Rows(measured, node, fabric)
    factors = rows.told() if measured else ()
    if not factors:
        return None
    ridge, noise = _solved(rows, factors)
    groups = _groups(measured)
    scale = noise / NOISE
    spread = np.maximum(ridge.deviations, _jackknife(ridge, groups))
    x = {f: float(v) for f, v in zip(factors, np.exp(ridge.x), strict=True)}
    found = _found(factors, ridge, spread, (node, fabric))
    before = rows.errors(np.zeros(0), ())
    out = _left_out(ridge, groups) * scale
    errors = tuple(
        RowError(_name(m), "transfers", "fit", _seconds(m), share(b), share(a), share(o))
        for m, b, a, o in zip(measured, before, ridge.errors * scale, out, strict=True)
    )
    return ClusterFit(
        numbers.scaled("node", node, x),
        numbers.scaled("fabric", fabric, x),
        found,
        errors,
        _notes(factors, ridge, groups, noise),
    )


class _Rows:
    """Transfers, priced under factors on a node and a fabric."""

    def __init__(self, measured: Sequence[Measurement], node: NodeSpec, fabric: FabricSpec) -> None:
        self.measured, self.node, self.fabric = tuple(measured), node, fabric

    def errors(self, x: Array, factors: Sequence[Factor]) -> Array:
        """Logarithms of predicted over measured."""
        by = {factor: exp(value) for factor, value in zip(factors, x, strict=True)}
        node = numbers.scaled("node", self.node, by)
        fabric = numbers.scaled("fabric", self.fabric, by)
        clusters = {
            nodes: ClusterSpec.model_construct(node=node, nodes=nodes, fabric=fabric)
            for nodes in {one.nodes for one in self.measured}
        }
        return np.array([log(predicted(m, clusters[m.nodes]) / m.value) for m in self.measured])

    def told(self) -> tuple[Factor, ...]:
        """Factors that move some transfer, of numbers that the base has."""
        usual = self.errors(np.zeros(0), ())
        found: list[Factor] = []
        for factor in cluster_factors():
            root, _, path = factor.numbers[0].partition(".")
            base = numbers.value(self.node if root == "node" else self.fabric, path)
            if not base:
                continue
            moved = self.errors(np.array([-factor.spread / 2]), (factor,))
            if np.max(np.abs(moved - usual)) > _MOVED:
                found.append(factor)
        return _apart(found, self.measured)

    def bounds(self, factors: Sequence[Factor]) -> tuple[Array, Array]:
        """Least and most of the factors' logarithms."""
        return numbers.bounds(factors, {"node": [self.node], "fabric": [self.fabric]})


def cluster_factors() -> tuple[Factor, ...]:
    """The factors of `cluster_factors.yaml`."""
    told: Mapping[str, Any] = read_data(Path(__file__).with_name("cluster_factors.yaml"))
    return tuple(Factor(path, own["meaning"], (path,), own["spread"]) for path, own in told.items())


def _apart(factors: Sequence[Factor], measured: Sequence[Measurement]) -> tuple[Factor, ...]:
    """Without the card's efficiency where no test of a card says it: collectives tell only its
    product with the network's."""
    cards = any(one.what == "card" for one in measured)
    return tuple(f for f in factors if cards or f.name != "node.nic.efficiency")


def predicted(measured: Measurement, cluster: ClusterSpec) -> float:
    """What the twin gives for a transfer, in the unit of its value."""
    match measured.what:
        case "card":
            return cluster.node.nic.bandwidth * cluster.node.nic.efficiency
        case "hop":
            return latency(cluster, "nic")
        case "to_host" | "from_host":
            return measured.size / capacity(cluster, "pcie") + latency(cluster, "pcie")
        case kind:
            placement = _placement(measured, cluster.fabric)
            if kind == "message":
                flow = _message(measured.size, placement)
            else:
                flow = chosen(_large(cluster), "auto", kind, measured.size, placement)  # pyright: ignore[reportArgumentType]
            return alone(flow, cluster, placement)


def _large(cluster: ClusterSpec) -> ClusterSpec:
    """The cluster as the catalog's numbers are fitted: on payloads that go without flags."""
    nvlink = cluster.node.nvlink.model_copy(update={"flags": False})
    return cluster.model_copy(update={"node": cluster.node.model_copy(update={"nvlink": nvlink})})


def _placement(measured: Measurement, fabric: FabricSpec) -> Placement:
    near = min(measured.nodes, fabric.nodes_per_leaf)
    per_node = measured.ranks // measured.nodes
    return Placement(measured.ranks, per_node, near * per_node)


def _message(size: float, placement: Placement) -> Traffic:
    """Every rank sends to the next one: where there are nodes, one of each sends to another."""
    far = placement.nodes > 1
    flow = Traffic(
        nvlink_bytes=size if placement.per_node > 1 else 0.0,
        nic_bytes=size if far else 0.0,
        nvlink_hops=int(not far),
        nic_hops=int(far),
    )
    return started(flow, 0.0)


def _solved(rows: _Rows, factors: tuple[Factor, ...]) -> tuple[Ridge, float]:
    """The fit whose noise is the scatter of the transfers, and that scatter. `Ridge` is of noise
    `NOISE`, so errors are brought to it."""
    spreads, bounds = [factor.spread for factor in factors], rows.bounds(factors)
    ridge, noise = (
        solve(lambda x: rows.errors(x, factors), spreads, bounds, np.zeros(len(factors))),
        NOISE,
    )
    for _ in range(2):
        errors, free = ridge.errors * noise / NOISE, len(ridge.errors) - ridge.determined
        # The median is not drawn by transfers that ran badly (Huber 1981, section 5.1).
        scatter = 1.4826 * float(np.median(np.abs(errors))) * sqrt(len(errors) / max(1.0, free))
        noise = max(STILL, scatter)
        times = NOISE / noise
        ridge = solve(
            lambda x, times=times: rows.errors(x, factors) * times, spreads, bounds, ridge.x
        )
    return ridge, noise


def _groups(measured: Sequence[Measurement]) -> list[list[int]]:
    """The transfers of each run."""
    found: dict[str, list[int]] = {}
    for place, one in enumerate(measured):
        found.setdefault(one.where, []).append(place)
    return list(found.values())


def _jackknife(ridge: Ridge, groups: Sequence[Sequence[int]]) -> Array:
    """Standard deviations of x from leaving out each run; zeros where there are too few runs."""
    if len(groups) < RUNS:
        return np.zeros(len(ridge.x))
    found = np.array([ridge.without(*group) for group in groups])
    count = len(groups)
    return np.sqrt((count - 1) / count * np.sum((found - found.mean(axis=0)) ** 2, axis=0))


def _left_out(ridge: Ridge, groups: Sequence[Sequence[int]]) -> Array:
    """The error of each transfer under the fit without its run, or, of one run, without itself."""
    out = np.zeros(len(ridge.errors))
    pieces = groups if len(groups) > 1 else [[place] for place in range(len(out))]
    for piece in pieces:
        out[list(piece)] = ridge.linear(ridge.without(*piece))[list(piece)]
    return out


def _found(
    factors: Sequence[Factor], ridge: Ridge, spread: Array, base: tuple[NodeSpec, FabricSpec]
) -> tuple[FittedNumber, ...]:
    found: list[FittedNumber] = []
    for factor, x, deviation in zip(factors, ridge.x, spread, strict=True):
        path = factor.numbers[0]
        root, _, rest = path.partition(".")
        section = base[0] if root == "node" else base[1]
        before = numbers.value(section, rest) or 0.0
        top = numbers.ceiling(path)
        after, low, high = (
            min(top, before * exp(v)) for v in (x, x - 2 * deviation, x + 2 * deviation)
        )
        learned = max(0.0, 1 - float(deviation) / factor.spread)
        found.append(
            FittedNumber(f"{section.name}.{rest}", before, after, low, high, "transfers", learned)
        )
    return tuple(found)


def _notes(
    factors: Sequence[Factor], ridge: Ridge, groups: Sequence[Sequence[int]], noise: float
) -> tuple[str, ...]:
    count = sum(map(len, groups))
    notes = [f"{count} transfers of {len(groups)} runs scatter by {noise:.1%} around the fit"]
    names = [factor.name for factor in factors]
    if "fabric.efficiency" in names and "node.nic.efficiency" not in names:
        notes.append(
            "no test of a network card: its own efficiency stays, and the network's takes the rest"
        )
    notes += [
        f"transfers tell hardly anything of {factor.meaning}: it stays near the base"
        for factor, learned in zip(factors, ridge.learned, strict=True)
        if learned < TOLD
    ]
    return tuple(notes)


def _name(measured: Measurement) -> str:
    size = f" {measured.size / 2**20:,.0f} MiB" if measured.size >= 2**20 else ""
    ranks = f", {measured.ranks} ranks" if measured.ranks > 1 else ""
    return f"{measured.what.replace('_', '-')}{size}{ranks}"


def _seconds(measured: Measurement) -> float:
    """Of a rate, the seconds of its bytes."""
    if measured.unit == "B/s":
        return measured.size / measured.value
    return measured.value


def with_counts(
    node: NodeSpec, measured: Sequence[Measurement]
) -> tuple[NodeSpec, tuple[FittedNumber, ...], tuple[str, ...]]:
    """The node with the GPUs and sockets that were counted, those that differ from the base, and
    notes on links and cards that the base says otherwise."""
    counts = {one.what: int(one.value) for one in measured if one.unit == "count"}
    changed, found = node, list[FittedNumber]()
    for what, path in (("gpus", "gpus"), ("sockets", "host.sockets")):
        before, now = numbers.value(node, path) or 0.0, counts.get(what)
        if now is None or now == before:
            continue
        changed = numbers.replaced(changed, path, now)
        found.append(FittedNumber(f"{node.name}.{path}", before, now, now, now, COUNTED, 1.0))
    return changed, tuple(found), tuple(_counted_otherwise(changed, counts))


def _counted_otherwise(node: NodeSpec, counts: Mapping[str, int]) -> Iterator[str]:
    fix = "if the node is another one, name its scenario with --defaults"
    links, cards = counts.get("nvlinks"), counts.get("nics")
    if links is not None:
        each = LINK_RATE[node.gpu.bf16_dense >= BLACKWELL]
        if abs(links * each / node.nvlink.bandwidth - 1) > STILL:
            rates = (
                f"{links * each * 1e-9:g} GB/s, {node.name} has {node.nvlink.bandwidth * 1e-9:g}"
            )
            yield f"{links} NVLinks of {each * 1e-9:g} GB/s are {rates}: {fix}"
    if cards is not None and cards != node.gpus:
        rate = f"{node.nic.bandwidth * 8e-9:g} Gb/s per GPU"
        yield f"{cards} network cards near {node.gpus} GPUs; {node.name} has {rate}: {fix}"
