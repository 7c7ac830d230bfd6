"""Small runs for tests of what is read out of plans and traces together, each played once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tests.engine.scenarios import dense, moe
from twin.engine import lower, plan, simulate
from twin.engine.trace import Trace
from twin.planning.types import Plan
from twin.reports import Report, report
from twin.scenario import Scenario

_K2 = "{kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true, defer_weight_grad: true}"
SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "1f1b": lambda: moe(4, 4, 1, 8, "memory.recompute=[]", "parallel.dispatcher=alltoall"),
    "gpipe": lambda: moe(4, 4, 1, 8, "parallel.schedule=gpipe"),
    "interleaved": lambda: moe(4, 4, 2, 8, "memory.recompute=[attention_core]"),
    "recompute": lambda: moe(4, 2, 2, 16, "memory.recompute=[full]"),
    "k2": lambda: moe(4, 4, 2, 8, f"parallel.schedule={_K2}"),
    "zb_h1": lambda: moe(4, 4, 1, 8, "parallel.schedule=zb_h1", "memory.recompute=[]"),
    "zb_h2": lambda: moe(4, 4, 1, 8, "parallel.schedule=zb_h2"),
    "dualpipe": lambda: moe(4, 4, 1, 8, "parallel.schedule=dualpipe"),
    "tensor": lambda: dense(2, 2, 2, 4, "parallel.sequence_parallel=true"),
    "pieces": lambda: dense(
        *(2, 2, 2, 4, "parallel.sequence_parallel=true", "parallel.overlap_tensor=pieces")
    ),
    "zero3": lambda: dense(2, 2, 1, 2, "parallel.zero=3"),
    "offload": lambda: moe(
        *(4, 4, 2, 8, "parallel.layers=[1, 1, 1, 1, 1, 2, 2, 0]"),
        f"parallel.schedule={_K2}",
        "memory={recompute: [norms, swiglu], fp8_store: [moe_up_input, swiglu_input], "
        "offload: [activations, optimizer]}",
    ),
    "long": lambda: moe(4, 4, 1, 8, "train.global_batch=2048seq", "memory.recompute=[]"),
}
"""Schedules, memory policies and shardings, by the name of the run."""
RUNS = tuple(SCENARIOS)


@cache
def played(name: str) -> tuple[Plan, Trace, Report]:
    """Plan, trace and report of a run."""
    planned = plan(SCENARIOS[name]())
    trace = simulate(lower(planned))
    return planned, trace, report(planned, trace)
