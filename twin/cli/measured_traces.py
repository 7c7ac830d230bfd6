"""`twin measured TRACE... [SCENARIO]`: where the steps of profiled ranks went, and what a plan says
of their layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from twin.cli.output import Output
from twin.evidence.traces.accounted import Accounted, accounted, arrivals
from twin.evidence.traces.chrome import SUFFIXES
from twin.evidence.traces.predicted import EXCHANGES, PredictedLayers, predicted_layers
from twin.evidence.traces.rank import RankTrace
from twin.evidence.traces.read import read_rank, together
from twin.loading import load
from twin.planning import plan
from twin.planning.types import Mesh
from twin.reports.breakdown import CAUSE_WORDS, CAUSES, in_seconds, mean
from twin.reports.table import Table, duration, headed, show, signed

VERSION: Final = 1
"""Version of the JSON document."""
_LISTED: Final = 16
"""Ranks and annotations that a table lists."""


def is_trace(path: str) -> bool:
    """Whether a path names a profiler's trace."""
    return path.endswith(SUFFIXES)


def measured_traces(
    paths: Sequence[str],
    scenario: str | None,
    sets: Sequence[str],
    step: int | None,
    output: Output,
) -> None:
    """Where the steps of these ranks went, with what a scenario's plan says of their layers."""
    ranks = together(rank for path in paths for rank in read_rank(Path(path)))
    planned = plan(load(scenario, sets)) if scenario is not None else None
    sizes = group_sizes(planned.mesh) if planned else ()
    chosen = step if step is not None else chosen_step(ranks)
    begun = arrivals(ranks)
    found = [accounted(rank, chosen, sizes, came) for rank, came in zip(ranks, begun, strict=True)]
    layers = predicted_layers(found[0], planned) if planned else None
    for rank in ranks:
        for text in _troubles(rank):
            output.message(text)
    output.answer(
        _document(ranks, found, chosen, layers),
        _sentences(ranks, found, chosen, layers),
        _tables(ranks, found, layers),
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


def _troubles(rank: RankTrace) -> list[str]:
    found: list[str] = []
    if rank.torn:
        found.append(f"`{rank.file}` ends early: what came before is counted.")
    if rank.skipped:
        found.append(f"`{rank.file}`: {rank.skipped:,} events have another form and are left out.")
    return found


def _sentences(
    ranks: Sequence[RankTrace],
    found: Sequence[Accounted],
    step: int | None,
    layers: PredictedLayers | None,
) -> list[str]:
    first = found[0]
    what = "The trace" if step is None else f"Step {step}"
    busy = first.row["compute"] / max(1, first.step_ns)
    where = f" of rank {ranks[0].rank}" if ranks[0].rank is not None else ""
    said = f"{what}{where} took {duration(first.step_ns / 1e9)}, {show(busy, '%')} of it compute"
    if first.passes[0]:
        ahead, behind = first.passes
        said += f", in {ahead} forward and {behind} backward layers"
    texts = [f"{said}."]
    if layers:
        worst = layers.worst
        texts.append(
            f"The plan says {duration(layers.predicted_seconds)} for {layers.layers} such layers, "
            f"{signed(100 * layers.error)} %. Of its kernels it misses most in {worst.name}: "
            f"look at {worst.numbers} of the profile."
        )
    return texts


def _document(
    ranks: Sequence[RankTrace],
    found: Sequence[Accounted],
    step: int | None,
    layers: PredictedLayers | None,
) -> dict[str, Any]:
    return {
        "version": VERSION,
        "format": "trace",
        "step": step,
        "ranks": [
            {
                "file": rank.file,
                "rank": rank.rank,
                "of": rank.ranks,
                "gpu": rank.gpu,
                "steps": sorted(rank.steps),
                "step_seconds": one.step_ns / 1e9,
                "breakdown": in_seconds(one.row),
                "unknown_seconds": one.unknown_ns / 1e9,
                "layers": {"forward": one.passes[0], "backward": one.passes[1]},
                "kernels": [
                    {
                        "sort": group.kind,
                        "backward": group.backward,
                        "count": group.count,
                        "seconds": group.busy_ns / 1e9,
                    }
                    for group in one.kernels
                ],
                "annotations": [
                    {"name": name, "count": count, "seconds": ns / 1e9}
                    for name, (count, ns) in _longest(one)
                ],
            }
            for rank, one in zip(ranks, found, strict=True)
        ],
        "predicted": layers and {**asdict(layers), "error": layers.error},
    }


def _longest(one: Accounted) -> list[tuple[str, tuple[int, int]]]:
    return sorted(one.annotations.items(), key=lambda item: -item[1][1])


def _tables(
    ranks: Sequence[RankTrace], found: Sequence[Accounted], layers: PredictedLayers | None
) -> list[Table]:
    tables = [_cause_table(found), _kernel_table(found)]
    if any(name for name in found[0].annotations):
        tables.append(_annotation_table(found[0]))
    if layers:
        tables.append(_layer_table(layers))
    if len(ranks) > 1:
        tables.append(_rank_table(ranks, found))
    return tables


def _cause_table(found: Sequence[Accounted]) -> Table:
    row = mean([found[0].row]) if len(found) == 1 else _mean_row(found)
    length = sum(row.values()) or 1
    table = headed("", "Where the step goes", "measured", "share")
    for cause in CAUSES:
        if row[cause]:
            share = show(row[cause] / length, "%")
            table.add_row(CAUSE_WORDS[cause], duration(row[cause] / 1e9), share)
    return table


def _mean_row(found: Sequence[Accounted]) -> dict[str, int]:
    """The mean rank's; ranks' steps differ by a little, so each is as long as it was."""
    return {cause: sum(one.row[cause] for one in found) // len(found) for cause in CAUSES}


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


def _layer_table(layers: PredictedLayers) -> Table:
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


def _rank_table(ranks: Sequence[RankTrace], found: Sequence[Accounted]) -> Table:
    used = [cause for cause in CAUSES if any(one.row[cause] for one in found)]
    table = headed("", "Rank", "step", *(CAUSE_WORDS[cause] for cause in used))
    for rank, one in list(zip(ranks, found, strict=True))[:_LISTED]:
        name = rank.file if rank.rank is None else f"{rank.rank}"
        shares = (show(one.row[cause] / max(1, one.step_ns), "%") for cause in used)
        table.add_row(name, duration(one.step_ns / 1e9), *shares)
    if len(ranks) > _LISTED:
        table.add_row(f"and {len(ranks) - _LISTED:,} more")
    return table
