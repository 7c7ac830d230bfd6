"""Rows of kernels: seconds of single GEMMs and of attention; sums over a training trace; whole
passes of a layer.

Single kernels are read by `twin.evidence.calibrate.kernels` and priced under the profile of their
GPU whose GEMMs are known by shape, or the first in the catalog. DeepSeek's trace is of four layers,
one forward beside one backward, while DeepEP holds SMs: sums by class of kernels come from
`twin.evidence.calibrate.kernels`, exchanges and the length of the pair from the simulated passes of
the shipped scenario. One layer of Megatron-LM is `twin.evidence.calibrate.a100_rows`'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from twin.engine import lower, plan
from twin.engine.program import EXPERT, Program
from twin.evidence.calibrate.a100_rows import korthikanti_layer
from twin.evidence.calibrate.kernels import FILES, PROFILE, ROWS, Kernel, NotPriced, read, trace
from twin.evidence.validate.answer import RowResult, answering, blank, reason_of
from twin.evidence.validate.scenario_parts import gpu_spec
from twin.evidence.validate.suite import PublishedRow, Unreadable, number
from twin.loading import catalog_parts, load, load_part
from twin.reports.passes import Passes, passes
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec

SECONDS: Final = "kernel_seconds"
GARBLED: Final = "its shapes and times cannot be read"
MOST: Final = 1e30
"""More FLOP, or seconds, than any kernel has."""


@answering(SECONDS, "")
def answers(row: PublishedRow) -> Iterator[RowResult]:
    """Seconds of every kernel of a row, one answer each."""
    profile = profile_of(row)
    for kernel in kernels_of(row):
        yield answer(row, kernel, kernel.predicted(*profile), profile[1])


def answer(
    row: PublishedRow, kernel: Kernel, predicted: float, calibration: CalibrationSpec
) -> RowResult:
    """The answer to one kernel, named by its shape."""
    return replace(
        blank(row, SECONDS),
        id=f"{row.id}[{kernel.shape}]",
        predicted=predicted,
        measured=kernel.measured,
        stack=calibration.name,
    )


def kernels_of(row: PublishedRow) -> tuple[Kernel, ...]:
    """What a row measured. Raises `Unreadable` with the reason where the twin has no such
    kernel."""
    try:
        found = read(row.fields)
    except NotPriced as why:
        raise Unreadable(str(why)) from None
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        raise Unreadable(GARBLED) from None
    numbers = (
        n for kernel in found for n in (kernel.measured, kernel.work.flop, kernel.work.bytes)
    )
    if not all(0 < number < MOST for number in numbers):
        raise Unreadable(GARBLED)
    return found


def profile_of(row: PublishedRow) -> tuple[GpuSpec, CalibrationSpec]:
    """A row's GPU and the calibration of its kernels."""
    gpu = gpu_spec(_PLAIN.get(row.gpu, row.gpu).removesuffix(" SXM"))
    return gpu, load_part("calibrations", _profile(gpu.name)).spec


_PLAIN: Final = {"A100 SXM": "A100-80GB", "H100 (power/clock-limited dev machine)": "H100"}
"""GPUs in the words of sources. Products of 40 and of 80 GB A100 run on the same tensor cores; what
is limited is refused for that."""


@cache
def _profile(gpu: str) -> str:
    for name in (*FILES, *catalog_parts("calibrations")):
        if load_part("calibrations", name).spec.gpu == gpu:
            return name
    raise Unreadable(f"the catalog has no calibration of {gpu}")


TRACED: Final = "profile-data-train-"
"""How ids of rows of DeepSeek's trace begin."""
SCENARIO: Final = "deepseek-v3-2048xh800"
"""The shipped scenario with four layers of DeepSeek-V3 per chunk, as in the trace."""
EVEN: Final = ("train.routing=balanced",)
"""How the trace was routed."""
PAIR: Final = "phase_pair_seconds"


@answering(SECONDS, "")
def traces(row: PublishedRow) -> Iterator[RowResult]:
    """Seconds of a class of kernels in a trace, of a pair of passes, or of one layer's passes."""
    if row.id.startswith(TRACED):
        yield _traced(row, row.id.removeprefix(TRACED))
    elif {"fwd_ms", "bwd_ms"} <= set(row.metrics.get("columns", ())):
        yield from _layer(row)
    else:
        raise Unreadable("sums of a trace whose kernels are not told")


def _traced(row: PublishedRow, name: str) -> RowResult:
    """The answer to one row of DeepSeek's trace."""
    reason = reason_of("traces", name)
    if reason is not None:
        raise Unreadable(reason)
    if name == "chunk-total":
        return _trace_answer(row, PAIR, _pair(), "gpu_span_ms", SCENARIO)
    if name in _exchanges():
        return _trace_answer(row, SECONDS, _exchanges()[name], "total_ms", SCENARIO)
    if name in _classes():
        return _trace_answer(row, SECONDS, _classes()[name], "total_ms", PROFILE)
    raise Unreadable("a class of kernels of the trace that the twin does not have")


def _trace_answer(
    row: PublishedRow, metric: str, predicted: float, key: str, stack: str
) -> RowResult:
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


def _layer(row: PublishedRow) -> Iterator[RowResult]:
    """Forward and backward of one layer of Megatron-LM (Korthikanti et al. 2022, Table 4)."""
    if not row.source.startswith("Korthikanti et al"):
        raise Unreadable("passes of a layer that is not told")
    known = {name: times for name, times in row.metrics.items() if name != "columns"}
    try:
        runs = korthikanti_layer(known)
    except (KeyError, TypeError, ValueError):
        raise Unreadable("its techniques and times cannot be read") from None
    for run in runs:
        yield replace(
            blank(row, f"phase_{run.name.rsplit('-', 1)[1]}_seconds"),
            id=f"{row.id}[{run.name.removeprefix('t4-')}]",
            predicted=run.predicted(()),
            measured=run.measured,
            stack="a100-megatron",
        )
