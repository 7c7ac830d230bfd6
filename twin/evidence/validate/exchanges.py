"""Rows of expert all-to-all: DeepEP, its low-latency kernels, and other libraries.

Bandwidths are logical, as DeepEP prints them: over the time, bytes of all ranks that a token
reaches on one node, its own among them; of all nodes that it reaches across nodes; of all copies
for kernels that send one per expert (scenarios/published/deepep-h800.yaml).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from twin.collectives import Spread, alone, deepep, spread, traffic
from twin.evidence.validate.points import DOMAIN, EFA, Nvlink, Point, cluster_for, on_efa, placed
from twin.evidence.validate.row import Row, Unreadable, count, number
from twin.spec.cluster import ClusterSpec

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
class Exchange:
    """One dispatch or combine: ranks, tokens of each, bytes of a token, its experts of how many,
    and whether each gets a copy of its own."""

    stage: str
    ranks: int
    tokens: int
    width: int
    top_k: int
    experts: int
    plain: bool

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
            return alone(traffic("all_to_all", payload, group), where, group)
        return alone(deepep(payload, self.spread, group), where, group)


def points(row: Row, nvlink: Nvlink | None = None) -> Iterator[Point]:
    """Every dispatch and combine of a row."""
    columns = row.metrics.get("columns")
    if columns is None:
        yield from _points(row, dict(row.metrics), nvlink, "")
        return
    for values in row.metrics.get("series", ()):
        entry = {**row.metrics, **dict(zip(columns, values, strict=True))}
        yield from _points(row, entry, nvlink, f" {entry['tokens_per_rank']:,} tokens")


def _points(row: Row, entry: dict[str, Any], nvlink: Nvlink | None, what: str) -> Iterator[Point]:
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
        yield Point(_family(row, one), name, measured, one.seconds(where), one.bytes)


def _exchange(row: Row, entry: dict[str, Any], stage: str) -> Exchange:
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
    return Exchange(stage, ranks, tokens, width, top_k, experts, plain)


def _quantised(row: Row) -> bool:
    """Whether tokens are sent in FP8, as DeepEP does where a row says nothing."""
    words = str(row.fields.get("precision", ""))
    return not words or "FP8" in words


def _family(row: Row, one: Exchange) -> str:
    if on_efa(row):
        return EFA
    if row.id.startswith("pplx"):
        return "pplx-garden and its DeepEP, H100"
    if one.plain:
        return f"Low latency (plain copies), {row.gpu}"
    if row.id.startswith("deepep-v2"):
        return "DeepEP V2, H100 and B200"
    return f"DeepEP on {row.gpu}"
