"""Eager layers against PyTorch: every kernel that autograd runs, counted by its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.arch.models import TINY_GROUPED
from twin.arch.eager import RMSNORM, ROTARY, SWIGLU, SWIGLU_OF_HALVES, Unfused, eager
from twin.arch.ops import Op, Shape
from twin.arch.stack import layers

ROWS, WIDTH = 64, 512
ALL = ("norm", "rotary", "activation")
VIEWS = (
    "view",
    "split",
    "slice.Tensor",
    "expand",
    "detach",
    "unsqueeze",
    "t.default",
    "_unsafe_view",
)


class Counted(TorchDispatchMode):
    """Bytes of tensors that kernels read and write, without views and constants."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func.name().removeprefix("aten::")
        if not any(name.startswith(view.partition(".")[0]) for view in VIEWS):
            read = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
            wrote = [one for one in tree_leaves(made) if isinstance(one, torch.Tensor)]
            self.bytes += sum(map(stored, (*read, *wrote)))
        elif name.startswith("slice_backward"):
            # Zeros of the whole, then a copy of the part.
            self.bytes += stored(made) + 2 * stored(args[0])
        return made


def stored(tensor: Any) -> int:
    """Bytes of the values that are there: those of an expanded tensor once."""
    size = tensor.element_size()
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        size *= length if stride else 1
    return size


def rmsnorm(x: Any) -> Any:
    gain = torch.ones(WIDTH, dtype=x.dtype, requires_grad=True)
    wide = x.to(torch.float32)
    mean = wide.pow(2).mean(-1, keepdim=True)
    wide = wide * torch.rsqrt(mean + 1e-6)
    return gain * wide.to(x.dtype)


def swiglu(gate: Any, up: Any) -> Any:
    return torch.nn.functional.silu(gate) * up


def swiglu_of_halves(both: Any) -> Any:
    return swiglu(*both.chunk(2, -1))


def rotary(x: Any) -> Any:
    cosine, sine = (torch.ones(WIDTH, dtype=x.dtype).expand(ROWS, WIDTH) for _ in range(2))
    left, right = x[..., : WIDTH // 2], x[..., WIDTH // 2 :]
    return x * cosine + torch.cat((-right, left), -1) * sine


@pytest.mark.parametrize(
    ("run", "inputs", "said"),
    [
        (rmsnorm, 1, RMSNORM),
        (swiglu, 2, SWIGLU),
        (swiglu_of_halves, 1, SWIGLU_OF_HALVES),
        (rotary, 1, ROTARY),
    ],
)
def test_bytes_are_those_of_the_kernels_that_autograd_runs(
    run: Callable[..., Any], inputs: int, said: Unfused
) -> None:
    tensors = [
        torch.ones(ROWS, WIDTH, dtype=torch.bfloat16, requires_grad=True) for _ in range(inputs)
    ]
    if run is swiglu_of_halves:
        tensors = [torch.ones(ROWS, 2 * WIDTH, dtype=torch.bfloat16, requires_grad=True)]
    with Counted() as forward:
        out = run(*tensors)
    given = torch.ones_like(out)
    with Counted() as backward:
        out.backward(given)
    counted = tuple(one.bytes / (ROWS * WIDTH) for one in (forward, backward))
    # Numbers per row and per column are left out: 2 % here.
    assert counted == pytest.approx(said.moved, rel=0.02)


def test_an_eager_layer_runs_more_and_keeps_more() -> None:
    usual, run = (
        layers(TINY_GROUPED, Shape(2, 16, separate=True, unfused=one))[1] for one in ((), ALL)
    )
    fused = {item.name: item for item in usual.items if isinstance(item, Op)}
    ops = {item.name: item for item in run.items if isinstance(item, Op)}
    assert ops["attention_norm"].forward.bytes == 9 * fused["attention_norm"].forward.bytes
    assert ops["attention_norm"].saved == 4 * fused["attention_norm"].saved
    # Gradients meet behind q, k and v, and behind gate and up.
    assert sorted(ops.keys() - fused.keys()) == ["ffn_up_sum", "k_sum", "v_sum"]
    hidden = 2 * 16 * TINY_GROUPED.hidden
    assert ops["k_sum"].backward.bytes == 6 * hidden
    assert all(ops[name].forward.flop == one.forward.flop for name, one in fused.items())


def test_layernorm_and_gelu_are_one_kernel_in_pytorch() -> None:
    items = layers(TINY_GROUPED, Shape(2, 16))[1].items
    norms = [item for item in items if isinstance(item, Op) and item.kind == "norm"]
    assert eager(norms, "layernorm", Shape(2, 16, unfused=ALL)) == tuple(norms)


def test_a_layer_of_merged_products_whose_norms_are_fused_by_hand() -> None:
    """Megatron-LLaMA's: rotary and SwiGLU kernel by kernel, which joins gradients of both halves;
    no tensor is read by two products."""
    usual, run = (layers(TINY_GROUPED, Shape(2, 16, unfused=one))[1].items for one in ((), ALL[1:]))
    assert [item.name for item in run] == [item.name for item in usual]
    kernels = {
        new.name: (new.forward.kernels, new.backward.kernels)
        for old, new in zip(usual, run, strict=True)
        if isinstance(new, Op) and new != old
    }
    assert kernels == {"rope": (10, 18), "ffn_swiglu": (2, 4)}
