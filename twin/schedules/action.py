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

    `chunk` is global: chunk c lives on stage c mod stages.
    """

    kind: Pass
    chunk: int
    microbatch: int
