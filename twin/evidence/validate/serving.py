"""Rows of serving: tokens per second of an inference engine in prefill or decode, by the inference
model. No number of it was fitted on any of them.

What rows measured is all engines' own rate with requests always waiting; what the twin says is one
pass of the row's sizes. So software between passes, unequal experts and the transfer of caches are
missing from the prediction, unless the row says that experts are balanced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from twin.errors import TwinError
from twin.evidence.validate.answer import Answer, blank, refused
from twin.evidence.validate.architecture import known, spec_of
from twin.evidence.validate.hardware import cluster_of
from twin.evidence.validate.row import Row, Unreadable, count, number
from twin.inference import Engine, Pass, decode_pass, engine, prefill_pass
from twin.loading import load_part
from twin.spec.cluster import ClusterSpec
from twin.spec.inference import EngineSpec

RATE: Final = "tokens_per_second"
ASSUMED: Final = (
    "balanced experts",
    "two halves of a batch take turns",
    "nothing between two passes",
)


def answers(row: Row) -> tuple[Answer, ...]:
    """Tokens per second of all GPUs of the row."""
    said = row.fields.get("not_expressible")
    if said is not None:
        return (refused(row, RATE, str(said)),)
    if not known(row.model):
        return (refused(row, RATE, f"the catalog has no model {row.model}"),)
    measured, gpus = number(row.metrics, "tokens_per_s_per_node"), row.gpus
    if measured is None or gpus is None:
        raise Unreadable("no tokens per second of a node, or no GPUs")
    try:
        server = engine_of(row)
    except TwinError as error:
        return (refused(row, RATE, error.problems[0].message),)
    played, tokens = _pass(row, server)
    nodes = gpus / server.cluster.node.gpus
    found = replace(
        blank(row, RATE),
        predicted=tokens * server.groups / played.seconds,
        measured=measured * nodes,
        calibration=server.calibration.name,
        experts=server.model.moe is not None,
        assumed=ASSUMED,
    )
    return (found,)


def engine_of(row: Row) -> Engine:
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
        precision="fp8" if row.precision == "fp8" else "bf16",
    )
    profile = load_part("calibrations", node.gpu.calibration).spec
    return engine(spec, spec_of(row.model), cluster, profile)


def _pass(row: Row, server: Engine) -> tuple[Pass, int]:
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
