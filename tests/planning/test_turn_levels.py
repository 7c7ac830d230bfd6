"""Turns walked by machine code end when the readable walk says, to the nanosecond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from twin.compiled import machine
from twin.compiled.build import build
from twin.planning.beside_turns import Beside, Copies, Lane, Reductions
from twin.planning.turn_levels import Lanes, turn_levels
from twin.schedules import SCHEDULES

SHAPES = [
    ({"kind": "1f1b"}, (4, 1, 8)),
    ({"kind": "gpipe"}, (3, 1, 5)),
    ({"kind": "zb_h1"}, (4, 1, 9)),
    ({"kind": "interleaved_1f1b"}, (4, 2, 8)),
    ({"kind": "interleaved_1f1b", "overlap_all_to_all": True, "extra_warmup": 1}, (4, 2, 8)),
    ({"kind": "dualpipe"}, (4, 1, 12)),
]
PARTS = ("reductions", "host", "copies", "socket")
SPLITS = 3


@pytest.mark.parametrize(("schedule", "shape"), SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_machine_code_walks_turns_alike(
    schedule: dict[str, Any], shape: tuple[int, int, int], seed: int, monkeypatch: Any
) -> None:
    assert build() is not None
    assert machine.code() is not None
    drawn = np.random.default_rng(seed)
    step = turn_levels(SCHEDULES[schedule["kind"]].model_validate(schedule), *shape)
    kinds = len(step.kinds)

    def times(most: int) -> Any:
        return drawn.integers(0, most, (kinds, SPLITS))

    durations = times(100) + 100
    begins, first, second = times(60), times(60), times(200)
    lanes = Lanes(begins, (begins + first, second)) if len(step.sources) > 1 else None
    rows = [times(120) for _ in range(7)]
    passes = step.with_pass("F"), step.with_pass("B", "I")
    chosen = [name for name in PARTS if drawn.integers(2)]

    def besides() -> Sequence[Beside]:
        made: dict[str, Beside] = {
            "reductions": Reductions(rows[0], rows[1], rows[2]),
            "host": Lane(rows[3], 1),
            "copies": Copies(rows[4], rows[5], *passes),
            "socket": Lane(rows[6], 2),
        }
        return [made[name] for name in chosen]

    for message in ((0, 0, 0), (0, 30, 0), (20, 30, 0), (20, 30, 15)):
        one, other = besides(), besides()
        found = step.ends(durations, message, one, lanes)
        with monkeypatch.context() as patch:
            patch.setattr(machine, "code", lambda: None)
            readable = step.ends(durations, message, other, lanes)
        assert all((ours == theirs).all() for ours, theirs in zip(found, readable, strict=True))
        for ours, theirs in zip(one, other, strict=True):
            if isinstance(ours, Reductions) and isinstance(theirs, Reductions):
                assert (ours.reduced == theirs.reduced).all()
