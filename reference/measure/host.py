# ruff: noqa: C901, PLC0415, PLR0911, PLR0912, PLW0108, RET504, RUF059, SLF001
"""What the host of the reference does for a training step on a CPU: how often, and how long.

`python -m reference.measure.host CONFIG --counts counts.json` trains a few steps of a configuration
of `reference.train` and counts one of them: tensor operations by kind, modules, functions and nodes
of autograd, and calls of Python, each for the operation of the twin (`twin.arch`) that it belongs
to. Nothing is timed there. `--items items.json` times each kind on tiny tensors, all kinds in turn,
so that none finds its code in the innermost cache. A product of an expert is the tile of 64 rows
that the reference's loop multiplies whatever an expert's rows are (`reference.kernels.grouped`).
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import TorchDispatchMode

from reference.config import load_run
from reference.kernels.grouped import _by_expert, _of_experts
from reference.trainer import loop

VIEWS: Final = frozenset(
    [
        "view",
        "slice",
        "select",
        "transpose",
        "t",
        "expand",
        "unsqueeze",
        "squeeze",
        "split",
        "split_with_sizes",
        "permute",
        "as_strided",
        "alias",
        "detach",
        "_unsafe_view",
        "view_as_complex",
        "view_as_real",
        "unbind",
        "unfold",
        "lift_fresh",
        "_reshape_alias",
        "view_as",
        "diagonal",
    ]
)
KINDS: Final = {
    "empty": "empty new_empty empty_like empty_strided new_empty_strided",
    "fill": "zeros new_zeros zeros_like ones ones_like new_ones fill_ zero_ full new_full arange",
    "copy": "_to_copy copy_ clone",
    "reduction": "sum mean amax max min all any cumsum linalg_vecdot norm linalg_vector_norm",
    "index": "index gather index_select scatter scatter_ scatter_add_ index_put_ index_add_ "
    "embedding",
    "sort": "sort topk argsort",
    "softmax": "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data",
    "pad": "constant_pad_nd",
    "cat": "cat",
    "adamw": "_fused_adamw_",
}
KIND_OF: Final = {name: kind for kind, names in KINDS.items() for name in names.split()}
PRODUCTS: Final = frozenset(["mm", "addmm", "bmm", "baddbmm", "baddbmm_", "mv", "addmv", "dot"])
STEP: Final = 4
"""The step that is counted: earlier ones compile kernels and fill caches."""
ROUNDS: Final = 300
BURST: Final = 4
"""Times that a call is made in a row, OURS: an operation of the model does four of a kind or so."""
EXPERTS: Final = 64
"""Of the loop that is timed."""
MODULES: Final = {
    "attention_norm": "attention_norm",
    "ffn_norm": "ffn_norm",
    "final_norm": "final_norm",
    "attention.q_norm": "q_norm",
    "attention.kv_norm": "kv_norm",
    "attention.q": "q",
    "attention.q_down": "q_down",
    "attention.q_up": "q_up",
    "attention.kv_down": "kv_down",
    "attention.kv_up": "kv_up",
    "attention.out": "attention_out",
    "ffn.up": "ffn_up",
    "ffn.down": "ffn_down",
    "ffn.shared.up": "shared_up",
    "ffn.shared.down": "shared_down",
    "head": "head",
    "embedding": "embedding_lookup",
}
FUNCTIONS: Final = {
    "rotate": "mla_rope",
    "_attend": "attention_flash",
    "assign": "router_scores",
    "order_of": "dispatch_permute",
    "count": "dispatch_permute",
    "spread": "dispatch_permute",
    "gather": "combine_unpermute",
    "loss": "loss_max",
}
"""Names of functions of the model, and whose they are."""


class Counting(TorchDispatchMode):
    """Counts what one step does, by the twin's operation and direction."""

    def __init__(self, models: list[nn.Module]) -> None:
        super().__init__()
        self.counts: dict[tuple[str, str], Counter[str]] = {}
        self.node_of: dict[int, str] = {}
        self.sequence = 0
        self.now: str | None = None
        """The operation whose gradients are being made."""
        self.inside = False
        self.frames = False
        """Whether calls of Python are counted, and nothing else."""
        self.names: dict[int, str] = {}
        self.parameters: dict[int, str] = {}
        self.dense: dict[int, bool] = {}
        for model in models:
            for name, module in model.named_modules():
                local = (
                    name.split(".", 2)[2]
                    if name.startswith("layers.") and "." in name[7:]
                    else name
                )
                self.names[id(module)] = local
                for parameter in module.parameters(recurse=False):
                    self.parameters[id(parameter)] = MODULES.get(local, local)

    def label(self, frame: Any) -> str:
        """The operation that a call belongs to."""
        swiglu = grouped = outer = None
        while frame is not None:
            code, own = frame.f_code, frame.f_locals.get("self")
            file = code.co_filename
            if "/reference/" in file:
                name = code.co_name
                if isinstance(own, nn.Module) and (
                    known := MODULES.get(self.names.get(id(own), ""))
                ):
                    return known
                if file.endswith("kernels/swiglu.py"):
                    swiglu = True
                if name == "op" and frame.f_locals.get("name") == "moe_down":
                    grouped = "experts_down"
                if file.endswith("kernels/grouped.py") and grouped is None:
                    grouped = "experts_up"
                place = self.names.get(id(own), "") if isinstance(own, nn.Module) else ""
                if place == "ffn.experts":
                    return "experts_swiglu" if swiglu else grouped or "experts_swiglu"
                if swiglu and place in ("ffn", "ffn.shared"):
                    return "ffn_swiglu" if place == "ffn" else "shared_swiglu"
                if (
                    file.endswith(("moe.py", "rope.py", "mla.py", "dispatch.py"))
                    and name in FUNCTIONS
                ):
                    return FUNCTIONS[name]
                if file.endswith("attention.py") and name == "_attend":
                    return "attention_flash"
                if file.endswith("transformer.py") and name == "loss":
                    return "loss_max"
                if place == "ffn.router":
                    return "router"
                if place == "ffn":
                    return "combine_unpermute" if outer is None else outer
                if place == "ffn.shared":
                    return "shared_swiglu"
                if place.startswith("layers."):
                    return "ffn_residual"
                if place == "attention":
                    return "mla_rope"
                if name == "forward" and file.endswith("transformer.py") and place == "":
                    return "ffn_residual"
                if file.endswith("parallel/runtime.py") or name == "next_batch":
                    return "microbatch"
                if file.endswith("trainer/step.py"):
                    return "step"
            frame = frame.f_back
        return "step"

    def add(self, kind: str, frame: Any, times: float = 1) -> str:
        """Count something for the operation that runs."""
        direction = "forward" if self.now is None else "backward"
        label = self.now or self.label(frame)
        self.counts.setdefault((label, direction), Counter())[kind] += times  # pyright: ignore[reportArgumentType]
        return label

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.inside = True
        try:
            name = func.overloadpacket.__name__
            label = self.add(
                self.kind(name, args),
                sys._getframe(1),
                len(args[0]) if name == "_fused_adamw_" else 1,
            )
            if self.now is None:
                until = torch.autograd._get_sequence_nr()
                for number in range(self.sequence, until):
                    self.node_of[number] = label
                self.sequence = max(self.sequence, until)
            return func(*args, **(kwargs or {}))
        finally:
            self.inside = False

    def kind(self, name: str, args: Any) -> str:
        """The item that an operation is."""
        if name in VIEWS:
            return "view"
        if name in PRODUCTS:
            narrow = any(isinstance(one, Tensor) and one.dtype == torch.bfloat16 for one in args)
            frame: Any = sys._getframe(2)
            while frame is not None and narrow:
                if frame.f_code.co_filename.endswith("kernels/grouped.py"):
                    return "expert_product"
                frame = frame.f_back
            return "product" if narrow else "wide_product"
        return KIND_OF.get(name, "pointwise")

    def called(self, frame: Any, event: str, _: Any) -> None:
        """Counts calls of Python; what modules and functions take of them is in their items."""
        file = frame.f_code.co_filename
        if event != "call" or self.inside or file == __file__:
            return
        if any(
            part in file for part in ("kernels/grouped.py", "autograd/function.py", "contextlib")
        ):
            return
        if file.endswith("nn/modules/module.py"):
            if frame.f_code.co_name == "_call_impl":
                self.add("module", frame.f_back)
            return
        self.add("frame", frame)

    def watch(self, edges: Any) -> None:
        """Count the nodes that a backward runs through, and say at each whose it is."""
        seen: set[Any] = set()
        todo = [edge.node for edge in edges]
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
            if self.frames:
                continue
            name = type(node).__name__
            if name == "AccumulateGrad":
                label, kind = self.parameters.get(id(node.variable), "step"), "accumulate"
            else:
                label = self.node_of.get(node._sequence_nr(), "microbatch")
                kind = "node" if not hasattr(node, "_forward_cls") else "function_backward"
            if kind == "function_backward":
                self.counts.setdefault((label, "forward"), Counter())["function"] += 1
            self.counts.setdefault((label, "backward"), Counter())[kind] += 1
            node.register_prehook(lambda _, label=label: self.enter(label))

    def enter(self, label: str) -> None:
        """The backward has come to an operation."""
        self.now = label


def count(config: str) -> dict[str, Any]:
    """Counts of one step by operation, direction and item."""
    run = load_run(config, [])
    found: dict[str, Any] = {}
    plain = loop.train_step
    backward = torch.autograd.backward

    def counted(run: Any, stage: Any, trainee: Any, stop: Any) -> Any:
        if trainee.step not in (STEP - 1, STEP):
            return plain(run, stage, trainee, stop)
        counting = Counting(trainee.models)
        counting.frames = trainee.step == STEP

        def watched(edges: Any, *others: Any) -> None:
            if not counting.frames:
                counting.watch(edges)
            counting.now = "microbatch"
            try:
                backward(edges, *others)
            finally:
                counting.now = None
                counting.sequence = torch.autograd._get_sequence_nr()

        torch.autograd.backward = watched
        counting.sequence = torch.autograd._get_sequence_nr()
        try:
            if counting.frames:
                sys.setprofile(counting.called)
                return plain(run, stage, trainee, stop)
            with counting:
                return plain(run, stage, trainee, stop)
        finally:
            sys.setprofile(None)
            torch.autograd.backward = backward
            for (label, direction), counts in sorted(counting.counts.items()):
                found.setdefault(label, {}).setdefault(direction, {}).update(counts)

    loop.train_step = counted
    from reference import train

    train.train(run, existing="fresh")
    return found


class _Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, y = ctx.saved_tensors
        del x, y
        return grad, None


class _Module(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def _frame(x: Any, y: Any) -> Any:
    if x is None:
        return y
    found = x, y
    return found


def _loops() -> dict[str, tuple[list[Callable[[], Any]], int]]:
    """The loops over experts, forward and for both gradients."""
    low = torch.bfloat16
    many, back, made = (torch.randn(4 * EXPERTS, size).to(low) for size in (128, 128, 64))
    weights_up = torch.randn(EXPERTS, 128, 128).to(low).transpose(1, 2)
    weights_down = torch.randn(EXPERTS, 128, 64).to(low).transpose(1, 2)
    ends = torch.arange(4, 4 * EXPERTS + 1, 4, dtype=torch.int32)
    return {
        "expert_up": ([lambda: _by_expert(many, weights_up, ends)], EXPERTS),
        "expert_down": ([lambda: _by_expert(made, weights_down, ends)], EXPERTS),
        "expert_up_backward": (
            [
                lambda: (
                    _by_expert(back, weights_up.transpose(1, 2), ends),
                    _of_experts(back, many, ends),
                )
            ],
            EXPERTS,
        ),
        "expert_down_backward": (
            [
                lambda: (
                    _by_expert(many, weights_down.transpose(1, 2), ends),
                    _of_experts(many, made, ends),
                )
            ],
            EXPERTS,
        ),
    }


def cases() -> dict[str, tuple[list[Callable[[], Any]], int]]:
    """Calls that stand for each item, and how many items a call is."""
    low, wide = torch.bfloat16, torch.float32
    a, b, w = (torch.randn(8, 8).to(low) for _ in range(3))
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    out, o3 = torch.empty(8, 8), torch.randn(2, 8, 8)
    i = torch.arange(8)
    rows = torch.randn(4, 128).to(low)
    module = _Module()
    masters = [torch.randn(8) for _ in range(8)]
    moments = [[torch.zeros(8) for _ in range(8)] for _ in range(3)]
    counts = [torch.ones(()) for _ in range(8)]
    several = [torch.randn(8) for _ in range(4)]

    def fused() -> None:
        torch._fused_adamw_(
            masters,
            moments[0],
            moments[1],
            moments[2],
            [],
            counts,
            lr=1e-3,
            beta1=0.9,
            beta2=0.95,
            weight_decay=0.1,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    return (
        {
            "view": (
                [
                    lambda: x.view(64),
                    lambda: x[1:5],
                    lambda: x.transpose(0, 1),
                    lambda: x.unsqueeze(0),
                    lambda: x.detach(),
                ],
                1,
            ),
            "empty": ([lambda: torch.empty_like(x), lambda: x.new_empty(8, 8)], 1),
            "fill": ([lambda: torch.zeros_like(x), lambda: torch.arange(8)], 1),
            "copy": (
                [lambda: a.to(wide), lambda: x.to(low), lambda: out.copy_(x), lambda: x.clone()],
                1,
            ),
            "pointwise": (
                [
                    lambda: x * y,
                    lambda: x.mul_(1.0),
                    lambda: x + y,
                    lambda: torch.mul(x, y, out=out),
                    lambda: x.neg(),
                ],
                1,
            ),
            "reduction": ([lambda: x.sum(1), lambda: x.amax(1), lambda: i.cumsum(0)], 1),
            "index": (
                [lambda: x[i], lambda: x.index_select(0, i), lambda: x.gather(1, i[:, None])],
                1,
            ),
            "sort": ([lambda: i.argsort(stable=True), lambda: x.topk(4, dim=-1, sorted=False)], 1),
            "softmax": ([lambda: torch.softmax(x, -1)], 1),
            "pad": ([lambda: torch.constant_pad_nd(rows, (0, 0, 0, 60))], 1),
            "cat": ([lambda: torch.cat(several)], 1),
            "product": ([lambda: a @ b, lambda: torch.bmm(o3.to(low), o3.to(low))][:1], 1),
            "wide_product": ([lambda: x @ y, lambda: torch.bmm(o3, o3)], 1),
            **_loops(),
            "adamw": ([fused], 8),
            "module": ([lambda: module(x)], 1),
            "frame": ([lambda: _frame(x, y)], 1),
            "function": ([lambda: _Nothing.apply(p, y)], 1),
        }
        if (p := torch.randn(8, requires_grad=True)) is not None
        else {}
    )


def chains() -> dict[str, tuple[Callable[[int], Callable[[], Any]], str | None]]:
    """Chains whose length says what a link takes: nodes of autograd, and functions backward; with
    the item that each link does beside."""
    grad = torch.ones(8)

    def of(link: Callable[[Tensor], Tensor]) -> Callable[[int], Callable[[], Any]]:
        def made(length: int) -> Callable[[], Any]:
            leaf = torch.randn(8, requires_grad=True)
            out = leaf
            for _ in range(length):
                out = link(out)
            return lambda: torch.autograd.grad(out, leaf, grad, retain_graph=True)

        return made

    y = torch.randn(8)
    return {
        "node": (of(lambda x: -x), "pointwise"),
        "function_backward": (of(lambda x: _Nothing.apply(x, y)), None),
    }


def items(rounds: int = ROUNDS) -> dict[str, float]:
    """Median seconds of each item, all timed in turn."""
    torch.set_num_threads(1)
    timed: list[tuple[str, int, Callable[[], Any]]] = []
    for name, (calls, many) in cases().items():
        timed += [(name, many, call) for call in calls]
    timed += [
        (f"{name}*{length}", 1, make(length))
        for name, (make, _) in chains().items()
        for length in (2, 12)
    ]
    for length in (2, 12):
        timed.append((f"accumulate*{length}", 1, _accumulating(length)))
    timed.append(("clock", 1, lambda: None))
    cold, hot = _in_turn(timed, rounds, BURST), _in_turn(timed, rounds // 4, 4 * BURST)
    for found, link in ((cold, hot), (hot, hot)):
        for name, (_, beside) in chains().items():
            each = (link[f"{name}*12"] - link[f"{name}*2"]) / 10
            found[name] = each - (hot[beside] if beside else 0.0)
        each = (link["accumulate*12"] - link["accumulate*2"]) / 10
        found["accumulate"] = each - found["node"] - hot["copy"] - hot["pointwise"]
        found["engine"] = found["accumulate*2"] - 2 * each
    return {name: value for name, value in cold.items() if "*" not in name and name != "clock"}


def _in_turn(
    timed: list[tuple[str, int, Callable[[], Any]]], rounds: int, burst: int
) -> dict[str, float]:
    """Median seconds of each item; each call is made `burst` times, then it is another's turn."""
    seconds: dict[tuple[str, int], list[float]] = {}
    order = list(range(len(timed)))
    shuffle, clock = random.Random(0).shuffle, time.perf_counter
    for turn in range(rounds + 20):
        shuffle(order)
        for place in order:
            name, many, call = timed[place]
            times = 1 if many == EXPERTS else burst
            begun = clock()
            for _ in range(times):
                call()
            spent = (clock() - begun) / times
            if turn >= 20:
                seconds.setdefault((name, place), []).append(spent / many)
    by_name: dict[str, list[float]] = {}
    idle = next(median(values) for (name, _), values in seconds.items() if name == "clock")
    for (name, _), values in seconds.items():
        by_name.setdefault(name, []).append(median(values) - idle * (name not in _LOOPS))
    return {name: sum(values) / len(values) for name, values in by_name.items()}


_LOOPS: Final = ("expert_up", "expert_down", "expert_up_backward", "expert_down_backward", "adamw")


def _accumulating(length: int) -> Callable[[], Any]:
    """A backward into so many leaves in bf16 whose gradients are fp32."""
    leaves = [torch.randn(8, dtype=torch.bfloat16, requires_grad=True) for _ in range(length)]
    for leaf in leaves:
        leaf.grad_dtype = torch.float32
        leaf.grad = torch.zeros(8)
    outs = tuple(leaf.view(8) for leaf in leaves)
    grads = tuple(torch.ones(8, dtype=torch.bfloat16) for _ in leaves)
    return lambda: torch.autograd.backward(outs, grads, retain_graph=True)


if __name__ == "__main__":
    words = argparse.ArgumentParser(description="Count and time what the host of a step does.")
    words.add_argument("config", nargs="?")
    words.add_argument("--counts", type=Path)
    words.add_argument("--items", type=Path)
    asked = words.parse_args()
    if asked.items:
        asked.items.write_text(json.dumps(items(), indent=1))
    if asked.counts:
        asked.counts.write_text(json.dumps(count(asked.config), indent=1))
