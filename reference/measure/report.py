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
        "fits": [asdict(one) for one in result.profile.residuals] if result.profile else [],
        "missing": result.missing,
        "files": [str(path) for path in result.files],
    }


def shares(result: Measurement) -> list[dict[str, Any]]:
    """The best rate of each operation in FLOP/s, as a share of the dense products' best and, of
    steps, of the peak (MFU)."""
    own = [point for point in result.points if point.dtype == BF16 and point.flop > 0]
    rates = {op: _best([p for p in own if p.op == op], result) for op in _ops(own)}
    dense = max((rates[op][1] for op in ("gemm", "gemm_input") if op in rates), default=0.0)
    rows: list[dict[str, Any]] = []
    for op, (point, rate) in rates.items():
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
        {"bar": name, "wanted": wanted, "reached": reached[name], "held": _held(reached, name)}
        for name, wanted in BARS.items()
    ]


def _held(reached: dict[str, float | None], name: str) -> bool | None:
    value = reached[name]
    return None if value is None else value >= BARS[name]


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
    return [point for point in points if _median(point) > SPREAD * _least(point)]


def _median(point: MeasuredPoint) -> float:
    return point.timing.wall_median or point.timing.median


def _least(point: MeasuredPoint) -> float:
    return point.timing.wall_least or point.timing.least


def text(result: Measurement) -> str:
    """The same for a person."""
    machine = result.machine
    lines = [f"{machine.device}, {machine.software}, {machine.date}", ""]
    lines += [_row(row) for row in shares(result)]
    lines += ["", *_state(result), *map(str, result.skips)]
    if machine.hopper:
        lines += [_bar(bar) for bar in bars(result, shares(result))]
    else:
        lines += [_UNJUDGED]
    if result.profile is None:
        lines += [f"no profile yet: it also needs points of {result.missing} in the same folder"]
    else:
        lines += ["", *map(str, result.profile.residuals)]
        steps = [path for path in result.files if path.name.startswith("step-")]
        lines += ["", f"wrote {len(result.files)} files to {result.folder}"]
        lines += [f"the twin's answer: twin run {path}" for path in steps]
    return "\n".join(lines)


_UNJUDGED = (
    "skipped the bars: 25 % MFU of the small preset, attention and grouped products at 60 % of "
    "dense ones: they are for a Hopper GPU"
)


def _state(result: Measurement) -> list[str]:
    count, total = len(disturbed(result.points)), len(result.points)
    load = max(result.loads, default=0.0)
    word = "busy" if result.was_busy else "quiet"
    noun = "GPUs" if result.machine.kind == "cuda" else "cores"
    line = (
        f"the machine was {word} (load up to {load:.1f} on {result.machine.count} {noun}); of "
        f"{total} points {count} have a median 10 % above their least; fits take the "
        f"{result.statistic}"
    )
    return [line]


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


def _best(points: Sequence[MeasuredPoint], result: Measurement) -> tuple[MeasuredPoint, float]:
    fastest = max(points, key=lambda point: point.rate(result.statistic))
    return fastest, fastest.rate(result.statistic)


def _ops(points: Iterable[MeasuredPoint]) -> list[str]:
    return [op for op in dict.fromkeys(point.op for point in points) if "dispatch" not in op]
