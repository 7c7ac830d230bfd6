"""FLOP and HBM bytes: PyTorch's own counter, hand-made cases, and laws."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from tests.arch.models import NAMES, TINY, TINY_GROUPED, catalog
from tests.arch.torch_models import Transformer
from twin.arch.count import flop_per_token
from twin.arch.ops import Op, Shape
from twin.arch.stack import layers
from twin.spec.model import ModelSpec

K2 = catalog("kimi-k2")


def ops(model: ModelSpec, shape: Shape) -> list[Op]:
    return [item for layer in layers(model, shape) for item in layer.items if isinstance(item, Op)]


def flop(model: ModelSpec, shape: Shape) -> tuple[float, float]:
    """Forward and backward FLOP of the whole model."""
    own = ops(model, shape)
    return (
        sum(op.forward.flop for op in own),
        sum(op.backward.flop + op.weight.flop for op in own),
    )


def counted(run: Callable[[], torch.Tensor]) -> tuple[float, float]:
    """What PyTorch counts for a forward and for its backward pass."""
    with FlopCounterMode(display=False) as forward:
        loss = run().sum()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("name", TINY)
def test_flop_of_every_block_are_those_that_pytorch_counts(name: str):
    model = TINY[name]
    with torch.device("meta"):
        module, ids = Transformer(model), torch.zeros(3, 16, dtype=torch.long)
        assert counted(lambda: module(ids)) == flop(model, Shape(3, 16, flash=False))


@pytest.mark.parametrize(
    ("name", "heads", "qk", "v"), [("tiny-grouped", 8, 8, 8), ("tiny-moe", 4, 24, 12)]
)
def test_flash_attention_does_half_of_what_pytorch_counts_without_the_causal_mask(
    name: str, heads: int, qk: int, v: int
):
    """PyTorch's formulas for its fused kernel: two products forward, five backward."""
    query, value = (3, heads, 16, qk), (3, heads, 16, v)
    core = next(op for op in ops(TINY[name], Shape(3, 16)) if op.kind == "attention")
    assert core.forward.flop == sdpa_flop_count(query, query, value) / 2
    assert core.backward.flop == sdpa_backward_flop_count(value, query, query, value) / 2


def test_flash_backward_is_two_and_a_half_times_forward_when_all_widths_are_equal():
    core = next(op for op in ops(TINY_GROUPED, Shape(3, 16)) if op.kind == "attention")
    assert core.backward.flop == 2.5 * core.forward.flop


def test_a_kimi_k2_token_costs_205_gigaflop_to_train():
    """63.4 linear + 5.1 attention forward, three times that with backward."""
    total = flop_per_token(K2, 4096)
    attention = 3 * 61 * 64 * (192 + 128) * 4096
    assert total == pytest.approx(205.5e9, rel=5e-4)
    assert attention / 3 == pytest.approx(5.1e9, rel=5e-3)
    assert (total - attention) / 3 == pytest.approx(63.4e9, rel=1e-3)


def test_the_attention_of_a_gpt_grows_with_the_sequence_as_counted_by_hand():
    """Per layer and token: 2 x hidden x s forward with the causal half, three times to train."""
    model = catalog("gpt-175b")
    more = flop_per_token(model, 4096) - flop_per_token(model, 2048)
    assert more == 3 * 96 * 2 * 12288 * 2048


@pytest.mark.parametrize("name", NAMES)
def test_gemms_of_a_catalog_model_do_the_flop_of_the_mfu_convention(name: str):
    """Forward ops over a sequence = its tokens' share of `flop_per_token`, without tensor or
    expert parallelism and with the causal half. Modules that predict further tokens are no part of
    the convention."""
    model = catalog(name).model_copy(update={"mtp_layers": 0})
    forward, _ = flop(model, Shape(1, 2048))
    assert forward == pytest.approx(2048 * flop_per_token(model, 2048) / 3, rel=1e-12)


@given(st.sampled_from(sorted(TINY)), st.integers(1, 9), st.booleans())
def test_work_and_saved_bytes_are_linear_in_sequences(name: str, sequences: int, flash: bool):
    one = flop(TINY[name], Shape(1, 16, flash=flash))
    many = flop(TINY[name], Shape(sequences, 16, flash=flash))
    assert many == pytest.approx([sequences * value for value in one])
    kept = [
        sum(op.saved for op in ops(TINY[name], Shape(n, 16, flash=flash))) for n in (1, sequences)
    ]
    assert kept[1] == pytest.approx(sequences * kept[0])


@given(st.sampled_from(sorted(TINY)), st.integers(1, 4), st.sampled_from([1, 2, 4]))
def test_backward_of_a_gemm_is_twice_its_forward(name: str, sequences: int, tensor: int):
    for op in ops(TINY[name], Shape(sequences, 16, tensor=tensor)):
        if op.kind in ("gemm", "grouped_gemm"):
            assert op.backward.flop == op.weight.flop == op.forward.flop
            assert op.forward.flop > 0


@pytest.mark.parametrize("model", [TINY["gpt"], TINY_GROUPED])
@given(tensor=st.sampled_from([2, 4]), parallel=st.booleans(), flash=st.booleans())
def test_tensor_parallel_divides_the_flop_of_dense_models(
    model: ModelSpec, tensor: int, parallel: bool, flash: bool
):
    whole = flop(model, Shape(2, 16, flash=flash))
    shard = flop(model, Shape(2, 16, tensor, 1, parallel, flash))
    assert [tensor * value for value in shard] == pytest.approx(whole)


@given(st.sampled_from([1, 2, 4, 8]))
def test_expert_parallel_keeps_a_ranks_flop_and_divides_the_weights_it_reads(expert: int):
    """Balanced routing: as many rows arrive as leave."""
    model = TINY["tiny-moe"]
    assert flop(model, Shape(2, 16, expert=expert)) == flop(model, Shape(2, 16))
    read = [
        next(op for op in ops(model, Shape(2, 16, expert=n)) if op.name == "experts_down")
        for n in (1, expert)
    ]
    weights = 2 * 8 * 20 * 48
    assert read[0].forward.bytes - read[1].forward.bytes == weights - weights // expert


def test_sequence_parallel_divides_all_work_of_a_moe_layer():
    model = TINY["tiny-moe"]
    whole = flop(model, Shape(2, 16, expert=2))
    shard = flop(model, Shape(2, 16, tensor=4, expert=2, sequence_parallel=True))
    assert [4 * value for value in shard] == pytest.approx(whole)


def test_a_gemm_moves_each_matrix_once_and_its_gradient_in_fp32():
    """48 tokens, 32 to 64 wide (queries and keys-values): by hand."""
    op = next(op for op in ops(TINY_GROUPED, Shape(3, 16)) if op.name == "qkv")
    width = (8 + 2 * 4) * 8
    assert op.forward.flop == 2 * 48 * 32 * width
    assert op.forward.bytes == 2 * (48 * 32 + 32 * width + 48 * width)
    assert op.weight.bytes == 2 * (48 * 32 + 48 * width) + 8 * 32 * width
    assert (op.forward.kernels, op.backward.kernels, op.weight.kernels) == (1, 1, 1)


@pytest.mark.parametrize("name", TINY)
def test_every_op_that_works_launches_and_moves_bytes(name: str):
    for op in ops(TINY[name], Shape(1, 16, flash=False)):
        for work in (op.forward, op.backward, op.weight):
            assert (work.kernels > 0) == (work.bytes > 0)
            assert work.flop == 0 or work.bytes > 0
