"""Whether the real kernels of a paced run were done in time: where they were not, its ranks were
slower than the device that they stood in for, and the run judges the machine."""

from __future__ import annotations

from collections import Counter
from typing import Final

from twin.answers import Run
from twin.engine.lower import lower
from twin.engine.program import COMPUTE
from twin.evidence.measured import MeasuredRun
from twin.evidence.measured.moment import Line, moment
from twin.interop.export.pace import stretches

MOST: Final = 1.05
"""Times its pace that a pass may take before it counts: sleep is as exact as that. OURS."""


def overruns(real: MeasuredRun, steps: tuple[int, ...], predicted: Run) -> float:
    """The share of a run's passes, in some of its steps, that took longer than predicted."""
    wanted = {
        (kind, chunk): sum(stretches(template))
        for (kind, chunk), template in lower(predicted.plan).passes.items()
    }
    late = [
        length > MOST * wanted[name, chunk]
        for step in steps
        for line in moment(real, step).ranks
        for (name, chunk, _), length in _passes(line).items()
    ]
    return sum(late) / len(late) if late else 0.0


def _passes(line: Line) -> Counter[tuple[str, int, int]]:
    """Nanoseconds of computing of each pass of a rank, by kind, chunk and micro-batch."""
    found: Counter[tuple[str, int, int]] = Counter()
    own = line.spans
    places = zip(line.names, own.chunk.tolist(), own.microbatch.tolist(), strict=True)
    lengths = (own.end - own.start).tolist()
    for place, stream, length in zip(places, own.stream.tolist(), lengths, strict=True):
        if stream == COMPUTE and place[2] >= 0:
            found[place] += length
    return found
