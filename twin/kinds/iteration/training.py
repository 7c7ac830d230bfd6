"""Seconds of the trainer on what an iteration brings: optimizer steps by the step simulator, and
passes forward only.

A micro-batch of sequences of many lengths is played as `n` equal ones that fill as many tokens.
What depends on n is attention alone, which is linear in 1 / n: two whole n are played, and the line
through both is taken at reach / tokens, the attention that there is.

A pass forward only has no backward to wait for: m micro-batches flow through the stages one after
the other, as in a flow shop of equal jobs, sum(t) + (m - 1) max(t), t being what each stage takes
for one. Nothing is kept for a backward pass, so no policy of memory is paid for. It leaves out that
a micro-batch of a pass forward may be larger.

Bytes that change places when engines and trainers take turns on a GPU, and how long that takes.

A trainer that sleeps has its parameters and its optimizer's states in host memory; gradients are
made anew (Kimi K2, arXiv:2507.20534, section 3.3.2: the idle side is offloaded, and training begins
by copies from the host alone). An engine that sleeps drops its caches and its weights, which the
next update brings anyway. All GPUs of a node copy at once: each over its own PCIe link, those of a
socket through its memory, those of a PCIe switch through its way up.

Sequences of many lengths to micro-batches.

The sequences of an optimizer step are dealt out to replicas, the longest first, each to the one
with fewest tokens; or those of all steps at once, so that every step waits for the replica with the
longest of its own in it. A replica packs its own whole into micro-batches of so many tokens at
most, the longest first, each into the fullest that has room (best fit decreasing: at most 11/9 of
the fewest bins, Johnson 1974); attention stays inside of each sequence. Every replica has as many
micro-batches as the one with most: what is missing is empty. In each step the replica with most
tokens decides, so the mean reach of a token there, sum(n^2) / sum(n), is what steps are played
with.

Padded instead, a replica's sequences go by length into micro-batches of so many sequences, all as
long as the longest of theirs; what fills them up is computed like the rest."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import pairwise
from math import ceil, floor
from statistics import mean
from typing import Any

from twin.engine import lower, plan, simulate
from twin.engine.cost_model import length_alone
from twin.engine.program import HOST, SEND_FORWARD, Program, Template
from twin.kinds.iteration.types import Batch, Switch
from twin.network.links import capacity, latency, sharers
from twin.planning.types import Plan, StageMemory
from twin.scenario import Scenario
from twin.spec.cluster import ClusterSpec
from twin.spec.memory import MemorySpec


@dataclass(frozen=True, slots=True)
class Trained:
    """Nanoseconds of all optimizer steps, and of one pass forward of all sequences."""

    train_ns: int
    score_ns: int


def trained(trainer: Plan, batch: Batch, scored: Batch | None) -> Trained:
    """What the trainer takes for a batch; `scored`: the one that it runs forward only."""
    steps: dict[int, float] = {}
    for count in set(batch.steps):
        steps[count] = between(batch, lambda n, c=count: _step_ns(trainer, batch, c, n))
    score = 0.0
    if scored is not None and scored.steps:
        score = between(scored, lambda n: _forward_ns(trainer, scored, sum(scored.steps), n))
    return Trained(round(sum(steps[count] for count in batch.steps)), round(score))


def between(batch: Batch, of: Callable[[int], int]) -> float:
    """What holds at the batch's own reach, on the line in 1 / n through two whole n."""
    place = batch.reach / batch.tokens
    low = max(1, floor(1 / place))
    at = of(low)
    if abs(place * low - 1) < 1e-9:
        return at
    further = of(low + 1)
    slope = (at - further) / (1 / low - 1 / (low + 1))
    return max(0.0, at + slope * (place - 1 / low))


def micro_batches(trainer: Scenario, least: int) -> int:
    """As many micro-batches as the schedule can run, at least so many: more are empty."""
    own = trainer.parallel
    for count in range(least, least + 4 * own.pipeline * own.virtual):
        if not own.schedule.problems(own.pipeline, own.virtual, count):
            return count
    return least


def _step_ns(trainer: Plan, batch: Batch, count: int, n: int) -> int:
    """An optimizer step of so many micro-batches of n sequences."""
    scenario = _with(trainer, batch, micro_batches(trainer.scenario, count), n)
    return simulate(lower(plan(scenario))).step_ns


def _forward_ns(trainer: Plan, batch: Batch, count: int, n: int) -> int:
    scenario = _with(trainer, batch, micro_batches(trainer.scenario, 1), n)
    light: dict[str, Any] = {"memory": MemorySpec(fully_shard=scenario.memory.fully_shard)}
    program = lower(plan(scenario.model_copy(update=light)))
    stages = [0.0] * program.stages
    for chunk, stage in enumerate(program.chunk_map.stage_of):
        stages[stage] += _pass_ns(program, program.passes["F", chunk])
    copies = program.chunk_map.copies
    return round(sum(stages) / copies + (ceil(count / copies) - 1) * max(stages))


def _pass_ns(program: Program, template: Template) -> float:
    issued = sum(step.duration_ns for step in template if step.stream == HOST)
    message = program.message.step(SEND_FORWARD).alone_ns(program.capacity)
    taken = max(length_alone(template, program), issued)
    return taken + (message if program.stages > 1 else 0.0)


def _with(trainer: Plan, batch: Batch, count: int, n: int) -> Scenario:
    """The trainer with so many micro-batches per step, each of n sequences with as many tokens as
    the batch's have. Its layers stay where they are: a run splits them once."""
    scenario, own = trainer.scenario, trainer.scenario.parallel
    part = 2 * own.context * own.tensor
    sequence = max(part, ceil(batch.tokens / n / part) * part)
    tokens = trainer.mesh.data * count * n * sequence
    train: dict[str, Any] = {
        "sequence": sequence,
        "global_batch": tokens,
        "tokens": max(tokens, scenario.train.tokens),
    }
    changed: dict[str, Any] = {
        "train": scenario.train.model_copy(update=train),
        "parallel": own.model_copy(update={"micro_batch": n, "layers": trainer.layers_per_part}),
    }
    return scenario.model_copy(update=changed)


KEPT = "parameters"
STATES = "optimizer_"
BUFFERS = "optimizer_buffers"


def switch(trainer: Plan, slowest: float | None = None) -> Switch:
    """The way of a trainer's states between host and device, on the fullest GPU; `slowest`: bytes
    per second on the way back, where not the link's."""
    size = max(states_of(stage) for stage in trainer.memory.stages)
    there = copy_ns(trainer.scenario.cluster, size)
    return Switch(size, there, max(there, round(1e9 * size / slowest)) if slowest else there)


def swap_ns(trainer: Plan) -> int:
    """Nanoseconds of weights to the host, of the reference's from there, and of the first again:
    all through pinned memory, which PyTorch allocates for asynchronous copies to the host."""
    size = max(stage.categories[KEPT] for stage in trainer.memory.stages)
    return 3 * copy_ns(trainer.scenario.cluster, size)


def states_of(stage: StageMemory) -> float:
    """Bytes of one GPU's parameters and optimizer states that are on the device while it trains."""
    return sum(
        size
        for name, size in stage.categories.items()
        if name == KEPT or (name.startswith(STATES) and name != BUFFERS)
    )


def copy_ns(cluster: ClusterSpec, size: float) -> int:
    """Nanoseconds in which every GPU of a node copies so many bytes from the host, or back."""
    rates = [capacity(cluster, "pcie"), capacity(cluster, "dram") / sharers(cluster, "dram")]
    uplink = capacity(cluster, "pcie_uplink")
    if uplink is not None:
        rates.append(uplink / sharers(cluster, "pcie_uplink"))
    return round(1e9 * (size / min(rates) + latency(cluster, "pcie"))) if size else 0


@dataclass(slots=True)
class Bin:
    """One micro-batch: tokens that are computed, the sum of squares of its sequences' lengths, and
    tokens that it has room for."""

    tokens: int = 0
    squares: int = 0
    room: int = 0


Cut = Callable[[Sequence[int], int], list[Bin]]
"""The micro-batches of sequences of such lengths, each of at most so many tokens (`packed`) or
sequences (`padded`)."""


def batch(
    lengths: Sequence[int],
    most: int,
    shares: Sequence[Sequence[Sequence[int]]],
    cut: Cut | None = None,
) -> Batch:
    """The micro-batches of sequences of such lengths in their `shares`: of each optimizer step,
    those of every replica. A micro-batch has at most so many tokens, or what else `cut` counts."""
    cut = cut or packed
    made = [[cut(share, most) for share in step] for step in shares]
    counts = [max(map(len, step)) for step in made]
    replicas = len(made[0]) if made else 1
    heaviest = [max(map(_weight, step)) for step in made]
    tokens, squares = (sum(one[at] for one in heaviest) for at in (0, 1))
    trained, whole = sum(lengths), sum(counts)
    rooms = [one.room for step in made for bins in step for one in bins]
    return Batch(
        sequences=len(lengths),
        trained=trained,
        steps=tuple(count for count in counts if count),
        tokens=tokens / whole if whole else 0.0,
        reach=squares / tokens if tokens else 0.0,
        filled=trained / (whole * replicas * mean(rooms)) if rooms else 0.0,
    )


def _weight(bins: Sequence[Bin]) -> tuple[int, int]:
    """Tokens of a replica, and the sum of their squares: others wait for the one with most."""
    return sum(one.tokens for one in bins), sum(one.squares for one in bins)


def each_step(lengths: Sequence[int], replicas: int, steps: int) -> list[list[list[int]]]:
    """The sequences of every optimizer step, in order, dealt to replicas step by step."""
    ends = [round(at * len(lengths) / steps) for at in range(steps + 1)]
    return [dealt(lengths[begin:end], replicas) for begin, end in pairwise(ends)]


def at_once(lengths: Sequence[int], replicas: int, steps: int) -> list[list[list[int]]]:
    """All sequences dealt to replicas at once, as many to each; then each replica takes its own
    in order, as many in every step, whatever others have in that step (verl, `balance_batch`)."""
    order = sorted(range(len(lengths)), key=lambda at: -lengths[at])
    own: list[list[int]] = [[] for _ in range(replicas)]
    for begin in range(0, len(order), replicas):
        loads = sorted(range(replicas), key=lambda one: sum(lengths[at] for at in own[one]))
        for one, at in zip(loads, order[begin : begin + replicas], strict=False):
            own[one].append(at)
    found: list[list[list[int]]] = []
    for step in range(steps):
        parts = (
            (sorted(one), len(one) * step // steps, len(one) * (step + 1) // steps) for one in own
        )
        found.append([[lengths[at] for at in one[begin:end]] for one, begin, end in parts])
    return found


def packed(lengths: Sequence[int], capacity: int) -> list[Bin]:
    """As few bins as best fit decreasing needs. Lengths are at most the capacity."""
    free: list[tuple[int, int]] = []
    bins: list[Bin] = []
    for length in sorted(lengths, reverse=True):
        at = bisect_left(free, (length, 0))
        if at < len(free):
            left, number = free.pop(at)
        else:
            left, number = capacity, len(bins)
            bins.append(Bin(room=capacity))
        bins[number].tokens += length
        bins[number].squares += length * length
        if left > length:
            insort(free, (left - length, number))
    return bins


def padded(
    lengths: Sequence[int], size: int, pad_to: int = 1, most: int | None = None
) -> list[Bin]:
    """Micro-batches of `size` sequences, the shortest first and the longest in what is left, each
    as long as the longest of its own, or the next multiple of `pad_to` up to `most`."""
    ordered = sorted(lengths)
    made: list[Bin] = []
    for first in range(0, len(ordered), size):
        own = ordered[first : first + size]
        width = -(-own[-1] // pad_to) * pad_to
        width = width if most is None else max(own[-1], min(width, most))
        tokens = len(own) * width
        made.append(Bin(tokens, tokens * width, tokens))
    return made


def dealt(lengths: Sequence[int], replicas: int) -> list[list[int]]:
    """The sequences of each replica: the longest first, to the one with fewest tokens."""
    found: list[list[int]] = [[] for _ in range(replicas)]
    loads = [(0, number) for number in range(replicas)]
    for length in sorted(lengths, reverse=True):
        tokens, number = loads[0]
        found[number].append(length)
        heapreplace(loads, (tokens + length, number))
    return found
