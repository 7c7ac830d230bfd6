"""Rows of memory: states and activations of a stage or a layer, as the ledger of a plan has them.

Korthikanti et al. 2022 (arXiv:2205.05198): figure 1 has the first stage of each model, parameters
with optimizer states and activations, of transformer layers only; figure 7 the activations of a
layer, as a share of what tensor parallelism alone leaves. Kimi K2's report (arXiv:2507.20534,
section 2.4) has the weights with their gradients of a model-parallel group, and all states of a
GPU. Answers in bytes have the metric `peak_device_bytes`, of the part that their id names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from twin.arch.count import parameters
from twin.arch.ops import Layer
from twin.engine import plan
from twin.evidence.validate.answer import RowResult, answering, blank
from twin.evidence.validate.steps import GIB, scenario_of
from twin.evidence.validate.suite import (
    NOT_TOLD,
    PublishedRow,
    Unreadable,
    count,
    degree,
    number,
)
from twin.evidence.validate.training import express, is_told
from twin.loading import load
from twin.planning.footprint import kept_bytes
from twin.planning.types import Plan, StageMemory
from twin.spec.memory import MemorySpec, Recompute

BYTES: Final = "peak_device_bytes"
SHARE: Final = "activation_share"
STATES: Final = ("parameters", "gradients", "optimizer_dense", "optimizer_expert")
MIXED: Final = 18
"""Bytes of a weight with all its states: bf16, fp32 gradient, AdamW's 12."""
KIMI: Final = "kimi-k2-256xh800"
FEW_NODES: Final = ("memory.offload=[activations, optimizer_expert]",)
"""What the report does on its smallest cluster, so that each GPU holds about 30 GB of states."""
PAPER: Final = "Korthikanti et al. 2022"
TECHNIQUES: Final[Mapping[str, tuple[bool, tuple[Recompute, ...]]]] = MappingProxyType(
    {
        "none": (False, ()),
        "sp": (True, ()),
        "selective": (False, ("attention_core",)),
        "sp_selective": (True, ("attention_core",)),
        "full": (False, ("full",)),
    }
)
"""Of figure 7: sequence parallel, and what is computed again."""


@answering(BYTES, "memory that no part of the ledger is")
def answers(row: PublishedRow) -> Iterator[RowResult]:
    """Bytes, or shares, of every part that a row measured."""
    metrics = row.metrics
    if "params_optimizer_GiB" in metrics:
        yield from _first_stage(row)
    elif "sp_selective" in metrics:
        yield from _layer(row)
    elif row.model == "kimi-k2" and "states_per_gpu_GB" in metrics:
        yield from _kimi(row)
    elif not is_told(row.layout):
        raise Unreadable(f"{NOT_TOLD}the layout of the parts that it adds up")


def _answer(row: PublishedRow, part: str, metric: str, predicted: float, unit: float) -> RowResult:
    """The answer to the number of a row that is called `part`, in units of `unit`."""
    value = number(row.metrics, part)
    return replace(
        blank(row, metric),
        id=f"{row.id}[{part}]",
        predicted=predicted,
        measured=None if value is None else value * unit,
    )


def _first_stage(row: PublishedRow) -> Iterator[RowResult]:
    """Figure 1. Dropout masks of the embedding, up to 2.4 % of the activations, are ours only."""
    nothing = _planned(row, "none")
    first = nothing.memory.stages[0]
    embedding = _one(nothing, "embedding").weights.total
    states = sum(first.categories[name] for name in STATES) - MIXED * embedding
    yield _answer(row, "params_optimizer_GiB", BYTES, states, GIB)
    yield _answer(row, "activations_none_GiB", BYTES, _activations(first), GIB)
    some = _planned(row, "sp_selective").memory.stages[0]
    yield _answer(row, "activations_seqsel_GiB", BYTES, _activations(some), GIB)


def _layer(row: PublishedRow) -> Iterator[RowResult]:
    """Figure 7, one sequence per micro-batch: shares do not depend on it."""
    alone = {**row.system, "gpus": count(row.layout, "tp") or 1}
    one = PublishedRow({**row.fields, "system": alone, "gbs": 1, "mbs": 1}, row.models)
    layers = {parallel: _one(_planned(one, name), "dense") for name, parallel in _PLAIN.items()}
    whole = _kept(layers, "none")
    for name in TECHNIQUES:
        if name != "none" and name in row.metrics:
            yield _answer(row, name, SHARE, _kept(layers, name) / whole, 0.01)


_PLAIN: Final = MappingProxyType({"none": False, "sp": True})
"""Techniques that compute nothing again, and whether they are sequence parallel."""


def _kept(layers: Mapping[bool, Layer], technique: str) -> float:
    """Bytes of a layer's activations under a technique, on one of its tensor ranks."""
    parallel, recompute = TECHNIQUES[technique]
    return kept_bytes(layers[parallel], MemorySpec(recompute=recompute))


def _kimi(row: PublishedRow) -> Iterator[RowResult]:
    """The group's weights and gradients, each once; the states of a mean GPU."""
    made = _shipped()
    weights = parameters(made.scenario.model).total
    yield _answer(row, "model_parallel_group_TB", BYTES, weights * (2.0 + 4.0), 1e12)
    stages = made.memory.stages
    mean = sum(stage.categories[name] for stage in stages for name in STATES) / len(stages)
    known = _answer(row, "states_per_gpu_GB", BYTES, mean, 1e9)
    yield replace(known, assumed=("states of experts in host memory, mean over stages",))


def _shipped() -> Plan:
    return plan(load(KIMI, FEW_NODES))


def _planned(row: PublishedRow, technique: str) -> Plan:
    """The plan of a row of the paper under a technique, with equal layers on all chunks."""
    parallel, recompute = TECHNIQUES[technique]
    layout = {**row.layout, "sp": parallel, "recompute": "none"}
    fields = {**row.fields, "source": {"title": PAPER}, "parallelism": layout}
    expressed = express(PublishedRow(fields, row.models))
    chunks = degree(layout, "pp") * degree(layout, "vp")
    layers = scenario_of(expressed).model.layers
    if layers % chunks:
        raise Unreadable(f"{layers} layers are not as many on each of {chunks} chunks")
    even = {**expressed.tree["parallel"], "layers": [layers // chunks] * chunks}
    tree = {**expressed.tree, "memory": {"recompute": list(recompute)}, "parallel": even}
    return plan(scenario_of(replace(expressed, tree=tree)))


def _one(made: Plan, kind: str) -> Layer:
    """A layer of a kind."""
    return next(one for chunk in made.chunks for one in chunk.layers if one.kind == kind)


def _activations(stage: StageMemory) -> float:
    return stage.categories["activations"]
