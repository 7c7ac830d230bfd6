"""FP4: bytes of a value, what casts move and how many kernels they are, by hand for 4,096 tokens of
Mixtral 8x7B (hidden 4,096, queries with keys and values 6,144); and which parts of a model a recipe
leaves in bf16 or FP8."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.arch.models import catalog
from twin.arch import fp4
from twin.arch.kernels import VALUE, WEIGHT
from twin.arch.ops import Exchange, Layer, NumbersOf, Op, Precision, Shape
from twin.arch.stack import layers

MIXTURE = catalog("mixtral-8x7b")
NV = Shape(1, 4096, expert=2, precision="nvfp4")
MX = replace(NV, precision="mxfp4")
PLAIN = replace(NV, without=("hadamard", "stochastic_rounding"))
HIDDEN, QKV = 4096 * 4096, 4096 * 6144
SIXTEENTH = 9 / 16
"""Bytes of a value in NVFP4: half a byte, and a byte of a scale for 16."""


def layer(shape: Shape) -> Layer:
    return layers(MIXTURE, shape)[4]


def ops(shape: Shape) -> dict[str, Op]:
    return {item.name: item for item in layer(shape).items if isinstance(item, Op)}


def test_a_value_carries_its_part_of_a_scale() -> None:
    """A byte per 16 values, or per 32: OCP's blocks. A scale of 16 x 16 weights stands in each of
    their rows."""
    assert (VALUE["nvfp4"], VALUE["mxfp4"]) == (SIXTEENTH, 17 / 32)
    assert WEIGHT["nvfp4"] == SIXTEENTH


def test_a_product_reads_fp4_and_writes_bf16() -> None:
    found = ops(NV)["qkv"]
    weights = 4096 * 6144
    assert found.forward.bytes == SIXTEENTH * (weights + HIDDEN) + 2 * QKV
    assert found.weight.bytes == SIXTEENTH * (HIDDEN + QKV) + 8 * weights
    assert found.late == SIXTEENTH * (HIDDEN + QKV)
    fp8 = ops(replace(NV, precision="fp8", scaling="current"))["qkv"]
    assert [found.forward.flop, found.backward.flop] == [fp8.forward.flop, fp8.backward.flop]


def test_rotation_asks_for_a_maximum_of_its_own_so_that_bf16_is_read_twice() -> None:
    """One kernel clears both maxima, one finds them, one casts: whole, and rotated and turned.
    A gradient is rounded at random, whose state one more kernel makes."""
    cast, turn = ops(NV)["attention_norm_cast"].forward, ops(NV)["qkv_turn"].backward
    assert (cast.bytes, cast.kernels) == ((2 + 2 + 2 * SIXTEENTH) * HIDDEN, 3)
    assert (turn.bytes, turn.kernels) == ((2 + 2 + 2 * SIXTEENTH) * QKV, 3 + 1 + 1)


def test_without_rotation_a_norm_finds_the_maximum_itself() -> None:
    """Attention's output and gradients come from kernels that find none."""
    found = ops(PLAIN)
    cast = found["attention_norm_cast"].forward
    assert (cast.bytes, cast.kernels) == ((2 + 2 * SIXTEENTH) * HIDDEN, 1)
    assert found["attention_out_cast"].forward.bytes == (4 + 2 * SIXTEENTH) * HIDDEN
    assert found["qkv_turn"].backward.kernels == 3 + 1


def test_mxfp4_has_no_scale_of_the_tensor_so_that_one_kernel_does_all() -> None:
    found = ops(MX)
    cast, turn = found["attention_norm_cast"].forward, found["qkv_turn"].backward
    assert (cast.bytes, cast.kernels) == ((2 + 2 * 17 / 32) * HIDDEN, 1 + 2)
    assert turn.kernels == 1 + 2 + 1
    assert found["qkv_turn"].forward.kernels == 0


def test_each_product_of_nvfp4_has_a_kernel_for_the_scales_of_both_tensors() -> None:
    found = ops(NV)["qkv_turn"]
    assert (found.forward.kernels, found.weight.kernels) == (1, 1)
    assert found.forward.bytes == found.weight.bytes == 0


def test_experts_of_a_rank_are_cast_together_where_they_are_rotated() -> None:
    """Four experts of a rank; without rotation each is cast by itself."""
    assert ops(NV)["experts_cast"].forward.kernels == 3
    assert ops(PLAIN)["experts_cast"].forward.kernels == 3 * 4
    assert ops(MX)["experts_cast"].forward.kernels == 4 + 2


def test_what_a_layer_keeps_is_a_quarter_of_bf16_and_a_little() -> None:
    found, wide = ops(NV), ops(replace(NV, precision="bf16"))
    kept = found["attention_norm_cast"].saved / wide["attention_norm"].saved
    assert kept == SIXTEENTH / 2
    assert found["attention_norm"].saved == 0


def test_tensor_ranks_gather_fp4_and_the_gradient_of_an_output_as_both_sides() -> None:
    sliced = replace(NV, tensor=4, sequence_parallel=True)
    sent = {item.name: item for item in layer(sliced).items if isinstance(item, Exchange)}
    assert sent["attention_gather"].bytes == SIXTEENTH * HIDDEN
    assert sent["attention_regather"].bytes == SIXTEENTH * HIDDEN
    assert sent["attention_reduce"].payload(backward=True) == 2 * SIXTEENTH * HIDDEN
    turn = ops(sliced)["attention_out_turn"].backward
    assert turn.bytes == (4 + 2 * SIXTEENTH) * HIDDEN / 4


def test_weights_in_fp4_are_there_whole_and_turned() -> None:
    """Router, embedding and head stay in bf16."""
    weights = layer(NV).weights.total - 4096 * 8 - 2 * 4096
    assert fp4.multiplied((layer(NV),)) == weights
    assert fp4.quantised((layer(NV),)) == 2 * SIXTEENTH * weights
    assert fp4.multiplied((layer(replace(NV, precision="bf16")),)) == 0


def numbers(shape: Shape, model: str) -> dict[str, set[str]]:
    """Numbers of each product, over all layers."""
    found: dict[str, set[str]] = {}
    for one in layers(catalog(model), shape):
        for item in one.items:
            if isinstance(item, Op) and item.forward.product is not None:
                found.setdefault(item.name, set()).add(item.forward.product.precision)
    return found


def test_nemotron_3_super_keeps_what_its_report_says() -> None:
    """Attention and latent projections in bf16, Mamba's output projection in FP8, the last 14 of 88
    layers in bf16, all others in NVFP4."""
    parts: tuple[tuple[NumbersOf, Precision], ...] = (
        ("mixer_out", "fp8"),
        ("attention", "bf16"),
        ("latent", "bf16"),
    )
    shape = Shape(1, 4096, precision="nvfp4", scaling="mx", numbers=parts, bf16_ends=(0, 14))
    model = "nemotron-3-super-120b-a12b"
    found = numbers(shape, model)
    for name in ("qkv", "attention_out", "dispatch_latent", "combine_latent", "router", "head"):
        assert found[name] == {"bf16"}
    assert found["mixer_out"] == {"fp8", "bf16"}
    for name in ("mixer_in", "experts_up", "experts_down", "shared_up"):
        assert found[name] == {"nvfp4", "bf16"}
    stack = layers(catalog(model), shape)
    wide = [not fp4.multiplied((one,)) for one in stack[1:-1]]
    attention = [any(item.name == "qkv" for item in one.items) for one in stack[1:-1]]
    assert wide == [at >= 88 - 14 or attention[at] for at in range(88)]


def test_first_and_last_layers_multiply_in_bf16() -> None:
    stack = layers(MIXTURE, replace(NV, bf16_ends=(2, 3)))
    wide = [not fp4.multiplied((one,)) for one in stack[1:-1]]
    assert wide == [True] * 2 + [False] * (32 - 5) + [True] * 3
    plain = layers(MIXTURE, replace(NV, precision="bf16"))
    assert [op.name for op in stack[1].items] == [op.name for op in plain[1].items]


@pytest.mark.parametrize("precision", ["nvfp4", "mxfp4"])
def test_a_part_in_bf16_is_as_in_bf16(precision: Precision) -> None:
    """Experts in bf16 beside attention in FP4: the same operations as in a bf16 layer."""
    mixed = ops(replace(NV, precision=precision, numbers=(("experts", "bf16"),)))
    wide = ops(replace(NV, precision="bf16"))
    for name in ("experts_up", "experts_down", "experts_swiglu"):
        assert mixed[name] == wide[name]
    assert mixed["qkv"] == ops(replace(NV, precision=precision))["qkv"]
