"""Published times of collectives beside ours: what each row measured, priced on the catalog's node.

`python -m tests.collectives.rows` prints the table of docs/collectives.md, and every row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any, Final, get_args

from tests.hardware.catalog import plain, published
from twin.arch.ops import CollectiveKind
from twin.collectives import Spread, Traffic, alone, chosen, deepep, spread, traffic
from twin.network import Placement, capacity, latency
from twin.spec.cluster import ClusterSpec

SMALLEST: Final = 4 * 2**20
"""Bytes; NCCL sends smaller payloads by other protocols, which the twin does not price."""
LARGE: Final = 16 * 2**30
"""Bytes; where a row gives the best bandwidth of a sweep."""
HIDDEN: Final = 7168
FP8: Final = HIDDEN + 4 * HIDDEN // 128
"""Bytes of a token in E4M3 with a scale of 4 bytes per 128 numbers."""
FP8_LOW_LATENCY: Final = FP8 + 16
BF16: Final = 2 * HIDDEN
TOP_K: Final = 8
KINDS: Final[dict[str, CollectiveKind]] = {
    "alltoall": "all_to_all",
    **{kind: kind for kind in get_args(CollectiveKind)},
}

OUTSIDE: Final = {
    "deepseek-isca25-deepep-mpft-fig7": "which number belongs to which size is not known",
    "aic-deepep-h100-ep8-e256-sm12": "12 SMs: they bind, not the links",
    "aic-deepep-h100-ep8-e384-sm12": "12 SMs: they bind, not the links",
    "aic-deepep-h100-ep16-sm12": "12 SMs: they bind, not the links",
    "aic-deepep-h100-ep32-sm12": "12 SMs: they bind, not the links",
    "aic-deepep-h100-ep64-sm12": "dispatch slower than combine of twice the bytes: anomalous",
    "aic-deepep-h100-ep64-sm20": "dispatch slower than combine of twice the bytes: anomalous",
    "aic-deepep-h100-ep64-sm24": "dispatch slower than combine of twice the bytes: anomalous",
    "pplx-pplx-cx7-ep8-4096tok": "cells of 8 and 16 ranks look swapped in the source",
    "pplx-deepep-cx7-ep8-4096tok": "cells of 8 and 16 ranks look swapped in the source",
    "pplx-pplx-efa-ep8-4096tok": "cells of 8 and 16 ranks look swapped in the source",
    "pplx-pplx-cx7-ep16-4096tok": "cells of 8 and 16 ranks look swapped in the source",
    "pplx-deepep-cx7-ep16-4096tok": "cells of 8 and 16 ranks look swapped in the source",
    "pplx-pplx-efa-ep16-4096tok": "cells of 8 and 16 ranks look swapped in the source",
    "nccl-2409-2node-h100-roce": "a misbehaving fabric, half of what its authors expect",
    "simai-efficiency-nvlink-ratio": "not documented whether measured",
    "simai-efficiency-nic-ratio": "not documented whether measured",
    "simai-efficiency-ata-ratio": "not documented whether measured",
    "simai-busbw-example": "an example configuration, not a measurement",
}
"""Rows that are not priced, with the reason."""
EFA: Final = "Amazon's EFA instead of InfiniBand or RoCE (no part of the catalog)"
"""A family that is priced as if its 3,200 Gb/s per node were the NICs of nodes/h100-8gpu."""


@dataclass(frozen=True)
class Point:
    """One measured time (seconds) and ours."""

    family: str
    row: str
    what: str
    measured: float
    ours: float

    @property
    def error(self) -> float:
        """How much longer ours is, as a part of the measured time."""
        return self.ours / self.measured - 1


def points() -> Iterator[Point]:
    """Every priced number of every row."""
    yield from _nccl_series()
    yield from _nccl_sweeps()
    yield from _deepep_h800()
    yield from _deepep_others()
    yield from _copies()
    yield from _latencies()


@cache
def cluster(node: str, nodes: int = 1, fabric: str = "rail-fat-tree-400g") -> ClusterSpec:
    """Some nodes of the catalog."""
    parts = {"node": plain(f"nodes/{node}"), "fabric": plain(f"fabrics/{fabric}")}
    return ClusterSpec.model_validate(parts | {"nodes": nodes})


def _nccl_series() -> Iterator[Point]:
    for file, node in (("nccl-h100", "h100-8gpu"), ("nccl-a100-80gb", "a100-80gb-8gpu-8x200g")):
        for name, row in published(f"{file}.yaml").items():
            kind, ranks = KINDS[row["metrics"]["op"]], row["system"]["gpus"]
            for payload, milliseconds, _ in row["metrics"]["series"]:
                if payload >= SMALLEST:
                    ours = _collective(node, kind, payload, Placement(ranks, ranks))
                    what = f"{payload / 2**20:,.0f} MiB"
                    yield Point(f"NCCL in a node, {node}", name, what, milliseconds * 1e-3, ours)


def _collective(node: str, kind: CollectiveKind, payload: float, placed: Placement) -> float:
    where = cluster(node, placed.nodes)
    return alone(chosen(where, "auto", kind, payload, placed), where, placed)


def _nccl_sweeps() -> Iterator[Point]:
    """Bus bandwidths of all-reduce on one node at large payloads; what one NIC carries."""
    family = "NCCL in a node, best of a sweep"
    rows = {name: row["metrics"] for name, row in published("nccl-nodes.yaml").items()}
    sweep = rows["stas-h200x8-allreduce"]
    found = [
        ("stas-h200x8-allreduce", "h200-8gpu", mib * 2**20, rate)
        for mib, rate in sweep["series"]
        if mib * 2**20 >= SMALLEST
    ]
    a100, h100 = "a100-80gb-8gpu-8x200g", "h100-8gpu"
    found += [
        ("stas-a100-allreduce", a100, LARGE, rows["stas-a100-allreduce"]["busbw_GBps_16GiB"]),
        ("stas-h100-allreduce-4gib", h100, 4 * 2**30, 480),
        ("nccl-ndr-nic-rule", h100, LARGE, 476),
        ("alayanew-nccl-range", h100, LARGE, 470),
        ("alayanew-nccl-range", a100, LARGE, 240),
    ]
    eight = Placement(8, 8)
    for name, node, payload, rate in found:
        measured = payload * 2 * 7 / 8 / (rate * 1e9)
        ours = _collective(node, "all_reduce", payload, eight)
        yield Point(family, name, f"{node} {payload / 2**20:,.0f} MiB", measured, ours)
    ring = traffic("all_reduce", LARGE, eight)
    measured = LARGE * 2 * 7 / 8 / (sweep["ring_no_nvls_busbw_GBps_16GiB"] * 1e9)
    ours = alone(ring, cluster("h200-8gpu"), eight)
    yield Point(family, "stas-h200x8-allreduce", "ring 16,384 MiB", measured, ours)
    nic = capacity(cluster(h100, 2), "nic")
    yield Point("A NIC", "nccl-ndr-nic-rule", "46 to 49 GB/s", 1 / 47.5e9, 1 / nic)
    for ranks in (32, 64):
        rate = rows[f"aws-p5-nccl-a2a-{ranks}"]["busbw_GBps_peak"] * 1e9
        ours = _collective(h100, "all_to_all", LARGE, Placement(ranks, 8))
        measured = LARGE * (ranks - 1) / ranks / rate
        yield Point(EFA, f"aws-p5-nccl-a2a-{ranks}", "peak", measured, ours)


def _deepep_h800() -> Iterator[Point]:
    for name, row in published("deepep-h800.yaml").items():
        metrics, ranks = row["metrics"], row["parallelism"]["ep"]
        if "normal" in name:
            yield from _logical("DeepEP on H800", name, "h800-8gpu", (ranks, 4096), metrics)
        else:
            family = "Low latency (plain copies), H800"
            yield from _plain(family, name, "h800-8gpu", (ranks, 128), metrics)


def _deepep_others() -> Iterator[Point]:
    for name, row in published("deepep-others.yaml").items():
        if name in OUTSIDE:
            continue
        metrics, ranks = row["metrics"], row["parallelism"]["ep"]
        tokens = metrics.get("tokens_per_rank", 4096)
        if name.startswith("deepep-v2"):
            # SM90 is taken for H100: between two nodes 90 GB/s are more than H800's NVLink carries.
            node = "b200-8gpu" if "b200" in name else "h100-8gpu"
            yield from _logical("DeepEP V2, H100 and B200", name, node, (ranks, tokens), metrics)
        elif name.startswith("aic"):
            yield from _aiconfigurator(name, ranks, metrics)
        elif name.startswith("triton"):
            family = "Low latency (plain copies), H800"
            for key in ("triton_us", "deepep_us"):
                times = {"dispatch_us": metrics[key]}
                yield from _plain(family, f"{name} {key}", "h800-8gpu", (ranks, tokens), times)
        elif name.startswith("pplx"):
            yield from _perplexity(name, (ranks, tokens), metrics)
        else:
            node = "b200-8gpu" if "b200" in name else "h100-8gpu"
            width = (BF16, BF16) if name.startswith("aws") else (FP8, BF16)
            yield from _logical(EFA, name, node, (ranks, tokens), metrics, width)


def _perplexity(name: str, run: tuple[int, int], metrics: dict[str, Any]) -> Iterator[Point]:
    """Perplexity's kernels send one copy per expert, and so do DeepEP's for 128 tokens."""
    merged = "pplx-deepep" in name and run[1] == 4096
    family = "pplx-garden and its DeepEP, H100"
    if "efa" in name:
        family = EFA
    if not merged:
        yield from _plain(family, name, "h100-8gpu", run, metrics)
        return
    for stage, width in (("dispatch", FP8), ("combine", BF16)):
        yield Point(
            family, name, stage, metrics[f"{stage}_us"] * 1e-6, _merged("h100-8gpu", run, width)
        )


def _aiconfigurator(name: str, ranks: int, metrics: dict[str, Any]) -> Iterator[Point]:
    columns = metrics["columns"]
    for values in metrics["series"]:
        one = dict(zip(columns, values, strict=True))
        run = ranks, one["tokens_per_rank"]
        for stage, width in (("dispatch", FP8), ("combine", BF16)):
            ours = _merged("h100-8gpu", run, width, metrics["experts"])
            what = f"{stage} {run[1]:,} tokens"
            yield Point("DeepEP on H100", name, what, one[f"{stage}_us"] * 1e-6, ours)


def _logical(
    family: str,
    name: str,
    node: str,
    run: tuple[int, int],
    metrics: dict[str, Any],
    widths: tuple[int, int] = (FP8, BF16),
) -> Iterator[Point]:
    """Bandwidths as DeepEP prints them: bytes to all nodes (one node: ranks) of each token, over
    time."""
    ranks, tokens = run
    places = _reached(ranks).ranks if ranks <= 8 else _reached(ranks).nodes
    for stage, width in zip(("dispatch", "combine"), widths, strict=True):
        measured = tokens * places * width / (metrics[f"{stage}_GBps"] * 1e9)
        yield Point(family, name, stage, measured, _merged(node, run, width))


def _merged(node: str, run: tuple[int, int], width: int, experts: int = 256) -> float:
    """Seconds of one dispatch or combine that sends one copy per node."""
    ranks, tokens = run
    placed = Placement(ranks, 8)
    flow = deepep(TOP_K * tokens * width, _reached(ranks, experts), placed)
    return alone(flow, cluster(node, placed.nodes), placed)


def _reached(ranks: int, experts: int = 256) -> Spread:
    """DeepEP's test: as many groups as nodes, at most four of them kept."""
    groups = max(1, ranks // 8)
    return spread(experts, TOP_K, Placement(ranks, 8), groups, min(groups, 4))


def _plain(
    family: str, name: str, node: str, run: tuple[int, int], metrics: dict[str, Any]
) -> Iterator[Point]:
    """Times of kernels that send one copy per expert."""
    ranks, tokens = run
    placed = Placement(ranks, 8)
    where = cluster(node, placed.nodes)
    for stage, width in (("dispatch", FP8_LOW_LATENCY), ("combine", BF16)):
        if f"{stage}_us" in metrics:
            flow = traffic("all_to_all", TOP_K * tokens * width, placed)
            ours = alone(flow, where, placed)
            yield Point(family, name, stage, metrics[f"{stage}_us"] * 1e-6, ours)


def _copies() -> Iterator[Point]:
    """1 GiB from pinned memory, to it, and between two GPUs by the copy engine."""
    (row,) = published("pcie-h200.yaml").values()
    where, size = cluster("h200-8gpu"), 2**30
    ours = size / capacity(where, "pcie") + latency(where, "pcie")
    for way in ("h2d", "d2h"):
        measured = size / (row["metrics"][f"{way}_GBps"] * 1e9)
        yield Point("Host copies, PCIe Gen5", row["id"], way, measured, ours)
    rate = row["metrics"]["nvlink_p2p_unidirectional_GBps"] * 1e9
    pair = Placement(2, 2)
    ours = alone(Traffic(nvlink_bytes=size, nvlink_hops=1), where, pair)
    yield Point("GPU to GPU by copy engine", row["id"], "1 GiB", size / rate, ours)


def _latencies() -> Iterator[Point]:
    row = published("links-h800.yaml")["deepseek-isca25-link-latency-64b"]
    nets = {
        "roce": ("h800-8gpu", "rail-fat-tree-400g"),
        "ib": ("a100-80gb-8gpu-8x200g", "rail-fat-tree-200g"),
    }
    for net, (node, fabric) in nets.items():
        for place, nodes in (("same", 2), ("cross", 64)):
            measured = row["metrics"][f"{net}_{place}_leaf_us"] * 1e-6
            ours = latency(cluster(node, nodes, fabric), "nic")
            yield Point("A hop between NICs", row["id"], f"{net} {place} leaf", measured, ours)


def copies() -> str:
    """The table of docs/collectives.md of how far a token of Kimi K2 spreads, and how many copies
    plain all-to-all sends to other nodes."""
    lines: list[str] = []
    for ranks in (8, 16, 32, 64, 128):
        placed = Placement(ranks, 8)
        found = spread(384, TOP_K, placed)
        counts = (
            found.nodes,
            found.nodes * (1 - 1 / placed.nodes),
            found.ranks,
            TOP_K * (1 - 8 / ranks),
        )
        lines.append(f"| {ranks} | " + " | ".join(f"{one:.2f}" for one in counts) + " |")
    return "\n".join(lines)


def table() -> str:
    """The table of docs/collectives.md: by family, how many numbers, median and worst error."""
    families: dict[str, list[Point]] = {}
    for point in points():
        families.setdefault(point.family, []).append(point)
    counted = [point for name, own in families.items() if name != EFA for point in own]
    rows = [_line(name, own) for name, own in families.items()]
    head = "| family | numbers | median error | worst |\n|---|---|---|---|"
    return "\n".join([head, *rows, _line("**all but EFA**", counted)])


def _line(name: str, own: list[Point]) -> str:
    worst = max(own, key=lambda one: abs(one.error))
    middle = median(abs(one.error) for one in own)
    where = f"{worst.error:+.0%} {worst.row}, {worst.what}"
    return f"| {name} | {len(own)} | `{middle:.1%}` | `{where}` |".replace("%", " %")


if __name__ == "__main__":
    for point in points():
        times = f"{point.measured * 1e6:10.1f} us, ours {point.ours * 1e6:10.1f}"
        print(f"{point.family}: {point.row} {point.what}: {times}, {point.error:+.1%}")
    print(table())
