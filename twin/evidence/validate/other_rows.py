"""Rows of small categories: schedules, weight updates, serving, optimizers, whole runs, and
categories that nothing predicts.

Schedules: bubbles of zero-bubble orders (Qi et al. 2023, arXiv:2401.10241, table 5), the share of a
step that the busiest stages do not spend on passes; waits for collectives and messages count.

Weight updates: updates and recoveries of checkpoint-engine are scenarios
(`twin.evidence.calibrate.weight_update`) on the trainers' own GPUs. Other rows leave out what a
scenario needs, or have engines on GPUs of their own.

Serving: tokens per second of an inference engine in prefill or decode. Rows measured all engines
with requests always waiting; the twin predicts one pass. So software between passes, unequal
experts and cache transfers are missing from the prediction, unless the row has balanced experts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import log
from types import MappingProxyType
from typing import Any, Final, cast

from twin.arch.count import parameters
from twin.arch.ops import Weights
from twin.engine import lower, plan, simulate
from twin.evidence.calibrate.weight_update import Measured, measured, predicted
from twin.evidence.validate.answer import (
    Answers,
    RowResult,
    answering,
    blank,
    not_predicted,
    reason_of,
    refused,
)
from twin.evidence.validate.scenario_parts import cluster_of, known, leaves, spec_of
from twin.evidence.validate.steps import STEP, scenario_of
from twin.evidence.validate.steps import answers as of_step
from twin.evidence.validate.suite import PublishedRow, Unreadable, count, degree, number
from twin.evidence.validate.training import express
from twin.inference.engine import Engine, Pass, engine
from twin.inference.seconds import decode_pass, prefill_pass
from twin.loading import load_part
from twin.optimizers.adamw import AdamW
from twin.optimizers.base import MASTER_BYTES
from twin.optimizers.muon import Muon
from twin.spec.cluster import ClusterSpec
from twin.spec.inference import EngineSpec

BUBBLE: Final = "bubble_fraction"
ORDERS: Final = MappingProxyType({"ZB_H1": "zb_h1", "ZB_H2": "zb_h2"})
"""Orders by their schedule."""
RUN: Final = "ZB-1p"
"""What training rows of the source call a run of such an order."""


@answering(BUBBLE, "an input: formulas of bubbles, which tests of schedules hold")
def schedules(row: PublishedRow) -> Iterator[RowResult]:
    """The bubble of every order at every count of micro-batches."""
    counts: list[Any] = row.metrics.get("microbatches") or []
    for order in ORDERS:
        for microbatches, bubble in zip(counts, row.metrics.get(order, ()), strict=False):
            if not isinstance(microbatches, int) or not isinstance(bubble, float):
                raise Unreadable(f"`{order}` has no bubble per count of micro-batches")
            yield replace(
                blank(row, BUBBLE),
                id=f"{row.id}[{order}, {microbatches} micro-batches]",
                predicted=_bubble(row, order, microbatches),
                measured=bubble,
            )


def _bubble(row: PublishedRow, order: str, microbatches: int) -> float:
    """Share of the step that the busiest stage waits for others."""
    batch = microbatches * (count(row.fields, "mbs") or 1)
    layout = {**row.layout, "schedule": RUN}
    expressed = express(
        PublishedRow({**row.fields, "gbs": batch, "parallelism": layout}, row.models)
    )
    parallel = {**expressed.tree["parallel"], "schedule": {"kind": ORDERS[order]}}
    one = replace(expressed, tree={**expressed.tree, "parallel": parallel})
    trace = simulate(lower(plan(scenario_of(one))))
    waits = (stage["bubble"] + stage["exposed_pipeline"] for stage in trace.breakdown_ns)
    return min(waits) / trace.step_ns


SECONDS: Final = "update_seconds"
STACK: Final = "checkpoint-engine-vllm"
"""Of the catalog's updaters the one that rows are played with."""
RELEASES: Final = {"7185b55": "checkpoint-engine-vllm-0.1"}
"""Updaters of other releases, by the commit of their row."""
EVENTS: Final = ("update_broadcast_s", "update_p2p_s")
"""What rows of checkpoint-engine call an update and a recovery."""
APART: Final = "update_without_checkpoint_engine_s"
"""What rows of verl call an update of engines on GPUs of their own."""
COLLECTIVE: Final = "verl-collective"
"""The updater of these."""
INSTANCE: Final = 8
"""GPUs of an engine of theirs at most."""
ASSUMED: Final = (
    "NICs and hosts as on the catalog's nodes",
    "gathering of metadata left out, as measured",
)


@answering(SECONDS, "", garbled="its updates cannot be read")
def weight_updates(row: PublishedRow) -> Iterator[RowResult]:
    """Seconds of an update of all engines, and of the recovery of one."""
    reason = _outside(row)
    if reason is not None:
        raise Unreadable(reason)
    ref = row.fields.get("source", {}).get("ref", "")
    stack = COLLECTIVE if _apart(row) else RELEASES.get(str(ref), STACK)
    sets = (*_place(row), f"weight_update.updater={stack}")
    for event in [_detached(row, sets)] if _apart(row) else measured([row.fields], sets):
        yield replace(
            blank(row, SECONDS),
            id=f"{row.id}[{event.event}]",
            predicted=predicted(event),
            measured=event.seconds,
            stack=stack,
            assumed=ASSUMED,
        )


def _apart(row: PublishedRow) -> bool:
    """Whether trainers and engines have GPUs of their own, each told how many."""
    return {"trainer_gpus", "rollout_gpus"} <= set(row.layout)


def _detached(row: PublishedRow, sets: tuple[str, ...]) -> Measured:
    """An update from a trainer's device to all engines, in one ring of all."""
    gpus = min(INSTANCE, degree(row.layout, "rollout_gpus"))
    more = (
        f"model={row.model}",
        "weight_update.precision=bf16",
        "weight_update.source=device",
        "weight_update.free_memory=3GiB",
        f"weight_update.replica.gpus={gpus}",
    )
    return Measured(row.id, "update", (*sets, *more), number(row.metrics, APART) or 0.0, "check")


def _place(row: PublishedRow) -> tuple[str, ...]:
    """The cluster of a row, as edits of a scenario."""
    place = cluster_of(row)
    sets = (*place.section.items(), *leaves(place.over))
    return tuple(f"cluster.{key}={value}" for key, value in sets)


def _outside(row: PublishedRow) -> str | None:
    """Why no scenario is what a row measured; None where one is."""
    said = row.fields.get("not_expressible")
    if said is not None:
        return str(said)
    if row.gpus is None:
        return "not told: on how many GPUs"
    apart = bool({"trainer", "trainer_fsdp"} & set(row.layout))
    names = (APART,) if _apart(row) else EVENTS
    times = [number(row.metrics, name) for name in names]
    reasons = {
        f"the catalog has no model {row.model}": not known(row.model),
        "trainers and engines on GPUs of their own": apart,
        "no update or recovery with its bucket": not any(times),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


RATE: Final = "tokens_per_second"
SERVING_ASSUMED: Final = (
    "balanced experts",
    "two halves of a batch take turns",
    "nothing between two passes",
)


@answering(RATE, "")
def serving(row: PublishedRow) -> Iterator[RowResult]:
    """Tokens per second of all GPUs of the row."""
    reason = row.fields.get("not_expressible")
    if reason is not None or not known(row.model):
        raise Unreadable(str(reason or f"the catalog has no model {row.model}"))
    rate, gpus = number(row.metrics, "tokens_per_s_per_node"), row.gpus
    if rate is None or gpus is None:
        raise Unreadable("no tokens per second of a node, or no GPUs")
    server = engine_of(row)
    one_pass, tokens = _pass(row, server)
    yield replace(
        blank(row, RATE),
        predicted=tokens * server.groups / one_pass.seconds,
        measured=rate * gpus / server.cluster.node.gpus,
        calibration=server.calibration.name,
        experts=server.model.moe is not None,
        assumed=SERVING_ASSUMED,
    )


def engine_of(row: PublishedRow) -> Engine:
    """The engine of a row, on its GPUs."""
    place, layout = cluster_of(row).section, row.layout
    node = load_part("nodes", place["node"]).spec
    fabric = load_part("fabrics", place["fabric"]).spec
    cluster = ClusterSpec(node=node, nodes=place["nodes"], fabric=fabric)
    more = layout.get("redundant_experts", 0)
    spec = EngineSpec(
        gpus=count(layout, "ep") or cluster.gpus,
        tensor=count(layout, "tp") or 1,
        redundant_experts=more if isinstance(more, int) else 0,
        expert_load=1.0 if layout.get("balanced_experts") else None,
        precision="fp8" if row.precision == "fp8" else "bf16",
    )
    profile = load_part("calibrations", node.gpu.calibration).spec
    return engine(spec, spec_of(row.model), cluster, profile)


def _pass(row: PublishedRow, server: Engine) -> tuple[Pass, int]:
    """The pass of a row, and the tokens that it gives a group."""
    metrics = row.metrics
    sizes: dict[str, Any] = {
        name: count(metrics, name) for name in ("batch_per_gpu", "context", "prompt")
    }
    if metrics.get("phase") == "decode" and sizes["batch_per_gpu"] and sizes["context"]:
        batch = sizes["batch_per_gpu"] * server.spec.tensor
        return decode_pass(server, batch, float(sizes["context"])), batch
    whole = count(metrics, "tokens_per_gpu")
    if metrics.get("phase") == "prefill" and sizes["prompt"] and whole:
        prompts = max(1, whole * server.spec.tensor // sizes["prompt"])
        return prefill_pass(server, prompts, sizes["prompt"]), prompts * sizes["prompt"]
    raise Unreadable("the row does not say its batch and the length of its sequences")


STATES: Final = "optimizer_state_ratio"
HOUR: Final = 3600.0
TRILLION: Final = 1e12


def unanswered(category: str) -> Answers[[]]:
    """What answers rows of a category that nothing predicts."""
    reason = not_predicted()["categories"][category]
    return lambda row: (refused(row, "none", reason),)


_RAMP: Final = re.compile(r"ramp (\d+)->(\d+) sequences over first (\d+)b tokens; seq (\d+)")
"""How a batch grew: from and to how many sequences, over how many tokens."""
NO_RUN: Final = "not told: layout, batch and length of sequences of a whole run"


@answering(STEP, "")
def throughput(row: PublishedRow) -> Iterator[RowResult]:
    """GPU-hours per trillion tokens, as seconds of the step that they come to; of a whole run whose
    batch grew, GPU-seconds."""
    hours = number(row.metrics, "gpu_hours_per_trillion_tokens")
    if hours is None:
        yield _whole_run(row)
        return
    if row.batch is None or row.sequence is None or row.gpus is None:
        raise Unreadable("the row does not say batch, sequence and GPUs")
    seconds = hours * HOUR / row.gpus * row.batch * row.sequence / TRILLION
    for step in of_step(row):
        if step.metric == STEP:
            yield replace(step, measured=seconds, reason="")


RUN_SECONDS: Final = "gpu_seconds"


def _whole_run(row: PublishedRow) -> RowResult:
    """GPU-seconds of a pre-training whose batch grew evenly. A step takes longer by as much for
    every further sequence, so that those of the last batch and of half of it tell all others."""
    grew = _RAMP.search(row.words)
    hours, tokens = (
        number(row.metrics, name) for name in ("pretrain_gpu_hours", "tokens_trillion")
    )
    if grew is None or hours is None or tokens is None or row.gpus is None:
        raise Unreadable(NO_RUN)
    first, last, billions, sequence = map(int, grew.groups())
    half, high = (_step_of(row, batch, sequence) for batch in (last // 2, last))
    each = (high - half) / (last - last // 2)
    whole, growing = tokens * TRILLION, billions * 1e9
    # Steps of a batch b take c + e b and see b sequences; batches grow evenly with tokens.
    fixed = high - each * last
    spread = log(last / first) / (last - first)
    passes = growing / sequence
    seconds = each * passes + fixed * passes * spread
    seconds += (whole - growing) / (last * sequence) * high
    return replace(
        blank(row, RUN_SECONDS),
        predicted=seconds * row.gpus,
        measured=hours * HOUR,
        assumed=("the batch grows evenly with tokens", "no failures and no evaluation"),
    )


def _step_of(row: PublishedRow, batch: int, sequence: int) -> float:
    """Seconds of a step with another batch."""
    fields = {**row.fields, "gbs": batch, "seq": sequence, "metrics": {"step_s": 1.0}}
    for step in of_step(PublishedRow(fields, row.models)):
        if step.predicted is None:
            raise Unreadable(step.reason)
        if step.metric == STEP:
            return step.predicted
    raise Unreadable(NO_RUN)


BASELINE: Final = "cumulative_mfu_pct"
"""Shares of the peak as parts are added to a baseline, which comes first."""


@answering(STEP, "")
def facts(row: PublishedRow) -> Iterator[RowResult]:
    """The step of a baseline whose layout is told, of rows that add gains to it."""
    reason = reason_of("facts", row.id)
    shares: Any = row.metrics.get(BASELINE)
    if reason is not None or not isinstance(shares, list) or not shares:
        raise Unreadable(reason or "facts beside runs, without a layout to play them on")
    metrics = {"mfu_pct": cast("list[Any]", shares)[0], "mfu_peak_tflops": 312}
    layout = {**row.layout, "framework": "Megatron-LM"}
    yield from of_step(
        PublishedRow({**row.fields, "metrics": metrics, "parallelism": layout}, row.models)
    )


WATTS: Final = "node_watts"


@answering(WATTS, "no power of a node that trains")
def energy(row: PublishedRow) -> Iterator[RowResult]:
    """Watts of a node whose GPUs run kernels all the time."""
    reason = reason_of("energy", row.id)
    if reason is not None:
        raise Unreadable(reason)
    share = number(row.metrics, "compute_intensive_pct_of_tdp")
    rated = number(row.metrics, "tdp_kW")
    if share is None or rated is None:
        return
    node = load_part("nodes", cluster_of(row).section["node"]).spec
    gpu, others = node.gpu.power, node.power
    if gpu is None or others is None:
        raise Unreadable(f"the catalog has no power of {node.name}")
    each = gpu.idle + gpu.compute * (gpu.max - gpu.idle)
    yield replace(
        blank(row, WATTS),
        predicted=node.gpus * each + others.total,
        measured=share / 100 * rated * 1e3,
        assumed=("GPUs run kernels all the time",),
    )


@answering("none", "")
def optimizer(row: PublishedRow) -> Iterator[RowResult]:
    """Muon's states over AdamW's, master weights not counted."""
    share = number(row.metrics, "optimizer_memory_vs_adamw")
    if share is None:
        raise Unreadable("nothing of an optimizer's states")
    if not known(row.model):
        raise Unreadable(f"the catalog has no model {row.model}")
    model = parameters(spec_of(row.model))
    weights = Weights(model.total, replicated_matrices=model.matrices, buffers=model.buffers)
    muon, adamw = Muon().state_bytes(weights), AdamW().state_bytes(weights)
    master = MASTER_BYTES * (model.total - model.buffers)
    assumed = ("embeddings, head and vectors by AdamW",)
    ratio = (sum(muon) - master) / (sum(adamw) - master)
    yield replace(blank(row, STATES), predicted=ratio, measured=share, assumed=assumed)
