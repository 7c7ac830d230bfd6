"""The ledger against published memory: Kimi K2's arithmetic, and Korthikanti et al. 2022.

Kimi K2: the report (arXiv:2507.20534, section 2.4) gives "about 6 TB" of bf16 parameters with fp32
gradients and "about 30 GB per GPU"; the finer numbers are hand arithmetic on its configuration.

Korthikanti et al. 2022 (arXiv:2205.05198), figure 1, as read off by the authors of calculon
(calculon-ai/calculon, calculon/llm/validation.py at caa4b11): GiB on the first stage of parameters
with optimizer states (18 bytes per weight of the transformer layers, none sharded) and of
activations.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from twin.arch.count import parameters
from twin.arch.ops import Layer
from twin.engine import plan
from twin.loading import load
from twin.planning.chunks import layers_of
from twin.planning.footprint import kept_bytes, saved_bytes
from twin.planning.types import Plan, StageMemory
from twin.scenario import Scenario
from twin.spec.memory import MemorySpec

SCENARIOS = Path(__file__).parents[2] / "scenarios"
GIB = 2.0**30


@cache
def planned(name: str, *sets: str) -> Plan:
    return plan(load(SCENARIOS / f"{name}.yaml", list(sets)))


def kimi(nodes: int, *sets: str) -> Plan:
    return planned("kimi-k2-256xh800-four-chunks", f"cluster.nodes={nodes}", *sets)


def layer_of(found: Plan, kind: str) -> Layer:
    return next(one for chunk in found.chunks for one in chunk.layers if one.kind == kind)


def middle(found: Plan) -> StageMemory:
    """The worst stage between the first and the last: four MoE layers."""
    return max(found.memory.stages[1:-1], key=lambda stage: stage.categories["parameters"])


def state_bytes(stage: StageMemory) -> float:
    names = ("parameters", "gradients", "optimizer_dense", "optimizer_expert")
    return sum(stage.categories[name] for name in names)


def test_unique_weights_and_gradients_of_kimi_k2_are_six_terabytes() -> None:
    total = parameters(kimi(32).scenario.model).total
    assert total * (2 + 4) == pytest.approx(6.158e12, rel=1e-3)


def test_weights_and_gradients_fill_seven_terabytes_of_256_gpus() -> None:
    """Non-expert weights are replicated over the 16 expert ranks: 7.21 TB instead of 6.16."""
    categories = [stage.categories for stage in kimi(32).memory.stages]
    resident = sum(16 * (one["parameters"] + one["gradients"]) for one in categories)
    assert resident == pytest.approx(7.21e12, rel=1e-3)


def test_one_moe_layer_of_kimi_k2_weighs_seven_gigabytes_on_one_gpu() -> None:
    """24 experts, the shared one, attention and router."""
    weights = layer_of(kimi(32), "moe").weights.total
    assert weights == pytest.approx(1.205e9, rel=1e-3)
    assert 6 * weights == pytest.approx(7.23e9, rel=1e-3)


@pytest.mark.parametrize(
    ("nodes", "expert", "dense"),
    [(32, 31.7, 0.37), (64, 15.9, 0.18), (128, 7.9, 0.09), (256, 4.0, 0.05)],
)
def test_muon_states_of_a_kimi_k2_gpu_shrink_with_the_replicas(
    nodes: int, expert: float, dense: float
) -> None:
    """Mean over the GPUs, in GB to two digits. The dense figures count 8 bytes for every weight;
    the 2.35e9 weights that AdamW takes have 4 bytes more."""
    found = kimi(nodes)
    stages, gpus = found.memory.stages, found.mesh.ranks
    mean = [
        sum(stage.categories[name] for stage in stages) / len(stages)
        for name in ("optimizer_expert", "optimizer_dense")
    ]
    assert mean[0] == pytest.approx(expert * 1e9, abs=0.05e9)
    assert mean[1] - 4 * 2.3498e9 / gpus == pytest.approx(dense * 1e9, abs=0.005e9)


@pytest.mark.parametrize(("nodes", "gigabytes"), [(32, 63.0), (64, 46.0), (256, 33.1)])
def test_states_of_the_worst_middle_stage_of_kimi_k2(nodes: int, gigabytes: float) -> None:
    assert state_bytes(middle(kimi(nodes))) == pytest.approx(gigabytes * 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("layers_in_flight", "gigabytes"), [(16 * 4, 97), (48 * 2, 146), (80 * 1, 121)]
)
def test_activations_of_kimi_k2_without_a_policy(layers_in_flight: int, gigabytes: float) -> None:
    """16, 48, 80 chunks in flight on the first rank at 1, 2, 4 chunks of 4, 2, 1 MoE layers; the
    last two with the report's extra forward."""
    kept = kept_bytes(layer_of(kimi(32), "moe"), MemorySpec())
    assert layers_in_flight * kept == pytest.approx(gigabytes * 1e9, rel=0.02)


PLAIN = "parallel.schedule=interleaved_1f1b"


def test_the_first_rank_of_kimi_k2_holds_all_chunks_in_flight() -> None:
    """2 x 15 + 3 x 16 warm-up forwards and one: 79 of plain interleaved 1F1B, and the 80 above with
    K2's extra forward."""
    assert kimi(32, PLAIN).memory.stages[0].in_flight == 79
    assert kimi(32).memory.stages[0].in_flight == 80


def test_logits_of_the_last_stage_are_there_once_in_fp32_and_once_in_bf16() -> None:
    """4,096 x 163,840: 2.68 GB of fp32 logits, turned into their gradient in place, and 1.34 GB for
    the bf16 copy; the rest is the head's input, before and after its norm, and their gradients."""
    logits = kimi(32, PLAIN).memory.stages[-1].categories["logits"]
    hidden = 4096 * 7168 * 2
    assert logits == pytest.approx(2.684e9 + 1.342e9 + 4 * hidden, rel=0.01)


@pytest.mark.parametrize("nodes", [32, 64, 256])
def test_kimi_k2_fits_under_its_reports_policy_and_not_without_offload(nodes: int) -> None:
    """At 256 nodes only just not: four chunks per stage keep 43 GiB of activations. There another
    split of layers makes room."""
    usual = kimi(nodes)
    assert usual.memory.fits
    split = f"parallel.layers={[*usual.layers_per_part]}"
    assert not kimi(nodes, "memory.offload=[]", split).memory.fits
    assert kimi(nodes, "memory.offload=[]").memory.fits == (nodes == 256)
    assert kimi(nodes, "memory={recompute: [full], fp8_store: [], offload: []}").memory.fits


ALL_MOE = "model.moe.first_dense_layers=0"
SPLITS = {1: [4] * 15 + [1], 2: [2] * 30 + [1, 0], 4: [1] * 61 + [0] * 3}
"""Layers per chunk, by chunks per stage, with which every chunk of the first stage is full."""


@pytest.mark.parametrize(
    ("virtual", "in_flight", "gigabytes"), [(1, 16, 38.9), (2, 48, 58.3), (4, 80, 48.6)]
)
def test_activations_of_kimi_k2_under_its_reports_policy_before_offload(
    virtual: int, in_flight: int, gigabytes: float
) -> None:
    """148 kB per token and layer, every layer counted as MoE, on the first stage."""
    kind = ["parallel.schedule={kind: 1f1b}"] if virtual == 1 else []
    found = kimi(
        32, ALL_MOE, f"parallel.virtual={virtual}", f"parallel.layers={SPLITS[virtual]}", *kind
    )
    first = found.memory.stages[0]
    assert first.in_flight == in_flight
    assert first.kept_bytes == pytest.approx(gigabytes * 1e9, rel=0.01)
    layer = kept_bytes(layer_of(found, "moe"), found.scenario.memory)
    assert layer / 4096 == pytest.approx(148e3, rel=5e-3)


def test_half_the_expert_parallelism_does_not_fit_on_the_smallest_cluster() -> None:
    """8 ranks per set of experts: 54 GB of weights and gradients on a GPU, and 34 GB of states."""
    found = kimi(32, "parallel.expert=8").memory
    assert not found.fits_device
    worst = found.peak.categories
    assert worst["parameters"] + worst["gradients"] == pytest.approx(54.3e9, rel=0.02)
    assert worst["optimizer_expert"] == pytest.approx(33.8e9, rel=0.01)


def test_the_expert_states_of_the_smallest_cluster_come_back_from_the_device() -> None:
    """31.7 GB on the mean GPU."""
    here, away = kimi(32).memory, kimi(32, "memory.offload=[activations, optimizer_expert]").memory
    states = [stage.categories["optimizer_expert"] for stage in here.stages]
    assert sum(states) / len(states) == pytest.approx(31.7e9, rel=0.01)
    assert [stage.categories["optimizer_expert"] for stage in away.stages] == [0.0] * 16
    assert [stage.host["optimizer_expert"] for stage in away.stages] == states
    freed = here.peak.peak_bytes - away.peak.peak_bytes
    buckets = away.peak.categories["optimizer_buffers"]
    assert 0 < buckets <= 3 * 2**29
    assert freed + buckets == pytest.approx(33.8e9, rel=0.03)  # elsewhere is the peak then


def korthikanti(changes: dict[str, Any]) -> Scenario:
    """A scenario of the paper's table 3, made from the 175B one."""
    base = load(SCENARIOS / "gpt-175b-64xa100-full.yaml", list(changes["sets"]))
    hidden, heads = changes["hidden"], changes["heads"]
    attention = base.model.attention.model_copy(
        update={"heads": heads, "kv_heads": heads, "head_dim": hidden // heads}
    )
    model = base.model.model_copy(
        update={
            "hidden": hidden,
            "layers": changes["layers"],
            "attention": attention,
            "ffn": base.model.ffn.model_copy(update={"width": 4 * hidden}),
        }
    )
    return base.model_copy(update={"model": model})


def case(
    shape: tuple[int, int, int], stages: int, virtual: int, batch: tuple[int, int]
) -> dict[str, Any]:
    hidden, layer_count, heads = shape
    sequences, micro = batch
    kind = "interleaved_1f1b" if virtual > 1 else "1f1b"
    even = [layer_count // (stages * virtual)] * (stages * virtual)
    sets = (
        f"cluster.nodes={stages}",
        f"parallel.pipeline={stages}",
        f"parallel.virtual={virtual}",
        f"parallel.schedule.kind={kind}",
        f"parallel.micro_batch={micro}",
        f"parallel.layers={even}",
        f"train.global_batch={sequences}seq",
    )
    return {"hidden": hidden, "layers": layer_count, "heads": heads, "sets": sets}


TABLE_3 = {
    "22b": case((6144, 48, 64), 1, 1, (4, 4)),
    "175b": case((12288, 96, 96), 8, 3, (64, 1)),
    "530b": case((20480, 105, 128), 35, 3, (280, 1)),
    "1t": case((25600, 128, 160), 64, 1, (512, 1)),
}

FIGURE_1 = [
    ("22b", 45.5625, 59.25, 9.5625),
    ("175b", 45.5625, 66.84375, 12.351562),
    ("530b", 31.640625, 114.02344, 23.076172),
    ("1t", 32.958984, 131.25, 26.5625),
]


@pytest.mark.parametrize(("name", "states", "nothing", "selective"), FIGURE_1, ids=TABLE_3)
def test_the_first_stage_of_korthikanti_figure_1(
    name: str, states: float, nothing: float, selective: float
) -> None:
    """The figure counts transformer layers only. The embedding's weights are taken off here; its
    dropout masks, up to 2.4 % of the activations, are not."""
    written = TABLE_3[name]
    none = plan(korthikanti(written | {"sets": (*written["sets"], "memory.recompute=[]")}))
    chosen = (
        *written["sets"],
        "memory.recompute=[attention_core]",
        "parallel.sequence_parallel=true",
    )
    some = plan(korthikanti(written | {"sets": chosen}))
    first = none.memory.stages[0]
    of_layers = state_bytes(first) - 18 * layer_of(none, "embedding").weights.total
    assert of_layers / GIB == pytest.approx(states, rel=0.002)
    assert first.categories["activations"] / GIB == pytest.approx(nothing, rel=0.03)
    assert some.memory.stages[0].categories["activations"] / GIB == pytest.approx(
        selective, rel=0.03
    )


def test_a_gpt_layer_keeps_what_korthikanti_equation_2_says() -> None:
    """s b h (10 + 24 / t + 5 a s / (h t)) bytes per layer, tensor parallel (section 4.2.1)."""
    found = planned("gpt-175b-64xa100-full", "memory.recompute=[]")
    s, h, a, t = 2048, 12288, 96, 8
    equation = s * h * (10 + 24 / t + 5 * a * s / (h * t))
    assert saved_bytes(layer_of(found, "dense")) == equation


def test_the_first_stage_keeps_the_layers_of_korthikanti_section_4_2_3() -> None:
    """L / p layers on p + (p - 1) / v micro-batches: 31 chunks of 4 layers at p = 8, v = 3."""
    found = planned("gpt-175b-64xa100-full", "memory.recompute=[]", f"parallel.layers={[4] * 24}")
    first = found.memory.stages[0]
    embedding = 11 * kept_bytes(layer_of(found, "embedding"), MemorySpec())
    assert first.in_flight == 31
    layer = kept_bytes(layer_of(found, "dense"), MemorySpec())
    assert first.categories["activations"] <= 31 * 4 * layer + 1.5 * embedding
    assert first.categories["activations"] >= 31 * 4 * layer - layer


def test_the_stack_has_every_layer_once() -> None:
    found = kimi(32)
    model_layers = layers_of(found.scenario)
    assert [one for chunk in found.chunks for one in chunk.layers] == list(model_layers)
