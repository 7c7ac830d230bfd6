"""FP8 training: which products, what casts move, what is kept and sent; DeepSeek-V3's own words and
trace are the oracle."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.arch.models import TINY, catalog
from twin.arch.fp8 import E5M6
from twin.arch.kernels import FP8, FP8_WEIGHT
from twin.arch.ops import Exchange, Layer, Op, Shape
from twin.arch.recompute import again
from twin.arch.stack import layers
from twin.spec.model import ModelSpec

V3 = catalog("deepseek-v3")
BF16, WITH_FP8 = Shape(1, 4096, expert=64), Shape(1, 4096, expert=64, precision="fp8")


def layer(shape: Shape, model: ModelSpec = V3, index: int = 10) -> Layer:
    return layers(model, shape)[index]


def ops(of: Layer) -> dict[str, Op]:
    return {item.name: item for item in of.items if isinstance(item, Op)}


def test_a_value_in_fp8_carries_its_part_of_a_scale():
    """1 x 128 values, or 128 x 128 weights, per fp32 scale; E5M6 are 12 bits."""
    assert (FP8, FP8_WEIGHT, E5M6) == (1.03125, 1 + 4 / 16384, 1.53125)


def test_embedding_head_router_and_projection_of_a_prediction_module_stay_in_bf16():
    """Section 3.3.1: embedding, output head, gating, norms and attention keep their precision."""
    wide: set[str] = set()
    for found in layers(V3, WITH_FP8):
        for name, op in ops(found).items():
            product = op.forward.product
            if product is not None and product.precision == "bf16":
                wide.add(name)
    assert wide == {"router", "head", "mtp_projection"}


def test_a_layer_launches_the_fp8_products_of_deepseeks_trace():
    """Four layers forward and backward: 64 dense FP8 GEMMs and 16 grouped ones beside those of the
    weights' gradients (profile-data, train.json), with MLA up-projections computed again."""
    found = layer(WITH_FP8)
    repeated = again(found, ("norms", "mla_up"))
    fp8 = [
        op
        for op in ops(found).values()
        if op.forward.product and op.forward.product.precision == "fp8"
    ]
    dense = [op for op in fp8 if op.kind == "gemm"]
    assert 4 * (2 * len(dense) + sum(op.name in repeated for op in dense)) == 64
    assert 4 * 2 * sum(op.kind == "grouped_gemm" for op in fp8) == 16


def test_casts_of_four_layers_take_about_as_long_as_in_deepseeks_trace():
    """4.83 ms there; 6.2 ms of traffic at 80 % of 3.35 TB/s here, since nothing is fused."""
    moved = sum(
        work.bytes
        for name, op in ops(layer(WITH_FP8)).items()
        if name.endswith(("_cast", "_turn"))
        for work in (op.forward, op.backward, op.weight)
    )
    assert 4 * moved / (0.8 * 3.35e12) == pytest.approx(6.17e-3, rel=0.01)


KEPT = {
    "layer_input": 2 * 7168,
    "attention_norm_cast": FP8 * 7168,
    "q_down": 2 * 1536,
    "q_norm_cast": FP8 * 1536,
    "q_up": 2 * 128 * 192,
    "kv_down": 2 * (512 + 64),
    "kv_norm_cast": FP8 * 512,
    "kv_up": 2 * 128 * 128,
    "mla_rope": 2 * 128 * 192,
    "attention_flash": 4 * 128,
    "attention_out": 1.53125 * 128 * 128,
    "attention_residual": 2 * 7168,
    "ffn_norm": 2 * 7168,
    "router_scores": 4 * 256 + 8 * 8,
    "shared_up": 2 * 2 * 2048,
    "shared_swiglu_cast": FP8 * 2048,
    "dispatch_sort": 8 * FP8 * 7168,
    "experts_up": 8 * 2 * 2 * 2048,
    "experts_swiglu_cast": 8 * FP8 * 2048,
}
"""Bytes that one token leaves in a DeepSeek-V3 layer when nothing is recomputed (section 3.3.3)."""


def test_a_layer_keeps_the_inputs_of_its_products_in_fp8():
    found = {item.name: item.saved / 4096 for item in layer(WITH_FP8).items if item.saved}
    assert found == KEPT


def test_a_policy_that_runs_norms_and_swiglu_again_frees_their_casts():
    freed = again(layer(WITH_FP8), ("norms", "swiglu"))
    left = {name for name in KEPT if name not in freed}
    assert not {name for name in left if "norm" in name or "swiglu" in name}


def test_tokens_and_gradients_travel_to_experts_in_fp8_and_back_in_bf16():
    """Section 3.3.3: dispatch and the gradient before the down-projection in FP8, both combines in
    bf16; 8 copies of 7,168 numbers per token, and with those that are dispatched 8 fp32 weights."""
    exchanges = {i.name: i for i in layer(WITH_FP8).items if isinstance(i, Exchange)}
    narrow, wide = 4096 * 8 * 7168 * FP8, 4096 * 8 * 7168 * 2
    dispatch, combine = exchanges["dispatch"], exchanges["combine"]
    weights = 4096 * 8 * 4
    sizes = dispatch.payload(), dispatch.payload(backward=True)
    assert sizes == (narrow + weights, wide + weights)
    assert (combine.payload(), combine.payload(backward=True)) == (wide, narrow)


def test_an_fp8_product_moves_its_operands_in_fp8_and_its_result_in_bf16():
    """attention_out: 4,096 rows, 16,384 to 7,168, by hand."""
    op = ops(layer(WITH_FP8))["attention_out"]
    rows, inputs, outputs = 4096, 16384, 7168
    weights = FP8_WEIGHT * inputs * outputs
    assert op.forward.bytes == FP8 * rows * inputs + weights + 2 * rows * outputs
    assert op.backward.bytes == FP8 * rows * outputs + weights + 2 * rows * inputs
    assert op.weight.bytes == FP8 * rows * (inputs + outputs) + 8 * inputs * outputs


def test_what_waits_for_the_weights_gradient_is_in_fp8():
    """experts_up: 8 copies of 7,168 inputs and 4,096 gradients per token."""
    waits = [ops(layer(shape))["experts_up"].late / 4096 for shape in (BF16, WITH_FP8)]
    assert waits == [8 * (7168 + 4096) * 2, 8 * (7168 + 4096) * 1.03125]


SHAPES = st.builds(
    Shape,
    st.just(2),
    st.just(16),
    tensor=st.sampled_from([1, 2]),
    sequence_parallel=st.booleans(),
    expert=st.sampled_from([1, 2, 8]),
    expert_tensor=st.sampled_from([1, 2]),
    arriving=st.sampled_from([None, 1.5]),
    expert_load=st.sampled_from([1.0, 1.5]),
)


@given(st.sampled_from(sorted(TINY)), SHAPES)
def test_fp8_keeps_and_sends_less_and_computes_the_same(name: str, shape: Shape):
    for wide, narrow in zip(
        layers(TINY[name], shape),
        layers(TINY[name], replace(shape, precision="fp8")),
        strict=True,
    ):
        kept = [sum(item.saved for item in of.items) for of in (wide, narrow)]
        assert kept[1] < kept[0] or wide.kind in ("embedding", "head")
        assert wide.weights == narrow.weights
        both = (ops(wide), ops(narrow))
        assert sum(op.forward.flop for op in both[0].values()) == pytest.approx(
            sum(op.forward.flop for op in both[1].values())
        )
        assert both[0].keys() <= both[1].keys()
        sent = [
            [item.payload(way) for item in of.items if isinstance(item, Exchange)]
            for of in (wide, narrow)
            for way in (False, True)
        ]
        assert all(n <= w for n, w in zip(sent[2] + sent[3], sent[0] + sent[1], strict=True))
