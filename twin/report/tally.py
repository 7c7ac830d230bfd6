"""What one rank runs and sends in a step, mean over the stages, by what binds it: the sums behind
the formulas of `twin.report.explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twin.arch import again
from twin.arch.ops import Op, Work
from twin.collectives.traffic import Traffic
from twin.engine.breakdown import EXPOSED
from twin.engine.program import SEND_FORWARD, Program, Step
from twin.engine.trace import Trace
from twin.engine.turns import NOWHERE, turns
from twin.plan.types import Plan
from twin.schedules.action import Pass


@dataclass(frozen=True, slots=True)
class Kernels:
    """Work of all passes on one rank per step."""

    flop: Mapping[str, float]
    """Of kernels bound by FLOP, by the efficiency of the calibration that they reach."""
    bytes: float
    """Of kernels bound by device memory."""
    kernels: float
    """Launched."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Transfers of one kind on one rank per step."""

    bytes: Mapping[str, float]
    """By the link class that each takes longest on."""
    latency_ns: float
    """Of all, one after another."""


def kernels(plan: Plan) -> Kernels:
    """Work of all passes: forward, what is run again, and both halves of the backward."""
    per_chunk = plan.runs_per_chunk / plan.mesh.pipeline
    flop: Counter[str] = Counter()
    size = launched = 0.0
    for op, name, work in _runs(plan):
        launched += work.kernels * per_chunk
        if op.kind != "bandwidth" and _bound_by_flop(name, work, plan):
            flop[name] += work.flop * per_chunk  # pyright: ignore[reportArgumentType]
        else:
            size += work.bytes * per_chunk
    return Kernels(flop, size, launched)


def _runs(plan: Plan) -> Iterator[tuple[Op, str, Work]]:
    """Every time that kernels of an op run for one micro-batch: the op, the name of their
    efficiency, and their work."""
    for layer in (layer for chunk in plan.chunks for layer in chunk.layers):
        repeated = again(layer, plan.scenario.memory.recompute)
        for op in (item for item in layer.items if isinstance(item, Op)):
            ways = ("attention_forward", "attention_backward")
            forward, backward = ways if op.kind == "attention" else (op.kind, op.kind)
            for _ in range(1 + (op.name in repeated)):
                yield op, forward, op.forward
            yield op, backward, op.backward
            yield op, backward, op.weight


def _bound_by_flop(name: str, work: Work, plan: Plan) -> bool:
    """Whether FLOP take longer than bytes."""
    gpu, calibration = plan.scenario.cluster.node.gpu, plan.scenario.calibration
    compute = work.flop / (gpu.bf16_dense * getattr(calibration, name))
    return compute > work.bytes / (gpu.memory_bandwidth * calibration.bandwidth)


def transfers(program: Program, trace: Trace, cause: str) -> Transfers:
    """Transfers whose waits are this category of the breakdown, as often as the schedule runs
    them."""
    size: Counter[str] = Counter()
    latency = 0.0
    for step, times in _sent(program, trace):
        if EXPOSED.get(step.stream) != cause:
            continue
        flow, share = step.traffic, times / program.stages
        latency += step.duration_ns * share
        if flow is None:
            continue
        nvlink = flow.nvlink_bytes / program.capacity["nvlink"]
        link = "nic" if flow.nic_bytes / program.capacity["nic"] > nvlink else "nvlink"
        size[link] += (flow.nic_bytes if link == "nic" else flow.nvlink_bytes) * share  # pyright: ignore[reportArgumentType]
    return Transfers({link: total for link, total in size.items() if total}, latency)


def _sent(program: Program, trace: Trace) -> Iterator[tuple[Step, float]]:
    """Every communication step of all stages, and how often it comes in the whole step."""
    known = turns(
        program.schedule,  # pyright: ignore[reportArgumentType]  (frozen, so it has a hash)
        program.stages,
        program.chunks_per_stage,
        trace.played_microbatches,
    )
    scale = trace.microbatches / trace.played_microbatches
    passes: Counter[tuple[Pass, int]] = Counter()
    messages = gathers = 0
    for place, _, lanes in (turn for stage in known.stages for turn in stage):
        passes.update(known.passes[place])
        messages += sum(lane[2] != NOWHERE for lane in lanes)
        gathers += sum(lane[0] != NOWHERE for lane in lanes)
    for one, count in passes.items():
        yield from ((step, count * scale) for step in program.passes[one])
    if program.stages > 1:
        yield from ((step, gathers * scale) for step in program.receive)
    yield message_step(program), messages * scale
    yield from ((step, 1.0) for steps in program.finish for step in steps)


def message_step(program: Program) -> Step:
    """A message between stages as a step of its sender."""
    message = program.message
    nvlink = message.bytes if message.link == "nvlink" else 0.0
    flow = Traffic(nvlink_bytes=nvlink, nic_bytes=message.bytes - nvlink)
    return Step("send", SEND_FORWARD, message.latency_ns, (), flow)
