"""The verdict: plain sentences that answer does it fit, how long, how much, and what is the
bottleneck."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from twin.reports.breakdown import CAUSE_WORDS, bottleneck
from twin.reports.cost import data_words
from twin.reports.table import count, digits, duration, gibibytes, show
from twin.spec.expect import FIGURES

if TYPE_CHECKING:  # a Report prints its own verdict
    from twin.reports.compare import Delta
    from twin.reports.head import Head
    from twin.reports.report import MemoryReport, Report

PLAIN: Final = "plain-all-to-all"
"""The warning of a plan whose all-to-all sends a copy of a token per chosen expert."""
_NAMED_TENSORS = 3
"""Categories that the sentence about a plan that does not fit names, largest first."""


def verdict(report: Report) -> str:
    """Does it fit, how long, how much, and what is the bottleneck; if it does not fit, what is too
    large and where."""
    answer, losses = _time_and_money(report), _bottleneck(report)
    before = f" {data_words(report.generated)}" if report.generated else ""
    if report.fits:
        return f"{fitting(report.memory)} {answer} {losses}{before}"
    told = f"If it did fit: {answer[0].lower()}{answer[1:]} {losses}{before}"
    return f"{fitting(report.memory)} {told}"


def fitting(memory: MemoryReport) -> str:
    """Does it fit: the room left, or which stage is over, by how much, with which tensors, and how
    many more are over; the same of host memory, where anything is kept there. Then what is doubtful
    about it."""
    return f"{_room(memory)}{_doubt(memory)}"


def _doubt(memory: MemoryReport) -> str:
    """How the answer may turn out otherwise, and what the allocator does to make it hold."""
    said = ""
    if memory.interval is not None and memory.may_differ:
        low, high = map(gibibytes, memory.interval)
        other = "may not fit" if memory.fits_device else "may fit"
        said += f" It {other}: the peak's 80 % interval is {low} to {high}."
    if memory.fits_device and memory.device is not None and memory.device.given_back:
        size = gibibytes(memory.device.given_back)
        said += f" PyTorch's allocator must give back {size} to fit, which slows steps."
    return said


def _room(memory: MemoryReport) -> str:
    worst = memory.peak
    if memory.fits_device:
        free = gibibytes(memory.budget - worst.peak_bytes)
        room = f"{free} to spare on the fullest GPU (stage {worst.stage})"
        if not memory.fits_host:
            return f"Does not fit: {_host_is_full(memory)} The GPUs have room: {room}."
        if memory.host and memory.host_capacity is not None:
            left = gibibytes(memory.host_capacity - memory.host_per_node)
            room += f" and {left} in the host memory of the fullest node"
        return f"Fits with {room}."
    full = "" if memory.fits_host else f" Nor does it fit on the host: {_host_is_full(memory)}"
    over = [stage for stage in memory.stages if stage.peak_bytes > memory.budget]
    reserve = gibibytes(sum(memory.reserve.values()))
    return (
        f"Does not fit: stage {worst.stage} needs {gibibytes(worst.peak_bytes)} for tensors and "
        f"has {gibibytes(memory.budget)} ({gibibytes(memory.capacity)} less {reserve} reserve), "
        f"{gibibytes(worst.peak_bytes - memory.budget)} too much; "
        f"largest there: {_named(worst.categories)}. "
        f"{len(over)} of {len(memory.stages)} stages are over.{full}"
    )


def _host_is_full(memory: MemoryReport) -> str:
    """Host memory that does not suffice: how much of it is wanted, and for what."""
    capacity = memory.host_capacity or 0.0
    return (
        f"a node has {gibibytes(capacity)} of host memory and its GPUs keep "
        f"{gibibytes(memory.host_per_node)} there, "
        f"{gibibytes(memory.host_per_node - capacity)} too much; "
        f"largest there: {_named(memory.host)}."
    )


def difference(baseline: Report, delta: Delta) -> str:
    """One sentence on a candidate: whether it can run at all, how much its step differs from the
    baseline's, and the largest cause."""
    change = _change(baseline, delta)
    if not delta.fits:
        return f"{delta.name} does not fit. If it did, {change}"
    if not baseline.fits:
        return f"{delta.name}: {change[:-1]}, if that fitted."
    return f"{delta.name}: {change}"


def _change(baseline: Report, delta: Delta) -> str:
    change = delta.step_delta_ns
    if not change:
        return f"a step takes as long as in {baseline.name}."
    word = "faster" if change < 0 else "slower"
    share = digits(100 * abs(change) / baseline.step_ns)
    cause = max(delta.breakdown_ns, key=lambda c: delta.breakdown_ns[c] * (1 if change > 0 else -1))
    return (
        f"a step is {duration(abs(change) / 1e9)} ({share} %) {word} than in "
        f"{baseline.name}; "
        f"the largest part is {CAUSE_WORDS[cause]} ({_signed(delta.breakdown_ns[cause])})."
    )


def _signed(ns: int) -> str:
    return f"{'-' if ns < 0 else '+'}{duration(abs(ns) / 1e9)}"


def _time_and_money(report: Report) -> str:
    step, mfu = report.ranged(FIGURES["step_seconds"]), show(report.kpis["mfu"], "%")
    run = length_words(report, f"{count(report.tokens)} tokens take")
    return f"A step takes {step} at {mfu} MFU. {run}{_progress(report)}"


def length_words(report: Head, begin: str) -> str:
    """Days and cost of a run in a sentence, with failures where they are known. `begin` is its
    subject and verb."""
    days, cost = (report.decisive[key] for key in ("days", "cost_usd"))
    price = "" if report.kpis[cost] is None else f" and cost {report.ranged(FIGURES[cost])}"
    whether = "without" if days == "days" else "with"
    return f"{begin} {report.ranged(FIGURES[days])}{price} {whether} failures."


def _progress(report: Report) -> str:
    """The share of the time that failures leave; nothing where the scenario says nothing of
    them."""
    goodput = report.goodput
    if goodput is None:
        return ""
    if report.kpis["days_with_failures"] is None:
        return " With failures it never ends."
    return f" {report.ranged(FIGURES['goodput_fraction'])} of the time is progress."


def _bottleneck(report: Report) -> str:
    worst = bottleneck(report.breakdown_ns)
    share = f"{_share(report.breakdown_ns[worst], report)} of the step"
    if worst == "compute":
        return f"Nothing but compute takes time ({share})."
    loss = f"The largest loss beside compute is {CAUSE_WORDS[worst]}, {share}"
    split = report.exposure.get(worst)
    if split is not None and split.ramp_ns:
        loss += f" ({_share(split.ramp_ns, report)} while the pipeline fills and drains)"
    if worst == "exposed_expert" and PLAIN in {one.code for one in report.warnings}:
        return f"{loss}: it is a plain all-to-all, so that part is an upper bound."
    return f"{loss}."


def _share(ns: int, report: Report) -> str:
    return f"{digits(100 * ns / report.step_ns)} %"


def _named(categories: Mapping[str, float]) -> str:
    ranked = sorted(categories.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{name.replace('_', ' ')} {gibibytes(size)}" for name, size in ranked if size > 0]
    return ", ".join(words[:_NAMED_TENSORS])
