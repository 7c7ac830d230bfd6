"""Scenario to plan of an update: who owns what, in which buckets it travels, and what that takes of
memory."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from twin.errors import Problem, ScenarioError
from twin.kinds.weight_update.buckets import Bucket, Buffers, buckets, buffers
from twin.kinds.weight_update.checkpoint import Checkpoint, checkpoint
from twin.kinds.weight_update.types import UpdateMemory, UpdatePlan
from twin.planning.mesh import divisors
from twin.planning.model_rules import nearest
from twin.planning.types import Warning
from twin.reports.numbers import gibibytes
from twin.scenario import UpdateScenario
from twin.units import format_quantity

MOST_GPUS = 8192
"""Ranks of an update; every one of them is simulated."""
MOST_BUCKETS = 50_000


def plan(scenario: UpdateScenario) -> UpdatePlan:
    """The resolved update of a scenario.

    Raises:
        ScenarioError: it cannot happen as written; carries every problem.
    """
    if found := _problems(scenario):
        raise ScenarioError(scenario.locate(found))
    update, gpus = scenario.weight_update, scenario.cluster.gpus
    weights = checkpoint(scenario.model, update.precision)
    space = _buffers(scenario, weights)
    if found := _tight(scenario, weights, space):
        raise ScenarioError(scenario.locate(found))
    made = buckets(weights, gpus, space.bytes)
    takers = update.replica.gpus if update.event == "recover" else gpus
    held = held_bytes(weights, scenario)
    return UpdatePlan(
        scenario=scenario,
        tensors=weights.tensors,
        payload=weights.payload,
        largest=weights.largest,
        takers=takers,
        buffers=space,
        buckets=_brought(made, takers) if update.event == "recover" else made,
        received=held if update.method == "p2p" else float(weights.payload),
        held=held,
        memory=_memory(scenario, weights, space, held),
        warnings=_warnings(scenario, space, made, takers),
    )


def held_bytes(weights: Checkpoint, scenario: UpdateScenario) -> float:
    """Bytes of the checkpoint that one rank of an instance keeps."""
    replica, cut = scenario.weight_update.replica, weights.by_cut()
    return cut["replicated"] + cut["tensor"] / replica.tensor_ranks + cut["expert"] / replica.gpus


def _problems(scenario: UpdateScenario) -> list[Problem]:
    update, gpus = scenario.weight_update, scenario.cluster.gpus
    found: list[Problem] = []
    if gpus % update.replica.gpus:
        message = f"{gpus} GPUs are no whole number of instances of {update.replica.gpus}"
        hint = nearest("gpus", update.replica.gpus, divisors(gpus))
        found.append(Problem("TW153", "weight_update.replica.gpus", message, hint))
    if update.event == "start" and update.storage is None:
        message = "a start reads the checkpoint from storage, and nothing says how fast that is"
        hint = "add `storage: {per_node: 10GB/s, total: 100GB/s}`, with your rates"
        found.append(Problem("TW154", "weight_update.event", message, hint))
    if update.event == "recover" and update.method == "p2p":
        message = "an instance that recovers reads whole buckets and broadcasts them in itself"
        hint = "write `method: broadcast`, or another event"
        found.append(Problem("TW155", "weight_update.method", message, hint))
    if gpus > MOST_GPUS:
        message = f"{gpus:,} GPUs: an update is simulated for {MOST_GPUS:,} at most"
        hint = f"at most {MOST_GPUS // scenario.cluster.node.gpus:,} nodes"
        found.append(Problem("TW157", "cluster.nodes", message, hint))
    return found


def _buffers(scenario: UpdateScenario, weights: Checkpoint) -> Buffers:
    """The buffers that the free memory allows. A rank that sends needs one buffer, or two if it
    copies the next bucket meanwhile: what arrives goes straight into the engine's weights."""
    update = scenario.weight_update
    if update.method == "broadcast":
        return buffers(update.free_memory, update.bucket, weights.largest)
    count = 2 if update.stages == "three" else 1
    limit = min(max(update.bucket, weights.largest), update.free_memory // count)
    return Buffers(int(limit), count)


def _tight(scenario: UpdateScenario, weights: Checkpoint, space: Buffers) -> list[Problem]:
    free, path = scenario.weight_update.free_memory, "weight_update.free_memory"
    if space.bytes < weights.largest:
        message = (
            f"the largest tensor has {gibibytes(weights.largest)}, and {space.count} buffers in "
            f"{gibibytes(free)} have {gibibytes(space.bytes)} each"
        )
        least = format_quantity(space.count * weights.largest, "bytes", digits=4)
        return [Problem("TW156", path, message, f"free more than {least}")]
    if weights.payload > MOST_BUCKETS * space.bytes:
        message = f"buffers of {gibibytes(space.bytes)} make more than {MOST_BUCKETS:,} buckets"
        return [Problem("TW157", path, message, "free more memory, or allow larger buckets")]
    return []


def _brought(made: tuple[Bucket, ...], takers: int) -> tuple[Bucket, ...]:
    """Buckets of owners elsewhere, dealt out to the ranks of one instance, which bring them."""
    return tuple(
        replace(bucket, owner=at % takers, round=at // takers) for at, bucket in enumerate(made)
    )


def _memory(
    scenario: UpdateScenario, weights: Checkpoint, space: Buffers, held: float
) -> UpdateMemory:
    node, gpus = scenario.cluster.node, scenario.cluster.gpus
    own = min(ceil(weights.tensors / gpus) * node.gpus, weights.tensors)
    return UpdateMemory(
        categories={
            "weights of the engine": held,
            "buffers of the update": float(space.count * space.bytes),
        },
        capacity=node.gpu.memory,
        reserve={entry.name: entry.bytes for entry in node.gpu.reserve},
        host_bytes=float(_fullest(weights, own)),
        host_capacity=node.host.memory,
    )


def _fullest(weights: Checkpoint, count: int) -> int:
    """Bytes of the fullest of the nodes, which have so many tensors each, in order."""
    return max(
        int(weights.bytes[first : first + count].sum())
        for first in range(0, weights.tensors, count)
    )


def _warnings(
    scenario: UpdateScenario, space: Buffers, made: tuple[Bucket, ...], takers: int
) -> tuple[Warning, ...]:
    update, updater = scenario.weight_update, scenario.weight_update.updater
    found: list[Warning] = []
    if updater.nics > scenario.cluster.node.gpus:
        text = "The updater keeps more NICs busy than a node has: all of the node's are counted."
        found.append(Warning("more-nics-than-gpus", text))
    gpu = scenario.cluster.node.gpu.name
    if updater.gpu != gpu:
        text = f"The updater {updater.name} was measured on {updater.gpu}, and is used for {gpu}."
        found.append(Warning("updater-of-another-gpu", text))
    if update.method == "broadcast" and space.count == 2:
        text = (
            "A third of the free memory does not hold the largest tensor, so there is no buffer "
            "for copies from the host: owners copy one after another."
        )
        found.append(Warning("no-copy-buffer", text))
    if update.method == "p2p":
        text = (
            "Sending only what each rank needs is the links' bound: a map of both layouts is taken "
            "to be made before, and weights to arrive in place. No measured row was fitted."
        )
        found.append(Warning("ideal-p2p", text))
    if update.stages == "three":
        text = "No measured row has three stages; what they do follows from the links."
        found.append(Warning("unmeasured-three-stages", text))
    if update.event == "start":
        text = "What reading from storage takes is the planner's own rate; no row was fitted."
        found.append(Warning("unmeasured-start", text))
    elif update.storage is not None:
        text = f"storage changes nothing: the event `{update.event}` reads no checkpoint."
        found.append(Warning("idle-storage", text))
    if takers > 256:
        text = "More than 256 GPUs: the time per rank and bucket was fitted on 16 and 256."
        found.append(Warning("beyond-fitted-ranks", text))
    if len({bucket.owner for bucket in made}) < scenario.cluster.gpus:
        text = "There are fewer tensors than GPUs, so some of them bring nothing."
        found.append(Warning("idle-owners", text))
    return tuple(found)
