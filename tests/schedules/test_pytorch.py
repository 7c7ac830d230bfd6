"""PyTorch's own orders as an oracle, read without running: constructors look at few attributes.

`Schedule1F1B.pipeline_order` is no oracle: in torch 2.13 its last rank misses micro-batch 0 and
ends with one too many (that class does not execute it).
"""

import logging
from importlib import import_module
from typing import Any, Final

import pytest
import torch

from twin.schedules import SCHEDULES
from twin.schedules.base import Action

PIPELINING: Final[Any] = import_module("torch.distributed.pipelining")
"""Its constructors get stubs, which have no type of its own."""
INTERLEAVED = SCHEDULES["interleaved_1f1b"](kind="interleaved_1f1b")


class Stub:
    """What a schedule's constructor reads of a pipeline stage."""

    has_backward = True
    stage_index_to_group_rank = group = None
    log_prefix = ""

    def __init__(self, stages: int, index: int, chunks: int):
        self.group_rank, self.group_size = 0, stages
        self.stage_index, self.num_stages = index, chunks
        self.is_first, self.is_last = index == 0, index == chunks - 1
        self.device, self.submod = torch.device("cpu"), torch.nn.Identity()


def passes(actions) -> tuple[Action, ...]:
    """A rank's passes, without bubbles and gradient reductions."""
    return tuple(
        Action(action.computation_type.value, action.stage_index, action.microbatch_index)
        for action in actions
        if action is not None and action.computation_type.value in ("F", "B")
    )


def interleaved(stages: int, chunks: int, microbatches: int) -> tuple[tuple[Action, ...], ...]:
    own = [Stub(stages, k * stages, stages * chunks) for k in range(chunks)]
    schedule = PIPELINING.ScheduleInterleaved1F1B(own, microbatches, loss_fn=lambda a, _: a)
    return tuple(passes(schedule.pipeline_order[rank]) for rank in range(stages))


@pytest.fixture(autouse=True)
def quiet():
    """PyTorch warns of stages that are no modules of a real pipeline."""
    logging.getLogger("torch.distributed.pipelining").setLevel(logging.ERROR)


GRID = [
    (stages, chunks, microbatches)
    for stages in (1, 2, 3, 4, 8)
    for chunks in (2, 3, 4)
    for microbatches in (1, 3, 4, 6, 8, 10, 16)
    if microbatches % max(1, microbatches // stages) == 0
]


@pytest.mark.parametrize("shape", [*GRID, (16, 4, 32)], ids=str)
def test_interleaved_orders_equal_those_of_pytorch_rank_by_rank(shape):
    assert INTERLEAVED.order(*shape) == interleaved(*shape)


@pytest.mark.parametrize("shape", [(4, 2, 9), (8, 2, 17), (3, 2, 7)], ids=str)
def test_pytorch_refuses_the_microbatches_that_we_refuse(shape):
    assert INTERLEAVED.problems(*shape)
    with pytest.raises(ValueError, match="multiple of the number of rounds"):
        interleaved(*shape)


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("microbatches", [1, 3, 8])
def test_gpipe_orders_equal_those_of_pytorch_rank_by_rank(stages, microbatches):
    schedule = PIPELINING.ScheduleGPipe(Stub(stages, 0, stages), microbatches)
    theirs = schedule._get_pipeline_order()
    ours = SCHEDULES["gpipe"](kind="gpipe").order(stages, 1, microbatches)
    assert ours == tuple(passes(theirs[rank]) for rank in range(stages))
