"""What updates did, as a document and as text; and as a timeline that the twin's app opens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from reference.parallel import timeline
from reference.weight_sync.buckets import largest
from reference.weight_sync.controller import Controller, UpdateResult
from reference.weight_sync.record import Stage, StageSpan, overlapped, summed
from twin.units import format_quantity

VERSION: Final = 1
_WIDTH: Final = 11
_STREAMS: Final[dict[Stage, timeline.Stream]] = {
    "keep": "to_host",
    "read": "from_host",
    "host_copy": "from_host",
    "fetch": "from_host",
    "broadcast": "data",
    "reload": "compute",
}
"""What of an update is on which queue of a device; joining and waiting are on none."""


def described(controller: Controller) -> dict[str, Any]:
    """What travels, and how it is cut."""
    job, space = controller.job, controller.buffers
    made = controller.buckets(space)
    return {
        "version": VERSION,
        "kind": "weight_sync",
        "model": job.model.name,
        "dtype": str(job.dtype).removeprefix("torch."),
        "from": {"ranks": job.mesh.ranks, "parallel": job.mesh.spec.model_dump(mode="json")},
        "to": {"ranks": job.layout.ranks, **job.layout.model_dump(mode="json")},
        "sync": job.sync.model_dump(mode="json"),
        "tensors": len(controller.units),
        "payload_bytes": controller.payload,
        "largest_bytes": largest(controller.units),
        "buffers": asdict(space),
        "buckets": len(made),
        "rounds": 1 + max(bucket.round for bucket in made),
        "kept_bytes": controller.kept,
    }


def updated(outcome: UpdateResult) -> dict[str, Any]:
    """One update: its time is from the first copy from the host to the end of the last reload;
    `asked_seconds` has joining and the controller's messages, too."""
    senders, receivers = _spans(outcome)
    apart = ("regroup", "keep", "read")
    work = [span for span in (*senders, *receivers) if span.stage not in apart]
    sent = sum(report.bytes for report in outcome.senders.values())
    last = max((span.end for span in work), default=0)
    return {
        "stages": outcome.stages,
        "seconds": (last - min((span.start for span in work), default=0)) * 1e-9,
        "asked_seconds": outcome.seconds,
        "sent_bytes": sent * len(outcome.receivers),
        "by_stage": summed(senders, receivers),
        "overlap_seconds": overlapped(senders, receivers),
        "lost": list(outcome.lost),
        "failed": {
            str(number): [problem.as_dict() for problem in problems]
            for number, problems in outcome.failed.items()
        },
        "attempts": outcome.attempts,
    }


def recovered(outcome: UpdateResult) -> dict[str, Any]:
    """A recovery: the time in which the receiver had its weights again, its process there."""
    ((number, report),) = outcome.receivers.items()
    return {"receiver": number, "seconds": outcome.seconds, "bytes": report.bytes}


def text(document: dict[str, Any]) -> str:
    """The document for people."""
    size = _bytes(document["payload_bytes"])
    buffers = document["buffers"]
    what = (
        f"{document['model']}: {document['tensors']} tensors, {size}, from "
        f"{document['from']['ranks']} ranks to {document['to']['ranks']}, in "
        f"{document['buckets']} buckets of at most {_bytes(buffers['bytes'])} "
        f"({document['rounds']} rounds, {buffers['count']} buffers)."
    )
    heads = ("update", "host copy", "broadcast", "reload", "waiting", "overlap")
    lines = [what, "", f"{'stages':<8}" + "".join(f"{head:>{_WIDTH}}" for head in heads)]
    for update in document["updates"]:
        by = update["by_stage"]
        names = ("host_copy", "broadcast", "reload", "handover")
        each = [by[name]["seconds"] if name in by else 0.0 for name in names]
        cells = [update["seconds"], *each, update["overlap_seconds"]]
        shown = "".join(f"{_seconds(cell):>{_WIDTH}}" for cell in cells)
        lost = f"  receiver {update['lost'][0]} lost" if update["lost"] else ""
        lines.append(f"{update['stages']:<8}{shown}{lost}")
    lines.append("")
    if "start" in document:
        read = ", ".join(_bytes(size) for size in document["start"]["bytes"])
        lines.append(
            f"Read from the checkpoint, each byte by one rank: {read} "
            f"in {_seconds(document['start']['seconds'])}."
        )
    lines += [
        f"Receiver {recovery['receiver']} recovered alone in {_seconds(recovery['seconds'])}: "
        f"{_bytes(recovery['bytes'])}."
        for recovery in document["recoveries"]
    ]
    wrong = document["unequal"]
    good = "Every receiver holds, bit for bit, what was sent."
    lines.append(good if not wrong else f"NOT what was sent: {', '.join(wrong[:8])}")
    return "\n".join(lines)


def write_timeline(folder: Path, controller: Controller, outcomes: Sequence[UpdateResult]) -> None:
    """The timelines of all ranks, senders first, an update per step: `twin measured FOLDER`."""
    senders, ranks = len(controller.senders), len(controller.senders) + len(controller.receivers)
    header = {
        "ranks": ranks,
        "stage": 0,
        "parallel": {},
        "model": controller.job.model.name,
        "microbatches": 1,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    for rank in range(ranks):
        tape = timeline.Tape()
        tape.open(folder / timeline.FOLDER, rank, header, anew=True)
        for tape.step, outcome in enumerate(outcomes, 1):
            reports = outcome.senders if rank < senders else outcome.receivers
            report = reports.get(rank if rank < senders else rank - senders)
            for span in report.spans if report is not None else ():
                if span.stage in _STREAMS:
                    tape.span(_timeline_span(tape.step, span))
            tape.end_step(outcome.start, outcome.end)
        tape.close()


def _timeline_span(step: int, span: StageSpan) -> timeline.TimelineSpan:
    group = "world" if span.stage == "broadcast" else ""
    place = step, _STREAMS[span.stage], span.stage, timeline.NOWHERE, timeline.NOWHERE
    return timeline.TimelineSpan(*place, span.start, span.end, span.bytes, group)


def _spans(outcome: UpdateResult) -> tuple[list[StageSpan], list[StageSpan]]:
    senders, receivers = (
        [span for report in reports.values() for span in report.spans]
        for reports in (outcome.senders, outcome.receivers)
    )
    return senders, receivers


def _bytes(size: float) -> str:
    return format_quantity(size, "bytes", digits=3)


def _seconds(time: float) -> str:
    return format_quantity(time, "seconds", digits=3)
