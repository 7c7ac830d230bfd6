"""Modules that predict further tokens (DeepSeek-V3, section 2.2); `tiny-mtp` is in every law of
`tests.arch`, PyTorch's counts of FLOP and parameters among them."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from tests.arch.models import TINY, catalog
from tests.arch.test_activations import Saved
from tests.arch.torch_models import Prediction
from twin.arch.count import parameters
from twin.arch.ops import Exchange, Op, Shape
from twin.arch.recompute import again, wholly
from twin.arch.stack import layers

V3 = catalog("deepseek-v3")
SHAPE = Shape(1, 4096, expert=64)


def test_the_module_of_deepseek_v3_weighs_11_6_billion_beside_its_671_billion():
    """README_WEIGHTS.md: 11.5B unique parameters, 0.9B each of shared embedding and head; the 14B
    beside 671B repeat both: 684,489,845,504 in the released files of DeepSeek-R1 (safetensors)."""
    count, bare = parameters(V3), parameters(V3.model_copy(update={"mtp_layers": 0}))
    assert count.total == bare.total == 671_026_419_200
    assert count.multi_token_prediction == 11_610_068_224
    copies = count.embedding + count.head
    assert count.total + count.multi_token_prediction + copies == 684_489_845_504


def test_modules_stand_between_the_last_layer_and_the_head():
    kinds = [layer.kind for layer in layers(TINY["tiny-mtp"], Shape(1, 16))]
    assert kinds[-6:] == ["moe", "mtp", "head", "mtp", "head", "head"]


def test_a_module_is_a_layer_more_with_a_projection_and_a_use_of_the_head():
    stack = layers(V3, SHAPE)
    last, module, own_head, head = stack[-4:]
    flop = [
        sum(item.forward.flop for item in of.items if isinstance(item, Op))
        for of in (last, module, own_head, head)
    ]
    assert flop[1] - flop[0] == 2 * 4096 * 2 * 7168**2
    assert flop[2] == flop[3] == 2 * 4096 * 7168 * 129_280
    names = [item.name for item in module.items if isinstance(item, Exchange)]
    assert names == ["expert_counts", "dispatch", "combine"]


def test_the_head_is_held_once_and_the_table_of_embeddings_a_second_time():
    """The stage of the head holds its matrix anyway; each module's head brings only its norm."""
    *_, module, own_head, head = layers(V3, SHAPE)
    table = 129_280 * 7168
    assert (own_head.weights.total, own_head.tied.total) == (7168, 0)
    assert head.weights.total == table + 7168
    assert module.tied.tensor == table
    second = layers(TINY["tiny-mtp"], Shape(1, 16))[-3]
    assert second.tied.total == 0


def test_a_tied_head_brings_the_table_of_embeddings_itself():
    tied = TINY["tiny-mtp"].model_copy(update={"tied_embeddings": True})
    found = layers(tied, Shape(1, 16))
    assert [layer.tied.total > 0 for layer in found[-5:]] == [False, False, False, False, True]


def test_full_recomputation_takes_in_the_module_but_not_its_head():
    *_, module, own_head, _ = layers(V3, SHAPE)
    assert wholly(module, ("full",))
    assert not wholly(own_head, ("full",))
    assert module.input_bytes == 4096 * (2 * 7168 + 8)
    assert "experts_swiglu" in again(module, ("swiglu",))


def test_a_module_keeps_what_pytorchs_autograd_keeps_before_its_layer():
    """Table rows and joined rows; the hidden state is given. Beside them, mean and deviation of two
    norms (bf16)."""
    model = TINY["tiny-mtp"].model_copy(update={"norm": "layernorm"})
    module = Prediction(model).bfloat16()
    hidden, table = (
        torch.randn(*size, dtype=torch.bfloat16, requires_grad=True)
        for size in ((16, 48), (96, 48))
    )
    ids = torch.zeros(16, dtype=torch.long)
    saved = Saved(module, hidden, table, ids)
    with saved_tensors_hooks(saved.pack, lambda y: y):
        module.joined(hidden, torch.nn.functional.embedding(ids, table)).sum()
    statistics = 2 * 2 * 2 * 16
    items = layers(model, Shape(1, 16))[-5].items
    names = ("embedding_lookup", "mtp_embedding_norm", "mtp_hidden_norm", "mtp_join")
    kept = sum(item.saved for item in items if item.name in names)
    assert saved.bytes - statistics == kept == pytest.approx(3 * 2 * 16 * 48)


NEMOTRON = catalog("nemotron-3-super-120b-a12b-mtp")


def test_a_module_of_two_layers_has_attention_and_experts() -> None:
    """Nemotron 3 Super: 123,611,012,096 are published, in which the corrections of 512 experts in
    each of 40 layers and the module are not counted."""
    count = parameters(NEMOTRON)
    assert count.total + count.multi_token_prediction - 41 * 512 == 123_611_012_096
    stack = layers(NEMOTRON, Shape(1, 4096))
    module, own = stack[-5], {layer.kind: layer for layer in stack[1:-5]}
    names = [item.name for item in module.items]
    assert names.index("qkv") < names.index("attention_residual") < names.index("router")
    attention = next(one for one in stack if any(item.name == "qkv" for item in one.items))
    joined = 2 * 4096**2 + 2 * 4096
    assert module.weights.total == attention.weights.total + own["moe"].weights.total + joined
    assert module.heads == 32


def test_modules_that_share_weights_have_them_once_and_all_their_work() -> None:
    first, head, second, other, _ = layers(NEMOTRON, Shape(1, 4096))[-5:]
    assert (second.weights.total, second.matrices, other.weights.total) == (0, (), 0)
    assert second.items == first.items
    assert other.items == head.items
    apart = layers(NEMOTRON.model_copy(update={"mtp_shared": False}), Shape(1, 4096))
    assert apart[-3].weights == first.weights
    assert parameters(NEMOTRON).multi_token_prediction * 2 == (
        parameters(NEMOTRON.model_copy(update={"mtp_shared": False})).multi_token_prediction
    )


def test_a_module_of_one_layer_like_the_last_may_say_so() -> None:
    model = TINY["tiny-mtp"]
    said = model.model_copy(update={"mtp_pattern": ("attention+moe",)})
    assert layers(said, Shape(1, 16)) == layers(model, Shape(1, 16))
