"""The processes of an update, from a run's configuration or its folder: ranks that hold the model
as the trainer cuts it, and ranks of a layout that receive it.

What updates did, as a document and as text; and as a timeline that the twin's app opens.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import ValidationError

from reference.checkpoint.folder import MANIFEST, DamagedError, IntactCheckpoint, load_tensors
from reference.checkpoint.folder import read as read_checkpoint
from reference.cluster.namespaces import LOOPBACK, LocalCluster, Seat, laid_out
from reference.config import RunSpec, load_run
from reference.ending import answer, say, section_of
from reference.model import Transformer
from reference.model.transformer import initialize
from reference.parallel import timeline
from reference.parallel.mesh import Mesh, mesh_of
from reference.parallel.world import stage_of
from reference.trainer.settings import CHECKPOINTS, DTYPES, weights_of
from reference.weight_sync.controller import Controller, Peer, SyncJob, UpdateResult, forked, serve
from reference.weight_sync.layout import SYNC_OPTIONS, SyncSpec, WeightBucket, largest, read_layout
from reference.weight_sync.needs import in_memory
from reference.weight_sync.pipeline import Stage, Stages, StageSpan, overlapped, summed
from reference.weight_sync.ranks import Receiver, Sender
from twin.errors import Problem, UsageError
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


_KILLED = 9
"""Exit code of a receiver that ends on purpose."""
Hook = Callable[[WeightBucket], None]


@dataclass(frozen=True, slots=True)
class WeightSource:
    """A run whose weights travel; without a checkpoint they are those that it begins with."""

    run: RunSpec
    checkpoint: Path | None

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters."""
        return DTYPES[self.run.train.precision]


@dataclass(frozen=True, slots=True)
class _Neighbours:
    """Ranks that share experts, and send each other nothing here."""

    size: int


def source_of(config: str, overrides: list[str]) -> WeightSource:
    """The run of a configuration, a preset, a run's folder or one of its checkpoints. Raises what
    `load_run` does, and UsageError TW627 for a folder without a checkpoint."""
    folder = Path(config)
    if not folder.is_dir():
        return WeightSource(load_run(config, overrides), None)
    checkpoints = sorted((folder / CHECKPOINTS).glob("step-*"))
    checkpoint = folder if (folder / MANIFEST).is_file() else (checkpoints or [None])[-1]
    if checkpoint is None:
        message = f"`{folder}` holds no checkpoint"
        fix = "name a run's folder, or a configuration: its first weights travel then"
        raise UsageError([Problem("TW627", "CONFIG", message, fix)])
    return WeightSource(_run_of(checkpoint, overrides), checkpoint)


def _run_of(checkpoint: Path, overrides: list[str]) -> RunSpec:
    """What a checkpoint says of its run, but for how it was cut: `parallel` is the overrides'."""
    try:
        manifest: dict[str, Any] = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))
        run = RunSpec.model_validate(manifest["config"])
    except (OSError, ValueError, KeyError, ValidationError):
        message = f"`{checkpoint / MANIFEST}` is no manifest of this version"
        raise UsageError([Problem("TW627", "CONFIG", message, "name another run")]) from None
    other = [text for text in overrides if not text.startswith("parallel.")]
    if other:
        message = f"`{other[0]}` would change a run that was trained"
        raise UsageError([Problem("TW627", "--set", message, "only `parallel` may be set")])
    parallel = load_run("nano", overrides).parallel
    return run.model_copy(update={"parallel": parallel})


def mesh_for(run: RunSpec, ranks: int | None) -> Mesh:
    """The trainer's ranks; as few as its layout has without a number."""
    count = ranks or run.parallel.pipeline * run.parallel.expert
    per = max(1, count // run.parallel.pipeline)
    return mesh_of(run.parallel, count, per * 4 * run.parallel.pipeline * run.parallel.virtual)


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """Where a process runs: its network card, and the device that the run asks for."""

    seat: Seat
    device: str

    def enter(self, number: int) -> torch.device:
        """Be there, with one thread; the device, of several GPUs the one that is its turn."""
        self.seat.enter()
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"] = self.seat.interface
        if self.device == "cpu" or not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", number % torch.cuda.device_count())


@dataclass(slots=True)
class Running:
    """The processes of an update, and how to start one anew."""

    controller: Controller
    places: Sequence[ProcessPlace]

    def again(self, number: int) -> Peer:
        """A new process for a receiver, in its place."""
        rank = len(self.controller.senders) + number
        return forked(f"receiver {number}", partial(_receive, None, (self.places[rank], rank)))


@contextmanager
def started(
    source: WeightSource, mesh: Mesh, job: SyncJob, hook: tuple[int, Hook]
) -> Iterator[Running]:
    """The processes of a job within, joined by links of a rate if it has one, with a hook for the
    receiver of one number (-1: none)."""
    with ExitStack() as held:
        ranks = mesh.ranks + job.layout.ranks
        seats: Sequence[Seat] = (LOOPBACK,) * ranks
        if job.sync.rate is not None:
            cluster = LocalCluster(nodes=ranks, rate=job.sync.rate)
            seats = held.enter_context(laid_out(cluster))
        places = [ProcessPlace(seat, source.run.train.device) for seat in seats]
        peers: list[Peer] = []
        for rank, place in enumerate(places):
            number = rank - mesh.ranks
            if number < 0:
                work = partial(_send, source, mesh, (place, rank))
                peers.append(forked(f"sender {rank}", work))
            else:
                own = hook[1] if hook[0] == number else None
                peers.append(forked(f"receiver {number}", partial(_receive, own, (place, rank))))
        try:
            controller = Controller(job, peers[: mesh.ranks], peers[mesh.ranks :])
            held.callback(controller.end)
            yield Running(controller, places)
        finally:
            for peer in peers:
                peer.end()


def _send(
    source: WeightSource, mesh: Mesh, where: tuple[ProcessPlace, int], connection: Connection
) -> None:
    place, rank = where
    device = place.enter(rank)
    made: list[Transformer] = []

    def parts() -> list[Transformer]:
        if not made:
            made.extend(part.to(device) for part in _parts(source, mesh, rank))
        return made

    serve(Sender(parts, device, place.seat.address), connection)


def _receive(hook: Hook | None, where: tuple[ProcessPlace, int], connection: Connection) -> None:
    place, rank = where
    device = place.enter(rank)
    hooks = (hook,) if hook is not None else ()
    serve(Receiver(in_memory(device), device, *hooks), connection)


def _parts(source: WeightSource, mesh: Mesh, rank: int) -> list[Transformer]:
    """What a rank of the trainer holds."""
    run = source.run
    exchange: Any = _Neighbours(run.parallel.expert) if run.parallel.expert > 1 else None
    device = torch.device("cpu")
    held = stage_of(run.model, mesh, rank, exchange, device=device, dtype=source.dtype)
    parts = list(held.values())
    found = _intact(source.checkpoint) if source.checkpoint is not None else None
    for part in parts:
        if found is None:
            initialize(part, run.train.seed, part.part.first_expert(run.model))
        else:
            load_tensors(found, weights_of(part))
    return parts


def _intact(checkpoint: Path) -> IntactCheckpoint:
    try:
        return read_checkpoint(checkpoint)
    except DamagedError as damage:
        message = f"`{checkpoint}` is refused: {damage}"
        raise UsageError([Problem("TW626", "CONFIG", message, "name another one")]) from None


def run_command(words: argparse.Namespace) -> int:
    """Keep or read, update as often as asked, recover who was lost; tell what became of it."""
    source, layout = source_of(words.config, words.set), read_layout(words.to)
    given = {name: getattr(words, name) for name in SYNC_OPTIONS}
    sync = section_of(SyncSpec, given, "TW628")
    if words.start and source.checkpoint is None:
        message = "a start reads a checkpoint, and a configuration has none"
        raise UsageError([Problem("TW627", "--start", message, "name a run's folder")])
    lost = -1 if words.lose is None else words.lose
    if not -1 <= lost < layout.ranks:
        message = f"there is no receiver {lost} of {layout.ranks}"
        raise UsageError([Problem("TW620", "--lose", message, f"0 to {layout.ranks - 1}")])
    mesh = mesh_for(source.run, words.ranks)
    job = SyncJob(source.run.model, source.dtype, mesh, layout, sync)
    with started(source, mesh, job, (lost, _ending)) as running:
        document = _document(running, source, words)
    answer(document, [text(document)], as_json=words.json)
    return 1 if document["unequal"] else 0


def _document(running: Running, source: WeightSource, words: argparse.Namespace) -> dict[str, Any]:
    controller = running.controller
    first: dict[str, Any] = {}
    if words.start:
        assert source.checkpoint is not None
        read = controller.start(source.checkpoint, version=1)
        spans = [span for own in controller.spent().values() for span in own]
        seconds = (max(span.end for span in spans) - min(span.start for span in spans)) * 1e-9
        first["start"] = {"bytes": read, "seconds": seconds}
    else:
        controller.keep(version=1)
        controller.spent()
    results: list[UpdateResult] = []
    recoveries: list[dict[str, Any]] = []
    names: tuple[Stages, ...] = ("two", "three") if words.stages == "both" else (words.stages,)
    for stages in names * words.repeat:
        results.append(controller.update(stages))
        for number in results[-1].lost:
            say(f"receiver {number} is gone; a new process takes its place")
            again = controller.recover(number, running.again(number))
            recoveries.append(recovered(again))
    if words.timeline is not None:
        write_timeline(words.timeline, controller, results)
    updates = [updated(result) for result in results]
    rest = {"updates": updates, "recoveries": recoveries, "unequal": controller.unequal()}
    return {**described(controller), **first, **rest}


def _ending(bucket: WeightBucket) -> None:
    """Ends the process after its second bucket, as if it were killed."""
    if bucket.owner or bucket.round:
        os._exit(_KILLED)
