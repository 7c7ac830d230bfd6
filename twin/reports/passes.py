"""How long one pass of one micro-batch takes by itself, and a forward beside a backward of another:
the units that a pipeline is made of.

Each is played alone on one rank, with the links and SMs that its own steps share: what other stages
send meanwhile is not in it. Chunks with the same layers have the same passes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from twin.engine import lower
from twin.engine.cost_model import length_alone
from twin.engine.overlap import paired
from twin.engine.program import Program
from twin.planning.types import Plan
from twin.reports.table import Table, duration, headed


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of the passes of chunks with the same layers. `pair` is a forward with the whole
    backward of another micro-batch, block by block; None under schedules that do not pair."""

    chunks: tuple[int, ...]
    layers: str
    forward: float
    backward: float
    backward_input: float
    backward_weight: float
    pair: float | None

    def to_json(self) -> dict[str, Any]:
        """All fields, seconds named as such."""
        found = asdict(self)
        kept = {"chunks": list(self.chunks), "layers": self.layers}
        return kept | {f"{name}_seconds": found[name] for name in found if name not in kept}


def passes(plan: Plan) -> tuple[Passes, ...]:
    """The passes of every kind of chunk, the most common first."""
    program, alike = lower(plan), dict[tuple[int, ...], list[int]]()
    for chunk in plan.chunks:
        if chunk.layers:
            alike.setdefault(tuple(map(id, chunk.layers)), []).append(chunk.index)
    named = {chunk.index: chunk.layers for chunk in plan.chunks}
    found: list[Passes] = []
    for chunks in sorted(alike.values(), key=len, reverse=True):
        kinds = Counter(layer.kind for layer in named[chunks[0]])
        text = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        found.append(_of(program, tuple(chunks), text))
    return tuple(found)


def _of(program: Program, chunks: tuple[int, ...], layers: str) -> Passes:
    own = {kind: program.passes[kind, chunks[0]] for kind in ("F", "B", "I", "W")}
    seconds = {kind: length_alone(steps, program) / 1e9 for kind, steps in own.items()}
    pair = None
    if program.schedule.pairs:
        limits = program.capacity, program.sync_ns, program.beside
        pair = length_alone(paired(own["F"], own["B"], *limits).steps, program) / 1e9
    return Passes(chunks, layers, seconds["F"], seconds["B"], seconds["I"], seconds["W"], pair)


def sentence(found: tuple[Passes, ...]) -> str:
    """The most common kind of chunk in one sentence."""
    one = found[0]
    text = (
        f"A chunk of {one.layers} takes {one.forward * 1e3:.1f} ms forward, "
        f"{one.backward_input * 1e3:.1f} ms backward for its input and "
        f"{one.backward_weight * 1e3:.1f} ms for its weights"
    )
    if one.pair is None:
        return f"{text}."
    return (
        f"{text}; a forward with a whole backward of another micro-batch {one.pair * 1e3:.1f} ms."
    )


def pass_table(found: tuple[Passes, ...]) -> Table:
    """One row for each kind of chunk."""
    heads = "chunk", "chunks", "forward", "backward", "input", "weights", "pair"
    table = headed("One micro-batch, each pass alone on its rank", *heads)
    for row in found:
        times = row.forward, row.backward, row.backward_input, row.backward_weight
        pair = "" if row.pair is None else duration(row.pair)
        table.add_row(row.layers, str(len(row.chunks)), *map(duration, times), pair)
    note = "a forward beside the whole backward of another micro-batch, block by block"
    table.caption = f"pair: {note}"
    return table
