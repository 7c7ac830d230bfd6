"""The verdict on an update: does it fit, how long, and what takes the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twin.kinds.weight_update.bound import WORDS
from twin.reports.numbers import digits, duration, gibibytes

if TYPE_CHECKING:  # a report prints its own verdict
    from twin.kinds.weight_update.report import UpdateReport
    from twin.kinds.weight_update.types import UpdateMemory

_DONE: Final = {
    "update": "the new weights are in all {instances} after {time}",
    "start": "all {instances} have started after {time}",
    "recover": "one instance is back after {time}",
}


def verdict(report: UpdateReport) -> str:
    """Plain sentences that answer the planner's questions."""
    travel, kpis = report.travel, report.kpis
    many = f"{travel.instances:,} instances" if travel.instances > 1 else "GPUs of the instance"
    done = _DONE[travel.event].format(instances=many, time=duration(report.update_ns / 1e9))
    rate = digits((kpis["bytes_per_second"] or 0.0) / 1e9)
    answer = (
        f"{done[0].upper()}{done[1:]}: {decimal(travel.checkpoint_bytes)} on "
        f"{travel.gpus:,} GPUs, {rate} GB/s. {_losses(report)}"
    )
    if report.fits:
        return f"{fitting(report.memory)} {answer}"
    return f"{fitting(report.memory)} If it did fit: {answer[0].lower()}{answer[1:]}"


def fitting(memory: UpdateMemory) -> str:
    """Does it fit: the room left on the device, or what is too large."""
    if memory.host_bytes > memory.host_capacity:
        return (
            f"Does not fit: the shares of the checkpoint take {gibibytes(memory.host_bytes)} of a "
            f"node's {gibibytes(memory.host_capacity)} of host memory."
        )
    over = memory.device_bytes - memory.budget
    if over <= 0:
        return f"Fits with {gibibytes(-over)} to spare on each GPU."
    parts = ", ".join(f"{name} {gibibytes(size)}" for name, size in memory.categories.items())
    return (
        f"Does not fit: {parts} are {gibibytes(over)} more than the GPU's "
        f"{gibibytes(memory.budget)}."
    )


def decimal(size: float) -> str:
    """Bytes of a checkpoint, as people tell the size of files: `1.03 TB`."""
    return f"{digits(size / 1e12)} TB" if size >= 1e12 else f"{digits(size / 1e9)} GB"


def _losses(report: UpdateReport) -> str:
    bound = report.bound
    name = WORDS[bound.stage]
    return (
        f"{name[0].upper()}{name[1:]} take {digits(100 * bound.share)} % of the time: "
        f"{bound.reason}."
    )
