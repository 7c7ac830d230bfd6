"""What a pipeline schedule says: an ordered list of actions per stage.

A simulator and a trainer both execute it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Pass = Literal["F", "B", "I", "W"]
"""`F` forward, `B` whole backward, `I` backward for the input only, `W` for the weights only."""


@dataclass(frozen=True, slots=True)
class Action:
    """Run one pass of one micro-batch through one chunk.

    `chunk` is global; the schedule's `chunk_map` says which stage holds it. A `paired` action is a
    forward that runs together with the backward (`B` or `I`) after it in the list, block by block:
    while one of the two communicates, the other computes.
    """

    kind: Pass
    chunk: int
    microbatch: int
    paired: bool = False
