"""What the catalog says of NVLink is a least-squares fit on published NCCL times.

The law is the product's own: seconds = (NVLink bytes + own share x own bytes) / (line rate x
efficiency) + hops x latency. It is linear in 1 / efficiency, own share / efficiency and latency, so
the relative errors of all rows have one least-squares solution.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.collectives import rows
from tests.hardware.catalog import plain, published
from twin import units
from twin.arch.ops import CollectiveKind
from twin.collectives.base import FLAGGED_BYTES, FLAGGED_HOP, FLAGGED_START, START_HOPS
from twin.collectives.traffic import alone, chosen, traffic
from twin.loading import load_part
from twin.network.links import capacity
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec

LARGE = 4 * 2**20
"""Bytes; NCCL sends smaller payloads with flags."""
LINE_RATES = {"nccl-a100-80gb.yaml": 300e9, "nccl-h100.yaml": 450e9}
NODES = {"nccl-a100-80gb.yaml": "a100-80gb-8gpu-8x200g", "nccl-h100.yaml": "h100-8gpu"}


@dataclass(frozen=True)
class Point:
    """One measured collective."""

    kind: CollectiveKind
    ranks: int
    payload: float
    seconds: float


@dataclass(frozen=True)
class Fit:
    """What the least squares found: three numbers, and the relative error of each point."""

    efficiency: float
    latency: float
    own_share: float
    errors: np.ndarray


def points(file: str, *, large: bool = True) -> list[Point]:
    """All large payloads of a file, or all small ones."""
    names: dict[str, CollectiveKind] = {"alltoall": "all_to_all"}
    names |= {kind: kind for kind in get_args(CollectiveKind)}
    return [
        Point(names[row["metrics"]["op"]], row["system"]["gpus"], payload, milliseconds * 1e-3)
        for row in published(file).values()
        for payload, milliseconds, _ in row["metrics"]["series"]
        if (payload >= LARGE) == large
    ]


def fit(measured: list[Point], line_rate: float, *, own: bool = True) -> Fit:
    """Least squares on the relative error of every point; without `own`, sent bytes and hops are
    all that there is."""
    costs = [traffic(p.kind, p.payload, Placement(p.ranks, p.ranks)) for p in measured]
    rows = [[c.nvlink_bytes / line_rate, c.nvlink_hops, own * c.own_bytes] for c in costs]
    terms = np.array(rows) * [1, 1, 1 / line_rate]
    relative = terms / np.array([[p.seconds] for p in measured])
    found, *_ = np.linalg.lstsq(relative, np.ones(len(measured)), rcond=None)
    inverse, latency, share = found
    return Fit(1 / inverse, latency, share / inverse, relative @ found - 1)


@pytest.mark.parametrize("node", ["a100-80gb-8gpu-8x200g", "a100-80gb-8gpu-4x200g"])
def test_the_a100_nodes_carry_the_fit_of_all_84_points(node: str) -> None:
    measured = points("nccl-a100-80gb.yaml")
    nvlink = plain(f"nodes/{node}")["nvlink"]
    found = fit(measured, units.parse(nvlink["bandwidth"], "bytes_per_s"))
    assert len(measured) == 84
    assert nvlink["efficiency"] == pytest.approx(found.efficiency, abs=0.005)
    assert units.parse(nvlink["latency"], "seconds") == pytest.approx(found.latency, abs=0.05e-6)
    assert nvlink["own_share"] == pytest.approx(found.own_share, abs=0.01)
    assert np.abs(found.errors).mean() < 0.07
    assert np.abs(found.errors).max() < 0.25


def test_the_h800_node_carries_the_latency_and_the_efficiency_of_h100() -> None:
    """All-reduce is left out: on H100 it ran on NVLink SHARP, which is not a ring."""
    measured = [p for p in points("nccl-h100.yaml") if p.kind != "all_reduce"]
    found = fit(measured, 450e9)
    nvlink = plain("nodes/h800-8gpu")["nvlink"]
    assert len(measured) == 63
    assert units.parse(nvlink["latency"], "seconds") == pytest.approx(found.latency, abs=0.05e-6)
    assert nvlink["efficiency"] == pytest.approx(found.efficiency, abs=0.005)
    assert nvlink["own_share"] == pytest.approx(found.own_share, abs=0.01)
    assert np.abs(found.errors).mean() < 0.07


def flags(*files: str) -> NDArray[np.float64]:
    """What small payloads of some files say of a start, a hop and a byte with flags: a matrix of
    these for every point, as shares of its time."""
    found: list[list[float]] = []
    for file in files:
        nvlink = plain(f"nodes/{NODES[file]}")["nvlink"]
        hop, rate = units.parse(nvlink["latency"], "seconds"), LINE_RATES[file]
        for p in points(file, large=False):
            flow = traffic(p.kind, p.payload, Placement(p.ranks, p.ranks))
            hops, sent = flow.nvlink_hops - START_HOPS, flow.nvlink_bytes / rate
            terms = hop, hop * hops, sent / nvlink["efficiency"]
            found.append([one / p.seconds for one in terms])
    return np.array(found)


def solved(terms: NDArray[np.float64]) -> NDArray[np.floating]:
    """Their least squares."""
    found, *_ = np.linalg.lstsq(terms, np.ones(len(terms)), rcond=None)
    return found


def test_small_payloads_carry_the_fit_of_120_points() -> None:
    terms = flags(*NODES)
    numbers = FLAGGED_START, FLAGGED_HOP, FLAGGED_BYTES
    assert len(terms) == 120
    assert numbers == pytest.approx(solved(terms), rel=0.02)
    assert np.abs(terms @ np.array(numbers) - 1).mean() < 0.125


@pytest.mark.parametrize(("seen", "other"), [tuple(NODES), tuple(NODES)[::-1]])
def test_small_payloads_of_one_gpu_tell_those_of_the_other(seen: str, other: str) -> None:
    assert np.abs(flags(other) @ solved(flags(seen)) - 1).mean() < 0.155


def test_small_payloads_go_with_flags_whatever_the_choice_and_large_ones_do_not() -> None:
    """By hand: 7 hops of a gather over 8 ranks of H100, whose hop is 1 us, and 7/8 of its bytes."""
    node, fabric = load_part("nodes", "h100-8gpu").spec, load_part("fabrics", "clos-400g").spec
    cluster, group = ClusterSpec(node=node, nodes=2, fabric=fabric), Placement(8, 8)
    rate = capacity(cluster, "nvlink")
    by_hand = (FLAGGED_START + 7 * FLAGGED_HOP) * 1e-6 + FLAGGED_BYTES * 7 / 8 * 2**16 / rate
    for choice in ("auto", "ring"):
        flow = chosen(cluster, choice, "all_gather", 2**16, group)
        assert alone(flow, cluster, group) == pytest.approx(by_hand)
        assert chosen(cluster, choice, "all_gather", 2**28, group).own_bytes
    plain_links = node.nvlink.model_copy(update={"flags": False})
    others = ClusterSpec(
        node=node.model_copy(update={"nvlink": plain_links}), nodes=2, fabric=fabric
    )
    assert chosen(others, "ring", "all_gather", 2**16, group).own_bytes
    apart = Placement(16, 8)
    assert chosen(cluster, "ring", "all_gather", 2**16, apart) == traffic(
        "all_gather", 2**16, apart
    )


@pytest.mark.parametrize(("file", "line_rate"), LINE_RATES.items())
def test_a_third_of_the_own_share_explains_what_two_ranks_lose_on_eight(
    file: str, line_rate: float
) -> None:
    """Both GPUs ask for the same part, each by its own rows, and a third of the error goes."""
    measured = [p for p in points(file) if "h100" not in file or p.kind != "all_reduce"]
    found, without = (fit(measured, line_rate, own=own) for own in (True, False))
    assert found.own_share == pytest.approx(1 / 3, abs=0.02)
    assert np.abs(found.errors).mean() < 0.75 * np.abs(without.errors).mean()


def test_deepep_on_h800_comes_close_to_the_efficiency_that_nccl_has_on_h100() -> None:
    """The normal kernels on one and two nodes, which NVLink bounds: the mean of what they ask for
    is the catalog's number within a tenth."""
    efficiency = plain("nodes/h800-8gpu")["nvlink"]["efficiency"]
    bound = ("deepep-h800-normal-ep8", "deepep-h800-normal-ep16")
    rates = [efficiency * (1 + point.error) for row, point in rows.points() if row in bound]
    assert len(rates) == 4
    assert fmean(rates) == pytest.approx(0.75, rel=0.10)
