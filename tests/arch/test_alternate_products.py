"""Selective checkpointing per op: of a small layer's products, counted by hand."""

from __future__ import annotations

from tests.arch.models import TINY_GROUPED, TINY_MOE
from tests.planning.examples import scenario
from twin.arch.ops import Op, Shape
from twin.arch.recompute import ALTERNATE, again
from twin.arch.stack import layers
from twin.engine import plan
from twin.planning.footprint import back_bytes, kept_by_op
from twin.reports.kpis import recomputed_flop
from twin.spec.memory import MemorySpec
from twin.spec.model import GroupedAttention

POLICY = MemorySpec(recompute=(ALTERNATE,))
ROWS = 2 * 16
LAYER = layers(TINY_GROUPED, Shape(2, 16, separate=True))[1]


def test_every_second_product_runs_again_with_all_between_but_attention() -> None:
    """q, k, v, out, gate, up, down: the second, fourth and sixth; nothing behind what is needed."""
    names = again(LAYER, POLICY.recompute)
    products = [i.name for i in LAYER.items if isinstance(i, Op) and i.kind == "gemm"]
    assert products == ["q", "k", "v", "attention_out", "ffn_gate", "ffn_up", "ffn_down"]
    assert names & set(products) == {"k", "attention_out", "ffn_up"}
    assert {"attention_norm", "attention_residual", "ffn_norm", "ffn_swiglu"} <= names
    assert not {"attention_flash", "ffn_residual", "layer_input"} & names


def test_a_layer_keeps_its_input_attention_and_every_first_product() -> None:
    own, ffn, hidden = TINY_GROUPED.attention, TINY_GROUPED.ffn, TINY_GROUPED.hidden
    assert isinstance(own, GroupedAttention)
    queries, keys = own.heads * own.head_dim, own.kv_heads * own.head_dim
    kept = kept_by_op(LAYER, POLICY)
    assert kept == {
        "layer_input": 2 * ROWS * hidden,
        "q": 2 * ROWS * queries,
        "v": 2 * ROWS * keys,
        "attention_flash": 2 * ROWS * queries + 4 * ROWS * own.heads,
        "ffn_gate": 2 * ROWS * ffn.width,
    }
    whole = sum(item.saved for item in LAYER.items)
    assert back_bytes(LAYER, POLICY) == whole - sum(kept.values())


def test_separate_products_are_the_fused_ones() -> None:
    fused = layers(TINY_GROUPED, Shape(2, 16))[1]
    flop = [sum(i.forward.flop for i in one.items if isinstance(i, Op)) for one in (fused, LAYER)]
    saved = [sum(i.saved for i in one.items) for one in (fused, LAYER)]
    assert flop[0] == flop[1]
    assert saved[0] == saved[1]
    assert LAYER.weights == fused.weights


def test_flop_computed_again_are_those_of_three_products() -> None:
    made = plan(scenario(memory={"recompute": (ALTERNATE,)}))
    model = made.scenario.model
    own = model.attention
    assert isinstance(own, GroupedAttention)
    keys, queries, up = own.kv_heads * own.head_dim, own.heads * own.head_dim, model.ffn.width
    per_token = 2 * model.hidden * (keys + queries + up)
    assert recomputed_flop(made) == model.layers * per_token * made.scenario.train.global_batch


def test_experts_run_again_and_what_their_exchanges_brought_is_kept() -> None:
    """Of latent attention's q_down, q_up, kv_down, kv_up and out the second and fourth; grouped
    products all; the router is not counted, and its scores are made again."""
    shape = Shape(2, 16, separate=True, expert=2, dispatcher="padded")
    layer = next(one for one in layers(TINY_MOE, shape) if one.kind == "moe")
    names = again(layer, POLICY.recompute)
    products = [i.name for i in layer.items if isinstance(i, Op) and i.kind == "gemm"]
    assert products[:6] == ["q_down", "q_up", "kv_down", "kv_up", "attention_out", "router"]
    assert names & set(products[:6]) == {"q_up", "kv_up", "router"}
    assert "shared_up" in names  # the sixth of those that count
    assert {"router_scores", "dispatch_permute", "dispatch_sort", "experts_up"} <= names
    kept = kept_by_op(layer, POLICY)
    rows = ROWS * TINY_MOE.moe.top_k if TINY_MOE.moe else 0
    assert kept["dispatch"] == 2 * rows * TINY_MOE.hidden + 4 * rows  # with routing weights
    assert kept["combine"] == 2 * rows * TINY_MOE.hidden
    assert "expert_counts" not in kept
    whole = sum(item.saved for item in layer.items)
    brought = kept["dispatch"] + kept["combine"]
    assert back_bytes(layer, POLICY) == whole - (sum(kept.values()) - brought)
