"""One rank per stage gives what all ranks give, for every schedule, while symmetry holds."""

from __future__ import annotations

import pytest

from tests.engine.scenarios import dense, moe
from twin.engine import lower, plan, simulate
from twin.scenario import Scenario
from twin.schedules import KNOWN

pytestmark = pytest.mark.usefixtures("each_player")

GPIPE = "parallel.schedule=gpipe"
DUALPIPE = "parallel.schedule=dualpipe"
ZB_H1 = "parallel.schedule=zb_h1"
ZB_H2 = "parallel.schedule=zb_h2"
KIMI_K2 = (
    "parallel.schedule={kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true,"
    " defer_weight_grad: true}"
)
SEQUENCE = ("parallel.sequence_parallel=true", "memory.recompute=[attention_core]")
GATHERED = ("parallel.zero=1", "parallel.overlap_param_gather=true")
CASES = {
    "gpipe, experts on one node": moe(2, 2, 1, 8, GPIPE),
    "gpipe, tensor": dense(1, 2, 1, 2, GPIPE),
    "1f1b, experts across nodes": moe(4, 2, 1, 16),
    "1f1b, tensor, data": dense(2, 4, 1, 2),
    "1f1b, tensor and sequence parallel": dense(1, 2, 1, 4, *SEQUENCE),
    "1f1b, tensor in pieces": dense(2, 2, 1, 4, *SEQUENCE, "parallel.overlap_tensor=pieces"),
    "1f1b, no ZeRO": dense(1, 2, 1, 2, "parallel.zero=0"),
    "interleaved, experts on one node": moe(4, 4, 2, 8),
    "interleaved, experts across nodes": moe(8, 4, 2, 16),
    "interleaved, tensor": dense(4, 4, 3, 8),
    "kimi-k2, experts on one node": moe(4, 4, 2, 8, KIMI_K2),
    "kimi-k2, experts across nodes": moe(8, 4, 2, 16, KIMI_K2),
    "zb_h1, experts on one node": moe(4, 4, 1, 8, ZB_H1),
    "zb_h1, tensor and sequence parallel": dense(4, 4, 1, 2, ZB_H1, *SEQUENCE),
    "zb_h2, experts on one node": moe(4, 4, 1, 8, ZB_H2),
    "zb_h2, weights gathered first": dense(2, 4, 1, 2, ZB_H2, *GATHERED),
    "zb_h2, tensor, tied embeddings": dense(2, 4, 1, 2, ZB_H2, "model.tied_embeddings=true"),
    "dualpipe, experts on one node": moe(4, 4, 1, 8, DUALPIPE),
    "dualpipe, experts across nodes": moe(8, 4, 1, 16, DUALPIPE),
    "dualpipe, no layer in the first part": moe(2, 2, 1, 4, DUALPIPE, "parallel.layers=[0,9]"),
    "dualpipe, tied embeddings": dense(2, 4, 1, 2, DUALPIPE, "model.tied_embeddings=true"),
}


def test_every_schedule_has_a_case() -> None:
    assert {case.parallel.schedule.kind for case in CASES.values()} == set(KNOWN)


@pytest.mark.parametrize("name", CASES)
def test_folded_equals_all_ranks(name: str) -> None:
    scenario: Scenario = CASES[name]
    resolved = plan(scenario)
    assert resolved.mesh.ranks <= 64
    folded = simulate(lower(resolved, "folded"))
    every = simulate(lower(resolved, "all"))
    assert len(every.roles) == resolved.mesh.ranks
    assert folded.step_ns == every.step_ns
    width = resolved.mesh.ranks // resolved.mesh.pipeline
    for rank, row in enumerate(every.breakdown_ns):
        assert row == folded.breakdown_ns[rank // width]
    assert folded.link_bytes == pytest.approx(every.link_bytes, rel=1e-12)
