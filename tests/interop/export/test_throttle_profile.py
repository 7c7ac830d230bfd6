"""The pace of the reference's ranks, by hand, and as the trainer reads it."""

from __future__ import annotations

from pathlib import Path

import twin
from reference.parallel.overlap import load_pace
from twin.answers import ask
from twin.engine.program import COMPUTE, EXPERT, Step
from twin.interop.export.base import render
from twin.interop.export.throttle_profile import stretches

LAYOUT = Path("scenarios/reference/ep2-1gbps.yaml")


def test_transfers_end_stretches_and_neighbouring_kernels_are_one() -> None:
    """5 before the dispatch, 2 + 7 up to the combine, nothing behind it."""
    template = (
        Step("forward", COMPUTE, 5, ()),
        Step("dispatch", EXPERT, 100, (0,)),
        Step("shared", COMPUTE, 2, (0,)),
        Step("forward", COMPUTE, 7, (1, 2)),
        Step("combine", EXPERT, 100, (3,)),
    )
    assert stretches(template) == (5, 9, 0)


def test_the_trainer_reads_the_seconds_of_every_pass_and_update(tmp_path: Path) -> None:
    """One dense layer and three with experts: counts, dispatch and combine in each of those."""
    scenario = twin.load(LAYOUT)
    path = tmp_path / "pace.json"
    path.write_bytes(render(ask(scenario, cache=False), "pace")[""])
    pace, program = load_pace(path), twin.lower(twin.plan(scenario))
    for (kind, chunk), template in program.passes.items():
        seconds = pace.of(chunk, kind)
        assert len(seconds) == {"F": 10, "B": 7, "I": 7, "W": 1}[kind]
        assert seconds == tuple(one / 1e9 for one in stretches(template))
    computing = sum(one.duration_ns for one in program.finish[0] if one.stream == COMPUTE)
    assert pace.update(0) == computing / 1e9 > 0
    assert pace.update(1) == 0.0
