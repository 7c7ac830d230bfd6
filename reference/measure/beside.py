"""What communication and kernels take of each other, from points of ranks: five numbers of a
calibration.

A product that keeps the share k of its speed beside a collective on c of n SMs loses
`contention` = 1 - k / (1 - c / n) beyond those SMs. `collective_sms` is the fewest SMs with which
an all-reduce reaches its rate. An exchange that takes t alone and u beside products loses
`expert_contention` = 1 - t / u of its rate; `expert_wait` is what it takes longer where only itself
makes ranks meet. `expert_sm_rate` are bytes per SM and second of DeepEP on its fewest SMs, and
`expert_sms` the fewest on which it comes near its best. Breaks where NCCL takes fewer SMs than it
may: then `contention` comes out too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from reference.measure.fitting import Number
from reference.measure.points import MeasuredPoint

NEAR: Final = 0.95
"""Share of the best rate that counts as reaching it."""
Key = tuple[str, ...]


def fit_beside(points: Sequence[MeasuredPoint], sms: int) -> dict[Key, Number]:
    """The numbers by their keys; none where their points are missing. `sms` of the device. Where
    ranks of several machines were measured as well, those of the fewest count."""
    own = [point for point in points if "nodes" in point.shape]
    fewest = min((point.shape["nodes"] for point in own), default=0)
    points = [point for point in own if point.shape["nodes"] == fewest]
    found = {
        ("contention",): _contention(points, sms),
        ("collective_sms",): _fewest(_of(points, "all_reduce_limited"), "ctas", "all-reduces"),
        ("expert_contention",): _lost_rate(points),
        ("expert_wait",): _wait(points),
        ("expert_sm_rate",): _sm_rate(points),
        ("expert_sms",): _fewest(_of(points, "deepep_dispatch"), "sms", "DeepEP's dispatches"),
    }
    return {key: number for key, number in found.items() if number is not None}


def _of(points: Sequence[MeasuredPoint], op: str) -> list[MeasuredPoint]:
    return [point for point in points if point.op == op]


def _seconds(points: Sequence[MeasuredPoint], op: str) -> float | None:
    own = _of(points, op)
    return own[0].timing.median if own else None


def _contention(points: Sequence[MeasuredPoint], sms: int) -> Number | None:
    alone, own = _seconds(points, "product_alone"), _of(points, "product_beside_all_reduce")
    if alone is None or not own:
        return None
    lost = [1 - alone / p.timing.median / (1 - p.shape["ctas"] / sms) for p in own]
    middle, low, high = (min(1.0, max(0.0, one)) for one in (median(lost), min(lost), max(lost)))
    counts = ", ".join(str(point.shape["ctas"]) for point in own)
    note = f"a product beside all-reduces on {counts} SMs, these taken off; the ends of all"
    return Number(middle, low, high, note, "measured")


def _fewest(own: Sequence[MeasuredPoint], count: str, what: str) -> Number | None:
    """The fewest SMs that reach the best rate; the range goes to the neighbours."""
    if not own:
        return None
    ordered = sorted(own, key=lambda point: point.shape[count])
    best = min(point.timing.median for point in ordered)
    counts = [point.shape[count] for point in ordered]
    near = [best / point.timing.median >= NEAR for point in ordered]
    place = near.index(True)
    low, high = counts[max(0, place - 1)], counts[min(len(counts) - 1, place + 1)]
    note = f"{what} on {', '.join(map(str, counts))} SMs: the fewest within 5 % of the best rate"
    return Number(counts[place], low, high, note, "measured")


def _lost_rate(points: Sequence[MeasuredPoint]) -> Number | None:
    alone, beside = _seconds(points, "exchange_alone"), _seconds(points, "exchange_beside_product")
    if alone is None or beside is None:
        return None
    copies = _seconds(points, "exchange_beside_product_and_copies")
    lost = [max(0.0, 1 - alone / each) for each in (beside, copies or beside)]
    note = (
        "an all-to-all beside products without pause; the high end beside copies to the host, too"
    )
    return Number(lost[0], min(lost), max(lost), note, "measured")


def _wait(points: Sequence[MeasuredPoint]) -> Number | None:
    alone, own = _seconds(points, "exchange_alone"), _of(points, "exchange_wait")
    if alone is None or not own:
        return None
    timing = own[0].timing
    taken = timing.median, timing.lower, timing.upper
    middle, low, high = (max(0.0, each - alone) for each in taken)
    note = "an all-to-all behind a product and no barrier, less one behind a barrier"
    return Number(middle, low, high, note, "measured", "seconds")


def _sm_rate(points: Sequence[MeasuredPoint]) -> Number | None:
    own = _of(points, "deepep_dispatch") + _of(points, "deepep_combine")
    if not own:
        return None
    fewest = min(point.shape["sms"] for point in own)
    rates = [p.bytes / p.timing.median / fewest for p in own if p.shape["sms"] == fewest]
    note = f"DeepEP's dispatch and combine on {fewest} SMs"
    return Number(median(rates), min(rates), max(rates), note, "measured", "bytes_per_s")
