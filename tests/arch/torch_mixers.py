"""What tests of mixers share: pieces of PyTorch modules written from the papers, which count and
keep what the kernels do, and the comparison with a block of the twin.

Shapes: B sequences, S tokens of each, N chunks of C tokens, H heads, K width of keys, V of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from tests.arch.test_activations import Saved
from twin.arch.mixer import Block
from twin.arch.ops import Op, Shape
from twin.arch.stack import layers, parameters_of
from twin.spec.model import DenseFfn, GroupedAttention, ModelSpec


class MixerLaws:
    """What holds of every mixer: a subclass in the block's own test names the model whose first
    layer has it, a shape, the same block as a PyTorch module, what it does between tokens in chunks
    and one by one, and inputs of both."""

    model: ClassVar[ModelSpec]
    shape: ClassVar[Shape]
    module: ClassVar[type[nn.Module]]
    chunks: ClassVar[Callable[..., Tensor]]
    recurrence: ClassVar[Callable[..., Tensor]]
    inputs: ClassVar[Callable[..., list[Tensor]]]
    on_every_rank: ClassVar[frozenset[str]] = frozenset()
    """Operations of which tensor ranks do more than their heads' part."""

    def given(self) -> list[Tensor]:
        return type(self).inputs()

    def test_the_rule_in_chunks_is_the_rule_token_by_token(self) -> None:
        given = self.given()
        own = type(self)
        torch.testing.assert_close(own.chunks(*given), own.recurrence(*given))

    def test_flop_between_tokens_are_those_that_pytorch_counts(self) -> None:
        own, block, given = type(self), self.model.mixer, self.given()
        assert isinstance(block, Block)
        found = ops(self.model, self.shape)["mixer_core"].forward.flop
        assert found == flop_of(lambda: own.chunks(*given))
        assert found == self.shape.tokens * block.flop()

    def test_parameters_are_those_of_the_module(self) -> None:
        assert block_parameters(self.model) == torch_parameters(self.module())

    def test_kept_bytes_are_those_of_pytorchs_autograd(self) -> None:
        x = torch.randn(1, self.shape.sequence, self.model.hidden, dtype=torch.bfloat16)
        module = self.module().bfloat16()
        found = ops(self.model, self.shape).values()
        assert kept_by(module, x.requires_grad_()) == kept_of(found)

    def test_tensor_ranks_cut_all_work_by_head(self) -> None:
        one = ops(self.model, self.shape)
        for name, half in ops(self.model, replace(self.shape, tensor=2)).items():
            if name in self.on_every_rank:
                continue
            assert 2 * half.forward.flop == one[name].forward.flop
            assert 2 * half.saved == one[name].saved


def tiny(mixer: Block, **more: Any) -> ModelSpec:
    """A layer with the mixer, and one with attention."""
    return ModelSpec(
        name=f"tiny-{mixer.kind}",
        layers=2,
        hidden=32,
        vocab=96,
        attention=GroupedAttention(kind="gqa", heads=4, kv_heads=2, head_dim=8),
        ffn=DenseFfn(kind="swiglu", width=64),
        mixer=mixer,
        pattern=(f"{mixer.kind}+dense", "attention+dense"),
        **more,
    )


def ops(model: ModelSpec, shape: Shape, start: str = "mixer_") -> dict[str, Op]:
    """The operations of the first transformer layer that a block brings, by name."""
    items = layers(model, shape)[1].items
    return {one.name: one for one in items if isinstance(one, Op) and one.name.startswith(start)}


def block_parameters(model: ModelSpec) -> int:
    """Parameters of the mixer of the first transformer layer, without the norm before it."""
    table = parameters_of(model, model.pattern[0])
    return sum(row.elements for row in table if row.part == "attention")


def torch_parameters(module: nn.Module) -> int:
    return sum(one.numel() for one in module.parameters())


def flop_of(run: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def kept_by(module: nn.Module, x: Tensor) -> int:
    """Bytes that autograd keeps beside parameters and the input."""
    saved = Saved(module, x)
    with saved_tensors_hooks(saved.pack, lambda y: y):
        module(x).sum()
    return saved.bytes


def kept_of(found: Iterable[Op]) -> float:
    return sum(one.saved for one in found)


def shifted(x_BSW: Tensor, weights_WT: Tensor) -> Tensor:
    """A causal depthwise convolution as sums of shifted inputs, which no FLOP counter counts, with
    SiLU."""
    taps = weights_WT.shape[1]
    padded = functional.pad(x_BSW, (0, 0, taps - 1, 0))
    length = x_BSW.shape[1]
    parts = [padded[:, at : at + length] * weights_WT[:, at] for at in range(taps)]
    return functional.silu(torch.stack(parts).sum(0))


def keeping(
    value: Callable[..., Tensor],
    inputs: bool = True,
    output: bool = False,
    more: tuple[Tensor, ...] = (),
) -> Callable[..., Tensor]:
    """A fused kernel that keeps its inputs, its output and tensors of its own, as told. Its
    gradients have the right shapes, not the right values."""

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *given: Tensor) -> Tensor:
            ctx.shapes = [(one.shape, one.dtype) for one in given]
            made = value(*given)
            ctx.save_for_backward(*(given if inputs else ()), *((made,) if output else ()), *more)
            return made

        @staticmethod
        def backward(ctx, gradient: Tensor) -> tuple[Tensor, ...]:
            return tuple(gradient.new_zeros(size).to(kind) for size, kind in ctx.shapes)

    return Fused.apply


def normed(x: Tensor) -> Tensor:
    """A norm of length one over each head, which keeps its output."""
    return keeping(lambda y: functional.normalize(y, dim=-1), inputs=False, output=True)(x)


def weighed(x: Tensor, gate: Tensor, gain: Tensor) -> Tensor:
    """The fused norm whose result a gate weighs."""
    return keeping(lambda y, *_: y * 1)(x, gate, gain)


def chunked(x_BSHW: Tensor, size: int) -> Tensor:
    """[B, S, H, W] to [B, H, N, C, W]."""
    batch, length, heads, width = x_BSHW.shape
    return x_BSHW.transpose(1, 2).reshape(batch, heads, length // size, size, width)


def whole(x_BHNCW: Tensor) -> Tensor:
    """Back to [B, S, H, W]."""
    batch, heads, chunks, size, width = x_BHNCW.shape
    return x_BHNCW.reshape(batch, heads, chunks * size, width).transpose(1, 2)
