"""Training rows: step time and peak memory, predicted by simulating the row's scenario.

Sources give a step's seconds, or tokens per second, or only a FLOP rate. The first that a row has
is taken, in the order of scenarios/published/README.md; a FLOP rate becomes seconds through the
FLOP of a step as its source counts them (`Convention`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from twin.arch.count import flop_per_token
from twin.engine import lower, plan, simulate
from twin.errors import TwinError
from twin.evidence.validate.answer import RowResult, answering, blank
from twin.evidence.validate.stacks import STATISTICS, Convention, Stack, Statistic
from twin.evidence.validate.suite import MICROBATCH, Fields, PublishedRow, Unreadable, number
from twin.evidence.validate.training import Expressed, express
from twin.loading import load
from twin.planning.replay import device_memory
from twin.planning.types import DeviceMemory, Plan
from twin.reports.breakdown import mean
from twin.reports.interval import Circumstances, circumstances
from twin.reports.tuned_step import TunedStep, tuned_step
from twin.scenario import Scenario

DOUBT: Final = 1.2
"""How much more than the device's memory a peak has to be before it is taken for certain that a
row did not run so (OURS). The ledger is at most 7 % above measured peaks; the rest is for offload
that rows do not tell, as of 20 of 80 layers of Llama 3 70B on GB300 (Megatron-Bridge, llama3
workload configs: `cpu_offloading_num_layers`), which without it is 20 % too much."""


def text_of(tree: dict[str, Any]) -> str:
    """A scenario's tree as a file that a planner can read."""
    stream = StringIO()
    writer = YAML()
    writer.dump(tree, stream)  # pyright: ignore[reportUnknownMemberType]
    return stream.getvalue()


def scenario_of(expressed: Expressed) -> Scenario:
    """The scenario of a row. Raises `Unreadable` with what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return load(write_scenario(expressed, Path(folder), "row"))
        except TwinError as error:
            raise Unreadable(_first(error)) from None


def write_scenario(expressed: Expressed, folder: Path, name: str) -> Path:
    """Writes the scenario of a row where `twin run` reads it: one file, or two where parts of the
    catalog are changed."""
    file = folder / f"{name}.yaml"
    if not expressed.over:
        file.write_text(text_of(expressed.tree), encoding="utf-8")
        return file
    base = folder / "base" / f"{name}.yaml"
    base.parent.mkdir(exist_ok=True)
    base.write_text(text_of(expressed.tree), encoding="utf-8")
    over = {"schema": 1, "extends": f"base/{name}.yaml", **expressed.over}
    file.write_text(text_of(over), encoding="utf-8")
    return file


def _first(error: TwinError) -> str:
    problem = error.problems[0]
    return f"{problem.path}: {problem.message}" if problem.path else problem.message


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """What the twin says of a scenario, and what makes it like others."""

    step_seconds: float
    device: DeviceMemory
    at: Circumstances
    tuned: TunedStep | None = None
    """Under the tuned stack, where the software is assumed."""


def play(scenario: Scenario, *, assumed: bool = False) -> SimulatedStep:
    """Simulates one step. Raises `Unreadable` where no plan can be made of the scenario."""
    made = _plan(scenario)
    trace = simulate(lower(made))
    at = replace(circumstances(made, mean(trace.breakdown_ns, trace.ranks)), assumed=assumed)
    tuned = tuned_step(made, assumed=assumed)
    return SimulatedStep(trace.step_ns / 1e9, device_memory(made), at, tuned)


def settled(expressed: Expressed) -> tuple[Expressed, Scenario]:
    """A row's scenario; where the row does not say what is computed again, with the least of its
    stack's that may fit, since what was measured did fit. Raises `Unreadable`, as above."""
    scenario = scenario_of(expressed)
    found = expressed
    for more in expressed.stack.recompute[1:] if expressed.silent else ():
        if _may_fit(scenario):
            break
        found = expressed.computing_again(more)
        scenario = scenario_of(found)
    _plan(scenario)
    return found, scenario


def _may_fit(scenario: Scenario) -> bool:
    peak = _plan(scenario).memory.peak.peak_bytes
    return peak <= DOUBT * scenario.cluster.node.gpu.memory


def _plan(scenario: Scenario) -> Plan:
    try:
        return plan(scenario)
    except TwinError as error:
        raise Unreadable(_first(error)) from None


GIB: Final = float(1 << 30)
_RESERVED: Final = "peak_reserved_gib"
"""A second peak of a row, which counts what the allocator held."""
_PEAKS: Final = {
    "peak_mem_GB": 1e9, "peak_mem_gib": GIB, "peak_mem_GiB": GIB, "peak_alloc_gib": GIB,
}  # fmt: skip
"""What peaks are called, and their units."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A measured rate: FLOP/s per GPU in some convention, or a share of the GPU's bf16 peak."""

    flop_per_second: float | None
    convention: Convention
    share: float = 0.0


def step_seconds(row: PublishedRow, batch: int | None = None) -> float | Rate | None:
    """Seconds of a step, or a rate that stands for them; None where the row has neither. `batch`:
    sequences of a step of a row that does not say."""
    metrics, derived = row.metrics, row.derived
    seconds = number(metrics, "step_s")
    if seconds is None:
        seconds = _from_tokens(row, metrics, row.batch or batch)
    if seconds is None:
        seconds = number(metrics, "derived_step_s") or number(derived, "step_s")
    if seconds is None:
        seconds = number(metrics, MICROBATCH)
    return _rate(metrics) if seconds is None else seconds


def _from_tokens(row: PublishedRow, metrics: Fields, batch: int | None) -> float | None:
    """Batch over tokens per second."""
    if batch is None or row.sequence is None:
        return None
    rate = number(metrics, "tokens_per_s")
    each = number(metrics, "tokens_per_s_per_gpu")
    if each is not None and row.gpus is not None:
        rate = each * row.gpus
    return batch * row.sequence / rate if rate else None


def _rate(metrics: Fields) -> Rate | None:
    """FLOP per second and GPU."""
    hardware = number(metrics, "hw_tflops_per_gpu")
    if hardware is not None:
        return Rate(hardware * 1e12, "hardware")
    model = number(metrics, "model_tflops_per_gpu")
    if model is not None:
        return Rate(model * 1e12, "full")
    share, peak = number(metrics, "mfu_pct"), number(metrics, "mfu_peak_tflops")
    if share is None:
        return None
    known = None if peak is None else share / 100 * peak * 1e12
    return Rate(known, "full", share / 100)


def seconds_of(rate: Rate, scenario: Scenario) -> float:
    """Seconds of a step of a scenario at a measured rate."""
    gpus, tokens = scenario.cluster.gpus, scenario.train.global_batch
    each = rate.flop_per_second or rate.share * scenario.cluster.node.gpu.bf16_dense
    return counted_flop(scenario, rate.convention) * tokens / (each * gpus)


def counted_flop(scenario: Scenario, convention: Convention) -> float:
    """FLOP of a token as a source counts them. Attention grows with the sequence, so that all of it
    is what causality leaves of one twice as long. Of hardware FLOP the forward of every layer
    counts twice, and the head's once (Narayanan et al. 2021, equation 3)."""
    model, sequence = scenario.model, scenario.train.sequence
    if convention == "causal":
        return flop_per_token(model, sequence)
    whole = flop_per_token(model, 2 * sequence)
    if convention == "full":
        return whole
    return whole + (whole - 6.0 * model.vocab * model.hidden) / 3.0


def counted(device: DeviceMemory, statistic: Statistic) -> float:
    """Bytes of the peak as a source counts them."""
    by_name = {
        "allocated": device.allocated,
        "reserved": device.reserved,
        "in use": device.in_use,
    }
    return by_name[statistic]


def statistic_of(row: PublishedRow, stack: Stack) -> Statistic:
    """What a row's peak counts: as it says, else as its stack's logs do."""
    own = row.fields.get("statistic")
    return STATISTICS[STATISTICS.index(own)] if own in STATISTICS else stack.memory


def peak_bytes(row: PublishedRow) -> float | None:
    """Bytes of device memory at the peak, as the framework reports them."""
    for name, unit in _PEAKS.items():
        found = number(row.metrics, name)
        if found is not None:
            return found * unit
    return None


STEP = "step_seconds"
PEAK = "peak_device_bytes"


@answering(STEP, "")
def answers(row: PublishedRow) -> Iterator[RowResult]:
    """Step time, and peak memory where it was measured."""
    expressed, scenario = settled(express(row))
    simulated = play(scenario, assumed=not expressed.stack.ran(row))
    measured, peak = measured_seconds(row, expressed, scenario), peak_bytes(row)
    flop = flop_per_token(scenario.model, scenario.train.sequence) * scenario.train.global_batch
    known = replace(
        blank(row, STEP),
        predicted=simulated.step_seconds,
        measured=measured,
        reason="" if measured is not None else "the row has no time",
        stack=expressed.stack.name,
        assumed=expressed.assumed,
        flop=flop / scenario.cluster.gpus,
        calibration=scenario.calibration.name,
        experts=simulated.at.experts,
        software=simulated.at.software,
        regime=simulated.at.regime,
        at=simulated.at,
        tuned=simulated.tuned,
    )
    yield known
    if peak is not None:
        held = counted(simulated.device, statistic_of(row, expressed.stack))
        yield replace(known, metric=PEAK, predicted=held, measured=peak, reason="")
    reserved = number(row.metrics, _RESERVED)
    if reserved is not None:
        held, name = simulated.device.reserved, f"{row.id}[reserved]"
        other = replace(known, id=name, metric=PEAK, predicted=held, measured=reserved * GIB)
        yield replace(other, reason="")


def measured_seconds(row: PublishedRow, expressed: Expressed, scenario: Scenario) -> float | None:
    """Measured seconds of a step; a rate of FLOP counts as the row's stack does."""
    found = step_seconds(row, expressed.batch)
    if isinstance(found, float):
        found *= expressed.micro_batches
    if not isinstance(found, Rate):
        return found
    if found.convention != "hardware":
        found = replace(found, convention=expressed.stack.convention)
    return seconds_of(found, scenario)
