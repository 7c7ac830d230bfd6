"""What no order of these passes can be shorter than.

A stage cannot begin before the first micro-batch has come to its first chunk, c0. Then it has all
its work to do. So the step is at least

    max over stages s of  sum_{c < c0(s)} (F_c + message) + m sum_{c on s} (F_c + B_c) + close_s

where B_c is the shorter of a whole backward and its two halves, and each forward saves what its
best pair saves. Behind its last backward for the input, the gradient goes back through all chunks
before c0, while only weights' gradients are left to do:

    max over stages s of  sum_{c < c0(s)} (F_c + message) + m sum_{c on s} (F_c + I_c)
                          + sum_{c < c0(s)} (I_c + message) + close_0

I_c being the shorter of the backward for the input and the whole one. Stages of a staggered step do
not wait for its begin, and no other waits for their end: only their own work counts.
"""

from __future__ import annotations

import numpy as np

from twin.explore.schedules.tables import (
    BACKWARD_MESSAGE,
    BACKWARD_RESULT,
    BEFORE,
    CLOSES,
    FORWARD_MESSAGE,
    FORWARD_RESULT,
    LASTS,
    REDUCES,
    STAGE,
    Numbers,
    Tables,
)


def least_ns(tables: Tables, *, pairs: bool) -> int:
    """Nanoseconds that no step is shorter than, where no link or SM is shared."""
    return max(_of_stage(tables, stage, pairs) for stage in range(tables.stages.shape[1]))


def _of_stage(tables: Tables, stage: int, pairs: bool) -> int:
    size = tables.size
    own = [int(one) for one in np.flatnonzero(tables.chunks[STAGE] == stage)]
    forward, whole, inputs, weights = (
        tables.codes[LASTS, kind * size : (kind + 1) * size] for kind in range(4)
    )
    backward = np.minimum(whole, inputs + weights)
    saved = sum(_saved(tables, chunk, own, (backward, inputs)) for chunk in own) if pairs else 0
    work = tables.microbatches * (int((forward + backward)[own].sum()) - saved)
    close = int(tables.stages[CLOSES, stage]) + min(
        int(tables.chunks[REDUCES, chunk]) for chunk in own
    )
    if tables.staggered:
        return work + close
    ways = [_way(tables, chunk) for chunk in own]
    there = min(way[0] for way in ways)
    back = min(way[1] for way in ways)
    first = np.minimum(inputs, whole)
    least = tables.microbatches * (int((forward + first)[own].sum()) - saved)
    return max(there + work + close, there + least + back + int(tables.stages[CLOSES].min()))


def _way(tables: Tables, chunk: int) -> tuple[int, int]:
    """From the first chunk of the model to this, and back to it: passes of others and messages."""
    size, there, back = tables.size, 0, 0
    at = int(tables.chunks[BEFORE, chunk])
    below = chunk
    while at >= 0:
        there += int(tables.codes[FORWARD_RESULT, at] + tables.chunks[FORWARD_MESSAGE, below])
        inputs = min(int(tables.codes[BACKWARD_RESULT, kind * size + at]) for kind in (1, 2))
        back += inputs + int(tables.chunks[BACKWARD_MESSAGE, at])
        below, at = at, int(tables.chunks[BEFORE, at])
    return there, back


def _saved(tables: Tables, chunk: int, own: list[int], alone: tuple[Numbers, Numbers]) -> int:
    """What the forward of a chunk saves at most in a pair."""
    size, best = tables.size, 0
    backward, inputs = alone
    for other in own:
        code = 4 * size + 2 * (chunk * size + other)
        both = int(tables.codes[LASTS, chunk] + backward[other])
        weights = int(tables.codes[LASTS, 3 * size + other])
        halves = int(tables.codes[LASTS, chunk] + inputs[other])
        best = max(
            best,
            both - int(tables.codes[LASTS, code]),
            both - int(tables.codes[LASTS, code + 1]) - weights,
            halves - int(tables.codes[LASTS, code + 1]),
        )
    return best
