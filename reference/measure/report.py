"""What a measurement says, for a terminal and for `--json`: rates of products, attention and whole
steps, how far the fits are from their points, what was skipped, and the bars of a Hopper GPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from reference.measure.cases import BF16
from reference.measure.points import MeasuredPoint
from reference.measure.run import Measurement

BARS: Final = {"mfu": 0.25, "attention": 0.60, "grouped": 0.60}
"""Of the `small` preset's step, and of the dense products' rate, in bf16 on a Hopper GPU."""
SPREAD: Final = 1.1
"""Median over least from which a point was disturbed."""


def summary(result: Measurement) -> dict[str, Any]:
    """Everything as plain data."""
    rates = shares(result)
    return {
        "machine": result.machine.as_dict(),
        "folder": str(result.folder),
        "model": result.model,
        "statistic": result.statistic,
        "points": len(result.points),
        "disturbed": len(disturbed(result.points)),
        "busy": result.was_busy,
        "load": max(result.loads, default=0.0),
        "skipped": [asdict(skip) for skip in result.skips],
        "rates": rates,
        "bars": bars(result, rates),
        "fits": [asdict(each) for each in result.profile.residuals] if result.profile else [],
        "missing": result.missing,
        "files": [str(path) for path in result.files],
    }


def shares(result: Measurement) -> list[dict[str, Any]]:
    """The best rate of each operation in FLOP/s, as a share of the dense products' best and, of
    steps, of the peak (MFU)."""
    fastest: dict[str, tuple[MeasuredPoint, float]] = {}
    for point in result.points:
        if point.dtype == BF16 and point.flop > 0 and "dispatch" not in point.op:
            rate = point.rate(result.statistic)
            if point.op not in fastest or rate > fastest[point.op][1]:
                fastest[point.op] = point, rate
    dense = max((fastest[op][1] for op in ("gemm", "gemm_input") if op in fastest), default=0.0)
    rows: list[dict[str, Any]] = []
    for op, (point, rate) in fastest.items():
        row: dict[str, Any] = {"op": op, "shape": dict(point.shape), "flop_per_s": rate}
        if point.group == "steps":
            row["mfu"] = rate / result.peak if result.peak else None
        elif dense:
            row["of_dense"] = rate / dense
        rows.append(row)
    return rows


def bars(result: Measurement, rates: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each bar with what was reached, at its worst shape; empty on anything but a Hopper GPU."""
    if not result.machine.hopper:
        return []
    by_op = {row["op"]: row for row in rates}
    dense = by_op.get("gemm", {}).get("flop_per_s")
    reached = {
        "mfu": by_op.get("step:kimi-k2-small", {}).get("mfu"),
        "attention": _worst(result, ("attention_forward", "attention_backward"), dense),
        "grouped": _worst(result, ("grouped", "grouped_weight"), dense),
    }
    return [
        {
            "bar": name,
            "wanted": BARS[name],
            "reached": share,
            "held": None if share is None else share >= BARS[name],
        }
        for name, share in reached.items()
    ]


def _worst(result: Measurement, ops: Sequence[str], dense: float | None) -> float | None:
    """Of every operation, with each pair of widths, the share of the dense rate that its best
    length or number of rows reaches; the least of these."""
    best: dict[tuple[object, ...], float] = {}
    for point in result.points:
        if point.op in ops and dense:
            widths = [point.shape.get(name) for name in ("heads", "query_key", "value")]
            key = (point.op, *widths, _weight(point))
            best[key] = max(best.get(key, 0.0), point.rate(result.statistic) / dense)
    return min(best.values(), default=None)


def _weight(point: MeasuredPoint) -> tuple[int, int] | None:
    """The sides of an expert's matrix; None of attention."""
    if "inner" not in point.shape:
        return None
    other = "rows" if point.op.endswith("_weight") else "inner"
    return point.shape[other], point.shape["cols"]


def disturbed(points: Iterable[MeasuredPoint]) -> list[MeasuredPoint]:
    """Points whose median lies well above their least, by the wall's clock where there is one:
    something else ran meanwhile."""

    def spread(point: MeasuredPoint) -> float:
        timing = point.timing
        return (timing.wall_median or timing.median) / (timing.wall_least or timing.least)

    return [point for point in points if spread(point) > SPREAD]


def text(result: Measurement) -> str:
    """The same for a person."""
    machine, facts = result.machine, summary(result)
    state = (
        f"the machine was {'busy' if facts['busy'] else 'quiet'} (load up to {facts['load']:.1f} "
        f"on {machine.count} {'GPUs' if machine.kind == 'cuda' else 'cores'}); of "
        f"{facts['points']} points {facts['disturbed']} have a median 10 % above their least; fits "
        f"take the {result.statistic}"
    )
    lines = [f"{machine.device}, {machine.software}, {machine.date}", ""]
    lines += [*map(_row, facts["rates"]), "", state, *map(str, result.skips)]
    lines += map(_bar, facts["bars"]) if machine.hopper else [_UNJUDGED]
    if result.profile is None:
        lines += [f"no profile yet: it also needs points of {result.missing} in the same folder"]
    else:
        lines += ["", *map(str, result.profile.residuals)]
        lines += ["", f"wrote {len(result.files)} files to {result.folder}"]
        steps = [path for path in result.files if path.name.startswith("step-")]
        lines += [f"the twin's answer: twin run {path}" for path in steps]
    return "\n".join(lines)


_UNJUDGED = (
    "skipped the bars: 25 % MFU of the small preset, attention and grouped products at 60 % of "
    "dense ones: they are for a Hopper GPU"
)


def _row(row: dict[str, Any]) -> str:
    sizes = " x ".join(f"{value:,}" for value in row["shape"].values())
    tail = ""
    if row.get("mfu") is not None:
        tail = f"  {row['mfu']:.1%} MFU"
    elif "of_dense" in row:
        tail = f"  {row['of_dense']:.0%} of dense"
    return f"{row['op']:24} {row['flop_per_s'] / 1e12:10.3f} TFLOP/s{tail}  ({sizes})"


def _bar(bar: dict[str, Any]) -> str:
    if bar["reached"] is None:
        return f"bar {bar['bar']}: not measured"
    word = "held" if bar["held"] else "MISSED"
    return f"bar {bar['bar']}: {bar['reached']:.0%} of {bar['wanted']:.0%} wanted, {word}"
