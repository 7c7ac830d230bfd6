"""Whole steps of the trainer on a device on paper: nothing is used before its time."""

from __future__ import annotations

import pytest

from reference.config import RunSpec
from reference.train import train
from tests.reference.ordering import on_paper
from tests.reference.parallel.ranks import run_ranks
from tests.reference.train.mini import Load

K2 = "{kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true, defer_weight_grad: true}"
AWAY = "memory.offload=[activations, optimizer]"
PACKED = "memory.fp8_store=[moe_up_input, swiglu_input]"
RUNS: dict[str, tuple[int, list[str]]] = {
    "one rank": (1, [AWAY, PACKED, "memory.recompute=[norms, swiglu]"]),
    "one after the other": (2, ["parallel.pipeline=2", AWAY, PACKED]),
}
FURTHER: dict[str, tuple[int, list[str]]] = {
    "update on the host": (1, [AWAY, "memory.optimizer_update=host", "train.precision=bf16"]),
    "experts, sharded states": (2, ["parallel.expert=2", AWAY]),
    "deferred weights": (2, ["parallel.pipeline=2", "parallel.schedule=zb_h1", AWAY, PACKED]),
    "both ways": (2, ["parallel.pipeline=2", "parallel.schedule=dualpipe", AWAY]),
    "pairs": (
        4,
        [
            "parallel.pipeline=2",
            "parallel.virtual=2",
            "parallel.expert=2",
            f"parallel.schedule={K2}",
            "model.layers=4",
            AWAY,
            PACKED,
        ],
    ),
    "kept": (2, ["parallel.pipeline=2", "parallel.schedule=gpipe"]),
    "replicas": (2, ["parallel.zero=0", AWAY]),
}


@pytest.mark.parametrize(
    "name", [*RUNS, *(pytest.param(one, marks=pytest.mark.slow) for one in FURTHER)]
)
def test_a_run_uses_nothing_before_its_time(name: str, load: Load) -> None:
    ranks, overrides = (RUNS | FURTHER)[name]
    run = load("train.steps=2", "train.accumulate=4", "train.output=null", *overrides)
    for found, uses in run_ranks(ranks, watched, run):
        assert found == []
        assert uses > 1000


def watched(rank: int, ranks: int, run: RunSpec) -> tuple[list[str], int]:
    del rank, ranks
    with on_paper() as paper:
        assert train(run).ended == "done"
    return paper.found, paper.uses
