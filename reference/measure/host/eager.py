"""Calls of PyTorch's eager host on a GPU: what a thread takes to issue each, on tensors so small
that the device is never behind.

Each is timed twice: in a row of its own, and in turns with all others in a shuffled order
(`in_turns`), since the operations of a layer hardly ever repeat, and find caches and predictors of
the CPU full of others.

Names are the items of the catalog's stack `fsdp2` where it has one. Chains of nodes, tensors or
modules come in two lengths: their difference is one node, tensor or module, the rest is what a call
costs besides. Every operation forward records its node for a backward, as in training.

Legend: T tokens, D width, H heads, W words.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from reference.kernels.norm import rms_norm
from reference.kernels.swiglu import swiglu
from reference.measure.clock import Call, finish
from reference.measure.points import bf16, gradient

T, D, H = 16, 64, 2
LENGTHS: Final = (1, 9)
"""Of a chain: 32 calls of the longer stay within a GPU's queue of 1,024 launches."""
TENSORS: Final = (8, 136)
"""Parameters of an optimizer: their difference is 128."""

Make = Callable[[torch.device], Call]


def _x(device: torch.device, *shape: int) -> Tensor:
    return bf16(device, *(shape or (T, D))).requires_grad_()


def _linear(device: torch.device) -> Call:
    x, w = _x(device), _x(device, D, D)
    return lambda: functional.linear(x, w)


def _pointwise(device: torch.device) -> Call:
    x, y = _x(device), _x(device)
    return lambda: x * y


def _cast(device: torch.device) -> Call:
    x = _x(device)
    return x.float


def _reduction(device: torch.device) -> Call:
    x = _x(device)
    return lambda: x.mean(-1, keepdim=True)


def _softmax(device: torch.device) -> Call:
    x = _x(device)
    return lambda: x.softmax(-1)


def _sort(device: torch.device) -> Call:
    x = _x(device)
    return lambda: x.topk(4)


def _index(device: torch.device) -> Call:
    x, rows = _x(device), torch.arange(T, device=device)
    return lambda: x[rows]


def _cat(device: torch.device) -> Call:
    x, y = _x(device), _x(device)
    return lambda: torch.cat((x, y), -1)


def _view(device: torch.device) -> Call:
    x = _x(device)
    return lambda: x.view(T, H, -1)


def _transpose(device: torch.device) -> Call:
    x = _x(device)
    return lambda: x.transpose(0, 1)


def _slice(device: torch.device) -> Call:
    x = _x(device)
    return lambda: x[..., : D // 2]


def _embedding(device: torch.device) -> Call:
    table, words = _x(device), torch.arange(T, device=device)
    return lambda: functional.embedding(words, table)


def _loss(device: torch.device) -> Call:
    x, words = _x(device), torch.arange(T, device=device)
    return lambda: functional.cross_entropy(x.float(), words)


def _attention(device: torch.device) -> Call:
    q, k, v = (_x(device, 1, H, T, D) for _ in range(3))
    return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _attention_backward(device: torch.device) -> Call:
    q, k, v = (_x(device, 1, H, T, D) for _ in range(3))
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return gradient(out, q, k, v)


def _grouped(device: torch.device) -> Call:
    rows, weights = _x(device), _x(device, 2, D, D)
    ends = torch.tensor([T // 2, T], dtype=torch.int32, device=device)
    return lambda: functional.grouped_mm(rows, weights, offs=ends)


def _triton(device: torch.device) -> Call:
    """An autograd function around one kernel of Triton (around PyTorch's on a CPU)."""
    gate_up = _x(device, T, 2 * D)
    return lambda: swiglu(gate_up, None)


def _norm_function(device: torch.device) -> Call:
    """An autograd function around seven kernels of PyTorch."""
    x, gain = _x(device), _x(device, D)
    return lambda: rms_norm(x, gain, 1e-6)


class _Same(torch.autograd.Function):
    """An autograd function of no work."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        del ctx
        return grads[0]


def _function(device: torch.device) -> Call:
    x = _x(device)
    return lambda: _Same.apply(x)


def _modules(length: int, device: torch.device) -> Call:
    layers, x = nn.Sequential(*(nn.Identity() for _ in range(length))), _x(device)
    return lambda: layers(x)


def _empty(device: torch.device) -> Call:
    return lambda: torch.empty(T, D, device=device)


def _copied(device: torch.device) -> Call:
    x, y = bf16(device, T, D), bf16(device, T, D)
    return lambda: x.copy_(y)


def _item(device: torch.device) -> Call:
    """A kernel, its number on the host: the host waits for the device and starts it again."""
    x = torch.ones((), device=device)
    return lambda: x.add(1).item()


def _where(device: torch.device) -> Call:
    """Places of ones in a mask, whose number the host waits for."""
    mask = torch.ones(T, device=device, dtype=torch.bool)
    return lambda: torch.where(mask)


def _nodes(kind: str, length: int, device: torch.device) -> Call:
    """The backward pass of a chain."""
    x = out = _x(device)
    w = _x(device, D, D)
    for _ in range(length):
        match kind:
            case "pointwise":
                out = out * out
            case "view":
                out = out.transpose(0, 1)
            case "function":
                out = _Same.apply(out)
            case _:
                out = functional.linear(out, w)
    return gradient(out, x, w) if kind == "linear" else gradient(out, x)


def _accumulated(length: int, device: torch.device) -> Call:
    """A backward pass that adds to the gradients of so many parameters."""
    weights = [_x(device, D) for _ in range(length)]
    total = sum((w * w).sum() for w in weights)
    assert isinstance(total, Tensor)
    return lambda: total.backward(retain_graph=True)


def _layer(length: int, again: bool, device: torch.device) -> Call:
    """A layer of so many operations forward and backward, kept or computed again."""
    x = _x(device)

    def layer(x: Tensor) -> Tensor:
        for _ in range(length):
            x = x * x
        return x

    def call() -> None:
        out = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
        assert isinstance(out, Tensor)
        torch.autograd.grad(out, x, out.detach())

    return call


def _adamw(form: str, tensors: int, device: torch.device) -> Call:
    weights, fused = _weights(tensors, device), form == "fused"
    return torch.optim.AdamW(weights, foreach=not fused, fused=fused).step


def _norm(tensors: int, device: torch.device) -> Call:
    weights = _weights(tensors, device)
    return lambda: nn.utils.clip_grad_norm_(weights, 1.0)


def _weights(tensors: int, device: torch.device) -> list[nn.Parameter]:
    weights = [nn.Parameter(torch.randn(D, device=device)) for _ in range(tensors)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return weights


def collect(device: torch.device) -> Call:
    """A full collection of Python's garbage collector, which frees nothing."""
    del device
    gc.collect()
    return gc.collect


WAITS: Final = ("item", "look")
"""Calls in which the host waits for the device."""
CALLS: Final[Mapping[str, tuple[Make, int]]] = {
    "linear": (_linear, 1),
    "pointwise": (_pointwise, 1),
    "cast": (_cast, 1),
    "reduction": (_reduction, 1),
    "softmax": (_softmax, 1),
    "sort": (_sort, 1),
    "index": (_index, 1),
    "cat": (_cat, 1),
    "view": (_view, 1),
    "transpose": (_transpose, 1),
    "slice": (_slice, 1),
    "embedding": (_embedding, 1),
    "loss": (_loss, 1),
    "attention": (_attention, 1),
    "attention_backward": (_attention_backward, 1),
    "grouped": (_grouped, 1),
    "triton": (_triton, 1),
    "norm": (_norm_function, 1),
    "function": (_function, 1),
    "empty": (_empty, 1),
    "copy": (_copied, 1),
    "item": (_item, 1),
    "look": (_where, 1),
    **{
        f"{name}_{n}": (partial(_layer, n, name == "checkpointed"), n)
        for name in ("kept", "checkpointed")
        for n in LENGTHS
    },
    **{f"modules_{n}": (partial(_modules, n), n) for n in LENGTHS},
    **{
        f"nodes_{kind}_{n}": (partial(_nodes, kind, n), n)
        for kind in ("pointwise", "view", "function", "linear")
        for n in LENGTHS
    },
    **{f"accumulated_{n}": (partial(_accumulated, n), n) for n in LENGTHS},
    **{
        f"adamw_{form}_{n}": (partial(_adamw, form, n), n)
        for form in ("foreach", "fused")
        for n in TENSORS
    },
    **{f"gradient_norm_{n}": (partial(_norm, n), n) for n in TENSORS},
}
"""By name: what prepares a call, and how many of its kind it makes."""
ROUNDS: Final = 60
"""Of all calls in turns."""
WARM: Final = 5
"""Rounds before the first that counts."""


def in_turns(device: torch.device) -> Mapping[str, list[float]]:
    """Seconds of each call, a sample of every round; those that wait for the device are left out,
    and so are the long rows, whose many calls follow each other anyway."""
    made = {
        name: make(device)
        for name, (make, times) in CALLS.items()
        if name not in WAITS and times < max(TENSORS)
    }
    seconds: dict[str, list[float]] = {name: [] for name in made}
    order, chance = list(made), random.Random(0)
    for turn in range(WARM + ROUNDS):
        chance.shuffle(order)
        finish(device)
        for name in order:
            began = perf_counter()
            made[name]()
            taken = perf_counter() - began
            if turn >= WARM:
                seconds[name].append(taken)
    return seconds
