"""Low-rank adapters: weights and work of a small layer by hand, and what freezing leaves alone."""

from __future__ import annotations

import pytest

from tests.arch.models import TINY, TINY_GROUPED
from twin.arch.count import adapter_parameters, parameters
from twin.arch.ops import Layer, Op, Shape, Weights
from twin.arch.stack import layers
from twin.spec.model import GroupedAttention, LoraSpec

RANK = 4
ROWS = 2 * 16


def layer(lora: LoraSpec | None, tensor: int = 1, unfused: tuple[str, ...] = ()) -> Layer:
    return layers(TINY_GROUPED, Shape(2, 16, tensor, lora=lora, unfused=unfused))[1]


def sizes() -> dict[str, tuple[int, int, int]]:
    """Products of the dense layer: matrices, inputs, outputs of all together."""
    own, ffn = TINY_GROUPED.attention, TINY_GROUPED.ffn
    assert isinstance(own, GroupedAttention)
    hidden, queries = TINY_GROUPED.hidden, own.heads * own.head_dim
    keys = own.kv_heads * own.head_dim
    return {
        "qkv": (3, hidden, queries + 2 * keys),
        "attention_out": (1, queries, hidden),
        "ffn_up": (2, hidden, 2 * ffn.width),
        "ffn_down": (1, ffn.width, hidden),
    }


def test_an_adapter_weighs_rank_times_inputs_and_outputs_of_its_matrix() -> None:
    by_hand = sum(RANK * (n * inputs + outputs) for n, inputs, outputs in sizes().values())
    one = layer(LoraSpec(rank=RANK))
    assert one.weights.total == by_hand
    assert one.frozen == layer(None).weights
    assert adapter_parameters(TINY_GROUPED, RANK) == TINY_GROUPED.layers * by_hand


def test_adapters_that_are_not_trained_are_weights_only() -> None:
    one, four = (layer(LoraSpec(rank=RANK, adapters=n)) for n in (1, 4))
    assert four.weights == one.weights == four.learned
    assert four.frozen.total == one.frozen.total + 3 * one.weights.total
    assert four.items == one.items


def test_products_of_adapters_do_their_flop_three_times() -> None:
    """x A and (x A) B, 2 FLOP per multiply-add: forward, for the input and for the weights."""
    frozen = layer(None)
    found = {op.name: op for op in layer(LoraSpec(rank=RANK)).items if isinstance(op, Op)}
    for name, (count, inputs, outputs) in sizes().items():
        a, b = found[f"{name}_lora_a"], found[f"{name}_lora_b"]
        for op, flop in ((a, inputs * count * RANK), (b, RANK * outputs)):
            assert {w.flop for w in (op.forward, op.backward, op.weight)} == {2.0 * ROWS * flop}
        assert a.saved == 2 * ROWS * count * RANK
        before = next(op for op in frozen.items if op.name == name)
        assert isinstance(before, Op)
        assert found[name].backward == before.backward
        assert found[name].forward == before.forward
        assert not found[name].weight.kernels


@pytest.mark.parametrize("name", sorted(TINY))
def test_only_adapters_have_gradients(name: str) -> None:
    model = TINY[name].model_copy(update={"mtp_layers": 0})
    for one in layers(model, Shape(2, 16, lora=LoraSpec(rank=RANK))):
        ops = [item for item in one.items if isinstance(item, Op)]
        assert all("_lora_" in op.name for op in ops if op.weight.kernels or op.late)
        assert not any("_lora_" in op.name for op in ops if op.name.startswith("router"))
    assert (
        parameters(model).total
        == sum(
            (one.frozen for one in layers(model, Shape(2, 16, lora=LoraSpec(rank=RANK)))), Weights()
        ).total
    )


def test_tensor_ranks_cut_the_wide_side_of_an_adapter() -> None:
    """A before columns and B behind rows are whole on each of two ranks, the others halved."""
    whole, half = (layer(LoraSpec(rank=RANK), tensor) for tensor in (1, 2))
    by_column, by_row = ("qkv", "ffn_up"), ("attention_out", "ffn_down")
    table = sizes()
    replicated = RANK * (
        sum(table[name][0] * table[name][1] for name in by_column)
        + sum(table[name][2] for name in by_row)
    )
    assert half.weights.replicated == replicated
    assert 2 * half.weights.tensor + replicated == whole.weights.total


def test_adapters_in_fp32_move_what_each_call_reads_and_writes() -> None:
    """PEFT's Linear.forward: cast, dropout, x A, (x A) B, scaling, sum and cast back, one by one;
    the thin products count their inputs and outputs in bf16 already."""
    taken = (2 + 4) + (4 + 4 + 1) + (4 - 2)
    given = (4 - 2) + (4 + 4) + (2 + 4 + 4) + (4 + 2)
    gradients_given = (2 + 4) + (4 + 2) + (4 + 4) + 2 * (4 - 2)
    gradients_taken = (4 - 2) + (4 + 4 + 1) + (4 + 2) + (2 + 2 + 2)
    plain, eager = (layer(LoraSpec(rank=RANK), unfused=own) for own in ((), ("adapters",)))
    before, found = (
        {op.name: op for op in one.items if isinstance(op, Op)} for one in (plain, eager)
    )
    for name, (count, inputs, outputs) in sizes().items():
        add = found.pop(f"{name}_lora_add")
        assert before.pop(f"{name}_lora_add").forward.bytes == 3 * 2 * ROWS * outputs
        assert add.forward.bytes == ROWS * (taken * count * inputs + given * outputs)
        wanted = gradients_taken * count * inputs + gradients_given * outputs
        assert add.backward.bytes == ROWS * wanted
        assert (add.forward.kernels, add.backward.kernels) == (5 * count, 6 * count)
        assert add.saved == (4 + 1) * ROWS * count * inputs
    assert found == before
