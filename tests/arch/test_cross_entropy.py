"""Ways to compute the loss: bytes that exist at the fullest moment, by hand and by PyTorch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.arch.models import TINY_GROUPED
from twin.arch.cross_entropy import CHUNK
from twin.arch.ops import CrossEntropy, Layer, Op, Shape
from twin.arch.stack import layers
from twin.planning.footprint import footprint, kept_bytes
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec

TOKENS, HIDDEN = 2 * 16, TINY_GROUPED.hidden
LOGITS = TOKENS * TINY_GROUPED.vocab
BESIDE = 2 * 2 * TOKENS * HIDDEN
"""The head's input and the final norm's output, which every way keeps."""


def head(way: CrossEntropy, model: ModelSpec = TINY_GROUPED, tensor: int = 1) -> Layer:
    return layers(model, Shape(2, 16, tensor, cross_entropy=way))[-1]


@pytest.mark.parametrize(
    ("way", "kept", "fullest"),
    [("fused", 4, 6), ("eager", 4, 12), ("compiled", 2, 4)],
)
def test_bytes_for_each_logit_are_those_of_the_tensors_by_hand(
    way: CrossEntropy, kept: int, fullest: int
) -> None:
    """fused: softmax 4; with the bf16 gradient 6. eager: log-softmax 4, and two fp32 gradients.
    compiled: bf16 logits 2 and their gradient 2. Beside them the hidden state, and its gradient."""
    own = footprint([head(way)], MemorySpec()).backward
    assert kept_bytes(head(way), MemorySpec()) == BESIDE + kept * LOGITS
    assert own.total - BESIDE == pytest.approx(fullest * LOGITS, abs=3 * 2 * TOKENS * HIDDEN)


def test_pytorch_keeps_what_the_eager_way_keeps() -> None:
    logits = torch.randn(TOKENS, TINY_GROUPED.vocab, dtype=torch.bfloat16, requires_grad=True)
    seen: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point() and tensor.dim() == 2:
            seen[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        torch.nn.functional.cross_entropy(logits.float(), torch.zeros(TOKENS, dtype=torch.long))
    assert sum(seen.values()) == 4 * LOGITS == kept_bytes(head("eager"), MemorySpec()) - BESIDE


def test_over_tensor_ranks_the_eager_gradient_needs_two_more_tensors() -> None:
    """Softmax kept, zeros, exponential and their sum: 16 bytes for each logit of a rank."""
    own = footprint([head("eager", tensor=2)], MemorySpec()).backward
    beside = own.total - 16 * LOGITS / 2
    assert 0 < beside < 8 * 2 * TOKENS * HIDDEN


def test_chunks_keep_nothing_and_hold_one_chunk() -> None:
    wide = TINY_GROUPED.model_copy(update={"vocab": 64 * CHUNK})
    few, many = (footprint([head("chunked", m)], MemorySpec()) for m in (TINY_GROUPED, wide))
    assert few.kept.total == many.kept.total == BESIDE
    assert many.backward.total - BESIDE < 18 * TOKENS * CHUNK + 3 * 2 * TOKENS * HIDDEN + 1


def test_chunks_multiply_the_logits_once_more() -> None:
    def flop(way: CrossEntropy) -> float:
        ops = [item for item in head(way).items if isinstance(item, Op)]
        return sum(op.forward.flop + op.backward.flop + op.weight.flop for op in ops)

    once = 2.0 * LOGITS * HIDDEN
    assert flop("chunked") - flop("fused") == once
    assert flop("eager") == flop("compiled") == flop("fused") == 3 * once


def test_every_way_is_the_same_layer_otherwise() -> None:
    ways: tuple[CrossEntropy, ...] = ("fused", "eager", "compiled", "chunked")
    bare = {replace(head(way), items=()) for way in ways}
    assert len(bare) == 1
