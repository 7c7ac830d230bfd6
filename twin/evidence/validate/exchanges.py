"""Measured times of bytes over links and their clusters, and rows of expert all-to-all: DeepEP, its
low-latency kernels, and other libraries.

Bandwidths are logical, as DeepEP prints them: over the time, bytes of all ranks that a token
reaches on one node, its own among them; of all nodes that it reaches across nodes; of all copies
for kernels that send one per expert (scenarios/published/deepep-h800.yaml).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import ceil, inf
from types import MappingProxyType
from typing import Any, Final

from twin.collectives.deepep import arriving, deepep, sm_lag
from twin.collectives.spread import Spread, spread
from twin.collectives.traffic import alone, traffic
from twin.evidence.validate.scenario_parts import gpu_spec, nodes_with, on_efa
from twin.evidence.validate.suite import PublishedRow, Unreadable, count, number
from twin.loading import load_part
from twin.network.placement import Placement
from twin.spec.cluster import ClusterSpec

GPUS: Final = MappingProxyType(
    {
        "H100/H200": "H100",
        "H800/H100 (SM90)": "H100",
        "B200 (SM100)": "B200",
        "A100": "A100-80GB",
    }
)
"""GPUs in the words of sources. SM90 is taken for H100: between two nodes DeepEP V2's 90 GB/s are
more than H800's NVLink carries. Collectives of 40 and of 80 GB A100 cross the same NVLink."""
EFA: Final = "Amazon's EFA"
"""A family on nodes and a fabric of its own. DeepEP's kernels reach the NICs through host proxies
(UCCL, NVSHMEM), which the twin does not price."""
DOMAIN: Final = 8
"""GPUs that share NVLink, on all nodes of rows of collectives."""


@dataclass(frozen=True, slots=True)
class Nvlink:
    """What a fit says of a GPU's NVLink."""

    efficiency: float
    latency: float
    own_share: float


@dataclass(frozen=True, slots=True)
class MeasuredTransfer:
    """One measured time (seconds) and ours. `bytes` are those whose rate the source reports, over
    that time; None where it reports the time of a message without size."""

    family: str
    what: str
    measured: float
    ours: float
    bytes: float | None

    @property
    def error(self) -> float:
        """How much longer ours is, as a part of the measured time."""
        return self.ours / self.measured - 1


def placed(ranks: int) -> Placement:
    """A group that fills its nodes."""
    return Placement(ranks, min(DOMAIN, ranks))


def cluster_for(
    row: PublishedRow, nodes: int = 1, gpu: str | None = None, nvlink: Nvlink | None = None
) -> ClusterSpec:
    """Nodes of the row's GPU (or of another), under a fabric as fast as their NICs; `nvlink` in
    place of the catalog's numbers. Raises `Unreadable` where the catalog has none."""
    name = gpu or row.gpu
    found = _cluster(GPUS.get(name, name), nodes, efa=on_efa(row))
    if nvlink is None:
        return found
    numbers = asdict(nvlink)
    link = found.node.nvlink.model_copy(update=numbers)
    return found.model_copy(update={"node": found.node.model_copy(update={"nvlink": link})})


@cache
def _cluster(gpu: str, nodes: int, *, efa: bool = False) -> ClusterSpec:
    """Of nodes with the GPU those with the fastest NICs."""
    having = nodes_with(gpu_spec(gpu).name, efa=efa)
    node = max(having.values(), key=lambda spec: spec.nic.bandwidth)
    rate = ceil(node.nic.bandwidth * 8e-9)
    fabric = load_part("fabrics", "efa" if efa else f"rail-fat-tree-{rate}g").spec
    return ClusterSpec(node=node, nodes=nodes, fabric=fabric)


def assumed(row: PublishedRow) -> tuple[str, ...]:
    """What a price of the row's links takes for granted."""
    found: list[str] = []
    if on_efa(row) and "op" not in row.metrics:
        found.append("the proxies that reach EFA's NICs for DeepEP's kernels cost nothing")
    if row.gpu in GPUS:
        found.append(f"{row.gpu} taken for {GPUS[row.gpu]}")
    return tuple(found)


_BY_SMS: Final = ("aic-deepep", "hybrid-ep-deepep")
"""Rows of DeepEP's first kernels that say their SMs."""
HIDDEN: Final = 7168
SCALED: Final = 128
"""Numbers in E4M3 that share a scale of 4 bytes."""
HEAD: Final = 16
"""Bytes that low-latency dispatch adds to a token."""
TOP_K: Final = 8
EXPERTS: Final = 256
"""Of DeepEP's tests, where a row says nothing."""
TOKENS: Final = 4096
"""Per rank, of DeepEP's tests, where a row says nothing."""
FEW: Final = 128
"""Tokens per rank up to which libraries send one copy per expert, for latency."""
GROUPS: Final = 4
"""Nodes that DeepEP's test keeps per token at most, by their best expert."""


@dataclass(frozen=True, slots=True)
class ExpertExchange:
    """One dispatch or combine: ranks, tokens of each, bytes of a token, its experts of how many,
    and whether each gets a copy of its own."""

    stage: str
    ranks: int
    tokens: int
    width: int
    top_k: int
    experts: int
    plain: bool
    sms: int | None = None
    """That run DeepEP's first kernels; None: links bind."""

    @property
    def spread(self) -> Spread:
        """DeepEP's test: as many groups as nodes, at most four of them kept."""
        groups = max(1, self.ranks // DOMAIN)
        kept = min(groups, GROUPS)
        return spread(self.experts, self.top_k, placed(self.ranks), groups, kept)

    @property
    def bytes(self) -> float:
        """Bytes that a logical bandwidth counts."""
        places = float(self.top_k)
        if not self.plain:
            places = self.spread.ranks if self.ranks <= DOMAIN else self.spread.nodes
        return self.tokens * places * self.width

    def seconds(self, where: ClusterSpec) -> float:
        """Ours, on idle links."""
        group, payload = placed(self.ranks), float(self.top_k * self.tokens * self.width)
        if self.plain:
            # Kernels write to all peers themselves, at once.
            return alone(replace(traffic("all_to_all", payload, group), peers=0), where, group)
        flow = deepep(payload, self.spread, group)
        rate = None if self.sms is None else self.sms * _sm_rate()
        lag = sm_lag(arriving(payload, self.spread), rate, flow, where)
        return alone(flow, where, group) + lag


@cache
def _sm_rate() -> float:
    """What an SM of DeepEP passes on: one number of Hopper and Blackwell."""
    return load_part("calibrations", "h800-hopper-bf16").spec.expert_sm_rate or inf


def points(row: PublishedRow, nvlink: Nvlink | None = None) -> Iterator[MeasuredTransfer]:
    """Every dispatch and combine of a row."""
    columns = row.metrics.get("columns")
    if columns is None:
        yield from _points(row, dict(row.metrics), nvlink, "")
        return
    for values in row.metrics.get("series", ()):
        entry = {**row.metrics, **dict(zip(columns, values, strict=True))}
        held = f" {entry['sms']} SMs" if "sms" in columns else ""
        yield from _points(row, entry, nvlink, f" {entry['tokens_per_rank']:,} tokens{held}")


def _points(
    row: PublishedRow, entry: dict[str, Any], nvlink: Nvlink | None, what: str
) -> Iterator[MeasuredTransfer]:
    for stage, library in (("dispatch", ""), ("combine", ""), ("dispatch", "triton"),
                           ("dispatch", "deepep")):  # fmt: skip
        one = _exchange(row, entry, stage)
        rate = None if library else number(entry, f"{stage}_GBps")
        time = number(entry, f"{library or stage}_us")
        if rate is None and time is None:
            continue
        measured = one.bytes / (rate * 1e9) if rate is not None else (time or 0.0) * 1e-6
        if one.plain and time is not None:
            measured = time * 1e-6
        where = cluster_for(row, placed(one.ranks).nodes, nvlink=nvlink)
        name = f"{stage}{what}{' ' + library if library else ''}"
        yield MeasuredTransfer(_family(row, one), name, measured, one.seconds(where), one.bytes)


def _exchange(row: PublishedRow, entry: dict[str, Any], stage: str) -> ExpertExchange:
    ranks = count(row.layout, "ep")
    if ranks is None:
        raise Unreadable("the row does not say over how many ranks")
    tokens = count(entry, "tokens_per_rank") or TOKENS
    plain = (tokens <= FEW and "columns" not in entry) or "pplx-pplx" in row.id
    hidden = count(entry, "hidden") or HIDDEN
    width = 2 * hidden
    if stage == "dispatch" and _quantised(row):
        width = hidden + 4 * hidden // SCALED + HEAD * plain
    top_k, experts = count(entry, "topk") or TOP_K, count(entry, "experts") or EXPERTS
    held = count(entry, "sms") if row.id.startswith(_BY_SMS) else None
    return ExpertExchange(stage, ranks, tokens, width, top_k, experts, plain, held)


def _quantised(row: PublishedRow) -> bool:
    """Whether tokens are sent in FP8, as DeepEP does where a row says nothing."""
    words = str(row.fields.get("precision", ""))
    return not words or "FP8" in words


def _family(row: PublishedRow, one: ExpertExchange) -> str:
    if on_efa(row):
        return EFA
    if row.id.startswith("pplx"):
        return "pplx-garden and its DeepEP, H100"
    if one.plain:
        return f"Low latency (plain copies), {row.gpu}"
    if row.id.startswith("deepep-v2"):
        return "DeepEP V2, H100 and B200"
    if row.id.startswith("hybrid-ep"):
        return "HybridEP, and DeepEP beside it, B200"
    return f"DeepEP on {row.gpu}"


NAMED: Final = re.compile(r"(gb200|h100)_ep(\d+)_(hybridep|a2a)_(dispatch|combine)_us")
"""Times of exchanges that say GPU, ranks and library themselves."""


def named_points(row: PublishedRow, nvlink: Nvlink | None) -> Iterator[MeasuredTransfer]:
    """Every exchange of a row whose metrics name GPU, ranks and library: HybridEP merges copies for
    one node, NCCL's all-to-all sends one per expert."""
    sizes = {name: count(row.metrics, name) for name in ("tokens_per_rank", "hidden", "experts")}
    for key in row.metrics:
        found, time = NAMED.fullmatch(key), number(row.metrics, key) if "_us" in key else None
        if found is None or time is None:
            continue
        gpu, ranks, library, stage = found.groups()
        width = 2 * (sizes["hidden"] or HIDDEN)
        known = int(ranks), sizes["tokens_per_rank"] or TOKENS, width
        one = ExpertExchange(stage, *known, TOP_K, sizes["experts"] or EXPERTS, plain=False)
        where = cluster_for(row, placed(one.ranks).nodes, gpu.upper(), nvlink)
        ours = one.seconds(where)
        if library == "a2a":
            group, copies = placed(one.ranks), float(TOP_K * one.tokens * width)
            ours = alone(traffic("all_to_all", copies, group), where, group)
        what = f"{stage} {library}, {gpu.upper()}, {ranks} ranks"
        yield MeasuredTransfer(_BESIDE, what, time * 1e-6, ours, one.bytes)


_BESIDE: Final = "HybridEP, and NCCL's all-to-all beside it"
