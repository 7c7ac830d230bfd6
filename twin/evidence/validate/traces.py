"""Rows of kernels summed over a training trace, and of whole passes of a layer.

DeepSeek's trace is of four layers, one forward beside one backward, while DeepEP holds SMs: sums by
class of kernels come from `twin.evidence.calibrate.trace`, of the exchanges and the length of the
pair from the played passes of the shipped scenario. One layer of Megatron-LM is
`twin.evidence.calibrate.rows`'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Final

from twin.engine import lower
from twin.engine.program import EXPERT, Program
from twin.evidence.calibrate.rows import korthikanti_layer
from twin.evidence.calibrate.trace import PROFILE, ROWS, trace
from twin.evidence.validate.answer import Answer, blank, refused
from twin.evidence.validate.kernels import SECONDS
from twin.evidence.validate.row import Row, Unreadable, number
from twin.loading import load
from twin.planning import plan
from twin.reports.passes import Passes, passes

TRACED: Final = "profile-data-train-"
"""How ids of rows of DeepSeek's trace begin."""
SCENARIO: Final = "deepseek-v3-2048xh800"
"""The shipped scenario with four layers of DeepSeek-V3 per chunk, as in the trace."""
EVEN: Final = ("train.routing=balanced",)
"""How the trace was routed."""
PAIR: Final = "phase_pair_seconds"
_MET: Final = "where ranks meet before exchanges: the twin knows the sum of both such kernels only"
_UNSEEN: Final[Mapping[str, str]] = MappingProxyType(
    {"deepep-notify-dispatch": _MET, "deepep-cached-notify": _MET}
)


def answers(row: Row) -> tuple[Answer, ...]:
    """Seconds of a class of kernels in a trace, of a pair of passes, or of one layer's passes."""
    if row.id.startswith(TRACED):
        return (_traced(row, row.id.removeprefix(TRACED)),)
    if {"fwd_ms", "bwd_ms"} <= set(row.metrics.get("columns", ())):
        return _layer(row)
    return (refused(row, SECONDS, "sums of a trace whose kernels are not told"),)


def _traced(row: Row, name: str) -> Answer:
    """The answer to one row of DeepSeek's trace."""
    if name in _UNSEEN:
        return refused(row, SECONDS, _UNSEEN[name])
    if name == "chunk-total":
        return _answer(row, PAIR, _pair(), "gpu_span_ms", SCENARIO)
    if name in _exchanges():
        return _answer(row, SECONDS, _exchanges()[name], "total_ms", SCENARIO)
    if name in _classes():
        return _answer(row, SECONDS, _classes()[name], "total_ms", PROFILE)
    return refused(row, SECONDS, "a class of kernels of the trace that the twin does not have")


def _answer(row: Row, metric: str, predicted: float, key: str, stack: str) -> Answer:
    milliseconds = number(row.metrics, key)
    if milliseconds is None:
        raise Unreadable(f"the row has no `{key}`")
    known = replace(blank(row, metric), predicted=predicted, measured=milliseconds * 1e-3)
    return replace(known, stack=stack, assumed=("balanced routing", "DeepEP holds SMs throughout"))


@cache
def _classes() -> Mapping[str, float]:
    """Seconds of each class of kernels beside DeepEP, by its row."""
    return {ROWS[part.name]: part.beside for part in trace()}


@cache
def _played() -> tuple[Program, Passes, float]:
    """The shipped scenario's program, the passes of its chunks of four layers with experts, and the
    share of its links' rate that exchanges lose beside kernels."""
    scenario = load(SCENARIO, EVEN)
    made = plan(scenario)
    four = next(one for one in passes(made) if one.layers == "4 moe")
    return lower(made), four, scenario.calibration.expert_contention


@cache
def _exchanges() -> Mapping[str, float]:
    """Seconds of dispatches and combines beside kernels, over one forward and one backward of four
    layers: bytes at the rate that is left to them. The backward of a combine is a dispatch."""
    program, four, lost = _played()
    found = defaultdict[str, float](float)
    for kind in ("F", "B"):
        for step in program.passes[kind, four.chunks[0]]:
            if step.stream == EXPERT:
                alone = (step.alone_ns(program.capacity) - step.duration_ns) / 1e9
                found[_kernel(kind, step.name)] += alone / (1.0 - lost)
    return found


def _kernel(kind: str, name: str) -> str:
    if kind == "F":
        return "deepep-dispatch-fwd" if name == "dispatch" else "deepep-combine"
    return "deepep-dispatch-bwd" if name == "combine" else "deepep-combine"


def _pair() -> float:
    """Seconds of a forward beside the whole backward of another micro-batch."""
    pair = _played()[1].pair
    assert pair is not None  # the scenario's schedule pairs
    return pair


def _layer(row: Row) -> tuple[Answer, ...]:
    """Forward and backward of one layer of Megatron-LM (Korthikanti et al. 2022, Table 4)."""
    if row.source[:17] != "Korthikanti et al":
        return (refused(row, SECONDS, "passes of a layer that is not told"),)
    known = {name: times for name, times in row.metrics.items() if name != "columns"}
    try:
        runs = korthikanti_layer(known)
    except (KeyError, TypeError, ValueError):
        raise Unreadable("its techniques and times cannot be read") from None
    return tuple(
        replace(
            blank(row, f"phase_{run.name.rsplit('-', 1)[1]}_seconds"),
            id=f"{row.id}[{run.name.removeprefix('t4-')}]",
            predicted=run.predicted(()),
            measured=run.measured,
            stack="a100-megatron",
        )
        for run in runs
    )
