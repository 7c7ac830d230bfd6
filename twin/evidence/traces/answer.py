"""What traces of ranks say, in the words of `twin measured` and of the app: where a step went, and
what a plan says of its layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from twin.errors import Problem, UsageError
from twin.evidence.traces.accounted import Accounted, accounted
from twin.evidence.traces.chakra import read_chakra
from twin.evidence.traces.host import read_host
from twin.evidence.traces.meetings import meetings
from twin.evidence.traces.predicted import EXCHANGES, PredictedLayers, predicted_layers
from twin.evidence.traces.rank import RankTrace, read_gpus
from twin.interop.recognise import recognise, stranger
from twin.loading.files import display
from twin.planning.types import Mesh, Plan
from twin.reports.breakdown import CAUSE_WORDS, CAUSES, in_seconds
from twin.reports.table import Table, duration, headed, show, signed

VERSION: Final = 1
"""Version of the JSON document."""
_LISTED: Final = 16
"""Ranks and annotations that a table lists."""


@dataclass(frozen=True, slots=True)
class TracedRank:
    """A rank, and where its step went."""

    file: str
    rank: int | None
    """None where its trace does not say."""
    of: int | None
    gpu: str
    steps: tuple[int, ...]
    """Numbers of the steps in its trace."""
    torn: bool
    skipped: int
    ahead_ns: int
    """By how much its clock is ahead of the first rank's."""
    found: Accounted


@dataclass(frozen=True, slots=True)
class TraceAnswer:
    """Traced ranks, the step that is shown (None: all of the traces), and what a plan says of its
    layers."""

    ranks: tuple[TracedRank, ...]
    step: int | None
    layers: PredictedLayers | None

    @property
    def row(self) -> dict[str, int]:
        """The mean rank's nanoseconds by cause; ranks' steps differ by a little, so each is as long
        as it was."""
        rows = [one.found.row for one in self.ranks]
        return {cause: sum(row[cause] for row in rows) // len(rows) for cause in CAUSES}

    @property
    def troubles(self) -> list[str]:
        """What of the files could not be read, or was put right."""
        found: list[str] = []
        for one in self.ranks:
            if one.torn:
                found.append(f"`{one.file}` ends early: what came before is counted.")
            if one.skipped:
                many = f"{one.skipped:,} events have another form and are left out."
                found.append(f"`{one.file}`: {many}")
            if one.ahead_ns:
                by = duration(abs(one.ahead_ns) / 1e9)
                way = "ahead of" if one.ahead_ns > 0 else "behind"
                first = self.ranks[0].file
                found.append(f"`{one.file}`: its clock is {by} {way} that of `{first}`; counted.")
        return found

    @property
    def sentences(self) -> list[str]:
        """How long the step took, what of it was work, and how far the plan is off."""
        (rank, *_), layers = self.ranks, self.layers
        first = rank.found
        what = "The trace" if self.step is None else f"Step {self.step}"
        busy = first.row["compute"] / max(1, first.step_ns)
        where = f" of rank {rank.rank}" if rank.rank is not None else ""
        said = (
            f"{what}{where} took {duration(first.step_ns / 1e9)}, {show(busy, '%')} of it compute"
        )
        if first.passes[0]:
            ahead, behind = first.passes
            said += f", in {ahead} forward and {behind} backward layers"
        texts = [f"{said}."]
        if layers:
            worst = layers.worst
            texts.append(
                f"The plan says {duration(layers.predicted_seconds)} for {layers.layers} such "
                f"layers, {signed(100 * layers.error)} %. Of its kernels it misses most in "
                f"{worst.name}: look at {worst.numbers} of the profile."
            )
        return texts

    @property
    def tables(self) -> list[Table]:
        """Causes, kernels, the trainer's own names, the plan's layers, and ranks."""
        tables = [_cause_table(self.row), _kernel_table([one.found for one in self.ranks])]
        if any(name for name in self.ranks[0].found.annotations):
            tables.append(_annotation_table(self.ranks[0].found))
        if self.layers:
            tables.append(layer_table(self.layers))
        if len(self.ranks) > 1:
            tables.append(_rank_table(self.ranks))
        return tables

    @property
    def document(self) -> dict[str, Any]:
        """The answer as a versioned document."""
        return {
            "version": VERSION,
            "format": "trace",
            "step": self.step,
            "ranks": [_rank_document(one) for one in self.ranks],
            "predicted": self.layers and {**asdict(self.layers), "error": self.layers.error},
        }


def traced(paths: Iterable[Path], planned: Plan | None, step: int | None = None) -> TraceAnswer:
    """What the traces say of a step, beside a plan; None: of the one that stands for them. Raises
    `UsageError` where a file is no trace, or nothing ran."""
    ranks = together(rank for path in paths for rank in read_rank(path))
    sizes = group_sizes(planned.mesh) if planned else ()
    chosen = step if step is not None else chosen_step(ranks)
    shared = meetings(ranks)
    came = zip(ranks, shared.begun, strict=True)
    found = [accounted(rank, chosen, sizes, begun) for rank, begun in came]
    layers = predicted_layers(found[0], planned) if planned else None
    told = map(_traced_rank, ranks, found, shared.ahead_ns)
    return TraceAnswer(tuple(told), chosen, layers)


def _traced_rank(rank: RankTrace, found: Accounted, ahead_ns: int) -> TracedRank:
    return TracedRank(
        file=rank.file,
        rank=rank.rank,
        of=rank.ranks,
        gpu=rank.gpu,
        steps=tuple(sorted(rank.steps)),
        torn=rank.torn,
        skipped=rank.skipped,
        ahead_ns=ahead_ns,
        found=found,
    )


def chosen_step(ranks: Sequence[RankTrace]) -> int | None:
    """The step that stands for a trace: the one in the middle of those that every rank has, the
    first left out where there are more than two; None where no rank names steps."""
    known = set(ranks[0].steps)
    for rank in ranks[1:]:
        known &= set(rank.steps)
    numbers = sorted(known)
    numbers = numbers[1:] if len(numbers) > 2 else numbers
    return numbers[len(numbers) // 2] if len(numbers) > 1 else None


def group_sizes(mesh: Mesh) -> tuple[tuple[int, str], ...]:
    """Ranks of each kind of group, and for what a step waits while it talks, the smaller first."""
    known = {
        mesh.tensor: "exposed_tensor",
        mesh.context: "exposed_context",
        mesh.expert: "exposed_expert",
        mesh.data: "exposed_data",
    }
    return tuple(sorted((size, cause) for size, cause in known.items() if size > 1))


def _rank_document(one: TracedRank) -> dict[str, Any]:
    found = one.found
    return {
        "file": one.file,
        "rank": one.rank,
        "of": one.of,
        "gpu": one.gpu,
        "steps": list(one.steps),
        "step_seconds": found.step_ns / 1e9,
        "breakdown": in_seconds(found.row),
        "unknown_seconds": found.unknown_ns / 1e9,
        "layers": {"forward": found.passes[0], "backward": found.passes[1]},
        "kernels": [
            {
                "sort": group.kind,
                "backward": group.backward,
                "count": group.count,
                "seconds": group.busy_ns / 1e9,
            }
            for group in found.kernels
        ],
        "annotations": [
            {"name": name, "count": count, "seconds": ns / 1e9}
            for name, (count, ns) in _longest(found)
        ],
    }


def _longest(one: Accounted) -> list[tuple[str, tuple[int, int]]]:
    return sorted(one.annotations.items(), key=lambda item: -item[1][1])


def _cause_table(row: dict[str, int]) -> Table:
    length = sum(row.values()) or 1
    table = headed("", "Where the step goes", "measured", "share")
    for cause in CAUSES:
        if row[cause]:
            share = show(row[cause] / length, "%")
            table.add_row(CAUSE_WORDS[cause], duration(row[cause] / 1e9), share)
    return table


def _kernel_table(found: Sequence[Accounted]) -> Table:
    count, busy = Counter[tuple[str, bool]](), Counter[tuple[str, bool]]()
    for one in found:
        for group in one.kernels:
            count[group.kind, group.backward] += group.count
            busy[group.kind, group.backward] += group.busy_ns
    table = headed("", "Kernels", "pass", "number", "time", left=(0, 1))
    for kind, backward in sorted(busy, key=lambda key: -busy[key]):
        key = kind, backward
        words, way = kind.replace("_", " "), "backward" if backward else "forward"
        number = f"{count[key] // len(found):,}"
        time = duration(busy[key] / len(found) / 1e9)
        table.add_row(words, way, number, time)
    return table


def _annotation_table(one: Accounted) -> Table:
    table = headed("", "The trainer's own names", "number", "kernels")
    listed = _longest(one)
    for name, (count, ns) in listed[:_LISTED]:
        table.add_row(name or "none", f"{count:,}", duration(ns / 1e9))
    if len(listed) > _LISTED:
        table.add_row(f"and {len(listed) - _LISTED:,} more")
    return table


def layer_table(layers: PredictedLayers) -> Table:
    """Traced layers beside the plan's, by sort of kernel."""
    how = "paired" if layers.paired else "one after the other"
    head = f"{layers.layers} layers ({layers.kind}) forward and backward, {how}"
    table = headed("", head, "measured", "predicted", "error", "decided by", left=(0, 4))
    whole = duration(layers.measured_seconds), duration(layers.predicted_seconds)
    table.add_row("all", *whole, f"{signed(100 * layers.error)} %", "")
    for one in layers.parts:
        off = f"{signed(100 * (one.predicted / one.measured - 1))} %" if one.measured else ""
        name = f"{one.name}, waiting included" if one.name == EXCHANGES else one.name
        table.add_row(name, duration(one.measured), duration(one.predicted), off, one.numbers)
    return table


def _rank_table(ranks: Sequence[TracedRank]) -> Table:
    used = [cause for cause in CAUSES if any(one.found.row[cause] for one in ranks)]
    table = headed("", "Rank", "step", *(CAUSE_WORDS[cause] for cause in used))
    for one in ranks[:_LISTED]:
        name, length = one.file if one.rank is None else f"{one.rank}", one.found.step_ns
        shares = (show(one.found.row[cause] / max(1, length), "%") for cause in used)
        table.add_row(name, duration(length / 1e9), *shares)
    if len(ranks) > _LISTED:
        table.add_row(f"and {len(ranks) - _LISTED:,} more")
    return table


def read_rank(path: Path) -> Sequence[RankTrace]:
    """What each GPU of a trace did, or its host where there is none. Raises `UsageError` where
    nothing ran."""
    formats = recognise(path)
    if (problem := stranger(formats, display(path), "measured")) is not None:
        raise UsageError([problem])
    if any(one.name == "chakra" for one in formats):
        return read_chakra(path)
    found = read_gpus(path) or read_host(path)
    if not found:
        message = f"`{display(path)}` holds no kernel of a GPU, and no operator or named pass"
        fix = "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        raise UsageError([Problem("TW358", "", message, fix)])
    return found


def together(ranks: Iterable[RankTrace]) -> list[RankTrace]:
    """By rank, as far as they say which they are."""
    return sorted(ranks, key=lambda one: (one.rank is None, one.rank or 0, one.device))
