"""The reference's functions, each by itself, with autograd as in a step.

A model of two layers gives its own modules. What a module calls and what has an item of its own is
replaced by a stub, so that no time is counted twice. On tiny tensors they tell what the host takes
for each, whatever the rows: sixteen tokens and widths of at least 32 keep every product in the
library that the real ones use (torch takes another up to 16^3 multiply-adds). At a model's widths
they tell what each byte adds.

Legend: B sequences, T tokens of each, H heads, Q query-key width, R rotary width, V value width,
K experts per token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import torch
from torch import Tensor, nn

from reference.config import RunSpec, load_run
from reference.kernels.grouped import grouped_matmul
from reference.kernels.swiglu import swiglu
from reference.model.transformer import Transformer, initialize
from reference.optim.qk_clip import clip
from reference.parallel.replicas import Alone

TOKENS: Final = 16
BLOCK: Final = 64
"""Queries of a block of attention."""
BLOCKS: Final = {"part_block": TOKENS, "whole_block": BLOCK, "two_blocks": BLOCK + TOKENS}
"""Lengths of attention: a part of a block, a block, and a block with a part of the next."""
NARROW: Final = {
    "layers": 2,
    "hidden": 32,
    "vocab": 512,
    "ffn.width": 32,
    "attention.heads": 2,
    "attention.q_lora_rank": 32,
    "attention.kv_lora_rank": 32,
    "attention.qk_nope_head_dim": 32,
    "attention.qk_rope_head_dim": 16,
    "attention.v_head_dim": 32,
    "moe.experts": 4,
    "moe.top_k": 2,
    "moe.width": 32,
}
"""Fields of the preset `nano` that are made small."""
LOOPS: Final = {"expert_up": (128, 128), "expert_down": (64, 128)}
"""Loops over experts: inputs and outputs of the preset `nano`."""
ROWS: Final = 4
"""Of an expert. The loop multiplies a tile of 64 rows, whatever its rows are."""
LOW: Final = torch.bfloat16


@dataclass(frozen=True, slots=True)
class Timed:
    """A function whose item is timed."""

    call: Callable[[], Any]
    """Makes one call; what it returns is where the backward begins."""
    times: int = 1
    """Calls in a layer, about."""


class _Given(nn.Module):
    """A stub that gives a tensor, or several, whatever it is called with."""

    def __init__(self, *given: Tensor) -> None:
        super().__init__()
        self.given: Any = given[0] if len(given) == 1 else given

    def forward(self, *_: Any, **__: Any) -> Any:
        """What was given."""
        return self.given


class _Routed(_Given):
    """A router that has chosen already."""

    def __init__(self, router: Any, *given: Tensor) -> None:
        super().__init__(*given)
        self.spec, self.count = router.spec, router.count


class _Kept(nn.Module):
    """Experts that keep what comes in, and give other rows back."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.came: tuple[Tensor, ...] = ()

    def forward(self, x_RD: Tensor, weights_R: Tensor, _ends_E: Tensor) -> Tensor:
        """Rows as the experts'."""
        self.came = x_RD, weights_R
        return self.rows


class _Same(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """The input."""
        return x


def narrow_run() -> RunSpec:
    """The run whose functions are timed."""
    words = [f"model.{name}={value}" for name, value in NARROW.items()]
    return load_run("nano", [*words, "train.threads=1", "train.precision=bf16"])


class Layers:
    """A model's layers, their optimizer, and calls of their functions on so many sequences of so
    many tokens."""

    def __init__(self, run: RunSpec, sequences: int = 1, tokens: int = TOKENS) -> None:
        self.run, self.place = run, (sequences, tokens)
        self.model = Transformer(run.model, dtype=LOW)
        initialize(self.model, 0)
        named = list(self.model.named_parameters())
        self.optimizer = Alone(named, run.optimizer.model_copy(update={"kind": "adamw"}))
        self.give_gradients()
        self.layer: Any = self.model.layers["1"]
        self.x_BTD = leaf(*self.place, run.model.hidden)

    def functions(self) -> dict[str, Timed]:
        """Functions that a step calls forward and backward."""
        x_BTD, layer, spec = self.x_BTD, self.layer, self.run.model
        rows = self.rows
        words_BT = torch.randint(0, spec.vocab, self.place)
        width = 2 * spec.moe.width if spec.moe else 0
        experts_RF, weights_R = leaf(rows, width), leaf(rows, kind=torch.float32)
        return {
            "norm": Timed(lambda: layer.attention_norm(x_BTD), 4),
            "linear": Timed(lambda: layer.attention.q_down(x_BTD), 7),
            "latent_attention": Timed(self._latent()),
            "router": Timed(
                lambda: layer.ffn.router(x_BTD.flatten(0, 1).detach().requires_grad_())[1]
            ),
            "experts_order": Timed(self._moe(rows)),
            "swiglu": Timed(self._swiglu()),
            "weighted_swiglu": Timed(lambda: swiglu(experts_RF, weights_R)),
            "block": Timed(self._block()),
            "embedding": Timed(lambda: self.model.embedding(words_BT)),
            "loss": Timed(self._loss(words_BT)),
        }

    def blocks(self) -> dict[str, Timed]:
        """Attention by the blocks that it goes through."""
        return {name: Timed(self.attention(1, tokens)) for name, tokens in BLOCKS.items()}

    @property
    def rows(self) -> int:
        """Of all experts."""
        spec = self.run.model.moe
        return prod(self.place) * spec.top_k if spec else 0

    def give_gradients(self) -> None:
        """Give every parameter a gradient, as after a backward."""
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros(parameter.shape)

    def update(self) -> None:
        """What a step does once for all parameters; the gradients are used up."""
        self.model.train()
        float(self.optimizer.norm_squares())
        self.optimizer.move()
        clip([self.model], self.optimizer, self.run.optimizer.clip, None)
        self.optimizer.zero_grad()
        for router in self.model.routers():
            router.update_bias(0.0)

    @property
    def parameters(self) -> int:
        """How many the update moves."""
        return len(list(self.model.parameters()))

    def _latent(self) -> Callable[[], Any]:
        block = self.layer.attention
        names = ("q_down", "q_norm", "q_up", "kv_down", "kv_norm", "kv_up", "out")
        given = {name: next(getattr(block, name).parameters()) for name in names}
        stubs = {name: _Given(leaf(*self.place, len(each))) for name, each in given.items()}
        attention, came = stubbed(block, stubs), []

        def keep(*qkv: Tensor) -> Tensor:
            came[:] = qkv
            return qkv[2]

        attention._attend = keep  # noqa: SLF001  the core has an item of its own

        def call() -> tuple[Tensor, ...]:
            attention(self.x_BTD, self.model.positions)
            return tuple(came)

        return call

    def attention(self, sequences: int, tokens: int) -> Callable[[], Any]:
        """A call of the core alone."""
        block = self.layer.attention
        widths = (block.nope + block.rotary, block.nope + block.rotary, block.value)
        given = [leaf(sequences, tokens, block.heads, width) for width in widths]
        return lambda: block._attend(*given)  # noqa: SLF001

    def _moe(self, rows: int) -> Callable[[], Any]:
        moe, hidden = self.layer.ffn, self.run.model.hidden
        experts, top_k = moe.router.spec.experts, moe.router.spec.top_k
        count = prod(self.place)
        chosen = torch.rand(count, experts).topk(top_k).indices
        router = _Routed(moe.router, chosen, leaf(count, top_k, kind=torch.float32))
        kept, shared = _Kept(leaf(rows, hidden)), _Given(leaf(*self.place, hidden))
        block = stubbed(moe, {"router": router, "experts": kept, "shared": shared})
        return lambda: (block(self.x_BTD), *kept.came)

    def _swiglu(self) -> Callable[[], Any]:
        shared = self.layer.ffn.shared
        both = leaf(*self.place, shared.up.weight.shape[0])
        block = stubbed(shared, {"up": _Given(both), "down": _Same()})
        return lambda: block(self.x_BTD)

    def _block(self) -> Callable[[], Any]:
        names = ("attention_norm", "attention", "ffn_norm", "ffn")
        block = stubbed(self.layer, {name: _Given(leaf(*self.x_BTD.shape)) for name in names})
        return lambda: block(self.x_BTD, self.model.positions)

    def _loss(self, words_BT: Tensor) -> Callable[[], Any]:
        model = stubbed(self.model, {"head": _Given(leaf(prod(self.place), self.run.model.vocab))})
        model.hidden = lambda _: self.x_BTD
        return lambda: model.loss(words_BT, words_BT)


def leaf(*shape: int, kind: torch.dtype = LOW) -> Tensor:
    """Random numbers that want a gradient."""
    return torch.randn(*shape).to(kind).requires_grad_()


def stubbed(module: nn.Module, stubs: Mapping[str, nn.Module]) -> Any:
    """A copy of a module with others in the place of some of its own."""
    made = copy(module)
    made._modules = dict(module._modules) | dict(stubs)  # noqa: SLF001
    return made


def loop(name: str, experts: int) -> Callable[[], Tensor]:
    """A loop over experts, with weights whose gradients are summed in fp32."""
    inputs, outputs = LOOPS[name]
    weights_EOI, rows_RI = leaf(experts, outputs, inputs), leaf(experts * ROWS, inputs)
    weights_EOI.grad_dtype = torch.float32
    weights_EOI.grad = torch.zeros(weights_EOI.shape)
    ends_E = torch.arange(ROWS, experts * ROWS + 1, ROWS, dtype=torch.int32)
    return lambda: grouped_matmul(rows_RI, weights_EOI.transpose(1, 2), ends_E)
