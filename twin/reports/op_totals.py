"""What one rank runs and sends in a step, mean over the stages, by what binds it: the sums behind
the formulas of `twin.reports.explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twin.arch.kernels import of_mean
from twin.arch.ops import Op, Work
from twin.arch.recompute import again
from twin.collectives.traffic import Traffic
from twin.engine.breakdown import EXPOSED
from twin.engine.program import FROM_HOST, SEND_FORWARD, TO_HOST, Program, Step, parts
from twin.engine.trace import Trace
from twin.hardware import matmul
from twin.hardware.roofline import Price, apart_as, has_fp4, price
from twin.planning.offload import offloaded
from twin.planning.types import Plan
from twin.schedules.base import Pass
from twin.spec.calibration import CalibrationSpec


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Kernels of one class on one rank per step that arithmetic bounds: their FLOP, and their
    seconds without launches. `by_shape`: their efficiencies follow from their shapes."""

    peak: matmul.Peak
    """What kernels are measured against."""
    flop: float = 0.0
    seconds: float = 0.0
    by_shape: bool = False


@dataclass(frozen=True, slots=True)
class Kernels:
    """Work of all passes on one rank per step."""

    arithmetic: Mapping[str, Arithmetic]
    """By the class of the calibration, with `_fp8` or `_fp4` where that is their precision."""
    bytes: Mapping[str, float]
    """Of kernels bound by device memory, by the field that says which share of it they reach."""
    launched: Mapping[str, float]
    """Kernels by the field that says what each launch adds."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Transfers of one kind on one rank per step."""

    bytes: Mapping[str, float]
    """By the path that each takes longest on, as in `Program.capacity`."""
    latency_ns: float
    """Of all, one after another."""


def kernels(plan: Plan) -> Kernels:
    """Work of all passes: forward, what is run again, and both halves of the backward."""
    per_stage = plan.runs_per_chunk / plan.mesh.pipeline
    found: dict[str, Arithmetic] = {}
    launched: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for op, name, work, layers in _runs(plan):
        per_chunk = per_stage * layers
        price = _price(plan, op, name, work)
        known = matmul.law(work.product, plan.scenario.calibration)
        apart = apart_as(op.kind, plan.scenario.calibration)
        field = f"calibration.streaming.{apart}" if apart else "calibration"
        launch = f"{field}.launch"
        if known is not None:
            launch = _launch_field(work, plan.scenario.calibration)
        if getattr(plan.scenario.calibration, f"{name}_launch", None) is not None:
            launch = f"calibration.{name}_launch"  # attention, in one direction
        launched[launch] += work.kernels * per_chunk  # pyright: ignore[reportArgumentType]
        if known is not None and work.product is not None and work.product.groups > 1:
            each = launch.replace(".launch", ".group_launch")
            groups = bool(known.group_launch) * work.product.groups
            launched[each] += groups * work.kernels * per_chunk  # pyright: ignore[reportArgumentType]
        if price.overlaps and price.arithmetic <= price.memory:
            size[f"{field}.bandwidth"] += work.bytes * per_chunk  # pyright: ignore[reportArgumentType]
            continue
        by_shape = known is not None or op.kind == "attention"
        peak = matmul.peak_of(work.product)
        key = name if peak == "bf16_dense" else f"{name}_{peak.removesuffix('_dense')}"
        before = found.get(key, Arithmetic(peak))
        found[key] = Arithmetic(
            before.peak,
            before.flop + work.flop * per_chunk,
            before.seconds + price.busy * per_chunk,
            before.by_shape or by_shape,
        )
    moved = {field: count for field, count in size.items() if count}
    return Kernels(found, moved, {field: count for field, count in launched.items() if count})


def _launch_field(work: Work, calibration: CalibrationSpec) -> str:
    """The field of the scenario that says what launching a product of known shape adds."""
    known = matmul.peak_of(work.product).removesuffix("_dense")
    if known == "fp4" and not has_fp4(calibration):
        known = "fp8"
    return f"calibration.matmuls.{known}.launch"


def _price(plan: Plan, op: Op, name: str, work: Work) -> Price:
    scenario = plan.scenario
    backward = name == "attention_backward"
    return price(op.kind, work, scenario.cluster.node.gpu, scenario.calibration, backward)


def _runs(plan: Plan) -> Iterator[tuple[Op, str, Work, int]]:
    """Whenever kernels of an op run for one micro-batch: the op, the class of their efficiency, and
    their work on the mean rank; and the number of layers that share these."""
    layers = {id(layer): layer for chunk in plan.chunks for layer in chunk.layers}
    count = Counter(id(layer) for chunk in plan.chunks for layer in chunk.layers)
    for layer in layers.values():
        repeated, alike = again(layer, layer.policy.recompute), count[id(layer)]
        for op in (item for item in layer.items if isinstance(item, Op)):
            ways = ("attention_forward", "attention_backward")
            forward, backward = ways if op.kind == "attention" else (op.kind, op.kind)
            for _ in range(1 + (op.name in repeated)):
                yield op, forward, of_mean(op.forward, op.load), alike
            yield op, backward, of_mean(op.backward, op.load), alike
            yield op, backward, of_mean(op.weight, op.load), alike


def memory_share(plan: Plan) -> float:
    """Share of the seconds of all kernels that memory and launches bound, not arithmetic."""
    bound = total = 0.0
    for op, name, work, layers in _runs(plan):
        price = _price(plan, op, name, work)
        bound += layers * price.seconds * (1.0 - price.sm_bound)
        total += layers * price.seconds
    return bound / total if total else 0.0


def transfers(program: Program, trace: Trace, cause: str) -> Transfers:
    """Transfers whose waits are this category of the breakdown, as often as the schedule runs
    them."""
    size: Counter[str] = Counter()
    latency = 0.0
    for step, times in _sent(program, trace):
        if EXPOSED.get(step.stream) != cause:
            continue
        share = times / program.stages
        latency += step.duration_ns * share
        sizes = parts(step.traffic or Traffic())
        if not sizes:
            continue
        path = max(sizes, key=lambda one: sizes[one] / program.capacity[one])
        size[path] += sizes[path] * share  # pyright: ignore[reportArgumentType]
    return Transfers({path: total for path, total in size.items() if total}, latency)


def _sent(program: Program, trace: Trace) -> Iterator[tuple[Step, float]]:
    """Every communication step of all stages, and how often it comes in the whole step."""
    orders = program.schedule.order(
        program.stages, program.chunks_per_stage, trace.played_microbatches
    )
    chunks = program.chunk_map
    scale = trace.microbatches / trace.played_microbatches
    passes: Counter[tuple[Pass, int]] = Counter()
    messages = gathers = 0
    for order in orders:
        passes.update((action.kind, action.chunk) for action in order)
    for (kind, chunk), count in passes.items():
        yield from ((step, count * scale) for step in program.passes[kind, chunk])
        if kind != "W":
            ways = chunks.before[chunk], chunks.after[chunk]
            source, target = ways if kind == "F" else ways[::-1]
            gathers += count * (source is not None)
            crosses = target is not None and chunks.stage_of[target] != chunks.stage_of[chunk]
            messages += count * crosses
    if program.stages > 1:
        yield from ((step, gathers * scale) for step in program.receive)
    yield message_step(program), messages * scale
    yield from ((step, times * scale) for step, times in _copies(program, trace))
    for stage in range(program.stages):
        yield from ((step, 1.0) for step in program.once(stage))


def _copies(program: Program, trace: Trace) -> Iterator[tuple[Step, float]]:
    """Copies of activations to the host and back, and how often each comes in what was played."""
    offload = program.offload
    if offload is None:
        return
    orders = program.schedule.order(
        program.stages, program.chunks_per_stage, trace.played_microbatches
    )
    away = Counter(chunk for order in orders for chunk, _ in offloaded(order))
    for chunk, times in away.items():
        size = offload.bytes[chunk]
        for stream, flow in (
            (TO_HOST, Traffic(to_host_bytes=size)),
            (FROM_HOST, Traffic(from_host_bytes=size)),
        ):
            yield Step("copy", stream, offload.latency_ns, (), flow), float(times)


def message_step(program: Program) -> Step:
    """A message between stages as a step of its sender."""
    message = program.message
    nvlink = message.bytes if message.link == "nvlink" else 0.0
    flow = Traffic(nvlink_bytes=nvlink, nic_bytes=message.bytes - nvlink)
    return Step("send", SEND_FORWARD, message.latency_ns, (), flow)
