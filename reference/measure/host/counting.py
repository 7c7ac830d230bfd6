"""Counts of one step of a run: calls of torch by kind, modules, functions and nodes of autograd,
and calls of Python, each for the operation of the twin that it belongs to. Nothing is timed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from reference import train
from reference.config import load_run
from reference.measure.host.labels import MODULES, label, local_name
from reference.trainer import loop

KINDS: Final = {
    "view": "view slice select transpose t expand unsqueeze squeeze split split_with_sizes permute "
    "as_strided alias detach _unsafe_view view_as_complex view_as_real unbind unfold lift_fresh "
    "_reshape_alias view_as diagonal",
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
    "product": "mm addmm bmm baddbmm baddbmm_ mv addmv dot",
}
"""Calls of torch by kind; others are `pointwise`."""
KIND_OF: Final = {name: kind for kind, names in KINDS.items() for name in names.split()}
LOOP: Final = "kernels/grouped.py"
"""The loop over experts: its products are a kind of their own."""
UNCOUNTED: Final = (LOOP, "autograd/function.py", "contextlib")
"""Files whose calls of Python are in the time of a loop or a function."""
STEP: Final = 4
"""The step whose calls are counted: earlier ones compile kernels and fill caches. Nodes are counted
one step before, as a dispatch mode would count its own calls of Python."""


class Counting(TorchDispatchMode):
    """Counts what one step does, by the twin's operation and direction; with `frames` calls of
    Python, else calls of torch and nodes of autograd."""

    def __init__(self, models: list[nn.Module], *, frames: bool = False) -> None:
        super().__init__()
        self.frames = frames
        self.counts: dict[tuple[str, str], Counter[str]] = {}
        self.node_of: dict[int, str] = {}
        self.sequence = _sequence()
        self.now: str | None = None
        """The operation whose gradients are being made."""
        self.inside = False
        self.names: dict[int, str] = {}
        self.parameters: dict[int, str] = {}
        for model in models:
            for name, module in model.named_modules():
                local = local_name(name)
                self.names[id(module)] = local
                for parameter in module.parameters(recurse=False):
                    self.parameters[id(parameter)] = MODULES.get(local, local)

    def add(self, kind: str, frame: FrameType | None, times: int = 1) -> str:
        """Count something for the operation that runs, and return that."""
        direction = "forward" if self.now is None else "backward"
        operation = self.now or label(frame, self.names)
        self._count(operation, direction, kind, times)
        return operation

    def _count(self, operation: str, direction: str, kind: str, times: int = 1) -> None:
        self.counts.setdefault((operation, direction), Counter())[kind] += times

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.inside = True
        try:
            name, frame = func.overloadpacket.__name__, sys._getframe(1)  # noqa: SLF001
            times = len(args[0]) if name == "_fused_adamw_" else 1
            operation = self.add(_kind(name, args, frame), frame, times)
            if self.now is None:
                until = _sequence()
                for number in range(self.sequence, until):
                    self.node_of[number] = operation
                self.sequence = max(self.sequence, until)
            return func(*args, **(kwargs or {}))
        finally:
            self.inside = False

    def called(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call of Python, for `sys.setprofile`."""
        file = frame.f_code.co_filename
        if event != "call" or self.inside or file == __file__:
            return
        if any(part in file for part in UNCOUNTED):
            return
        if file.endswith("nn/modules/module.py"):
            if frame.f_code.co_name == "_call_impl":
                self.add("module", frame.f_back)
            return
        self.add("frame", frame)

    def watch(self, edges: Any) -> None:
        """Count the nodes that a backward runs through, and say at each whose it is."""
        if self.frames:
            return
        for node in _nodes(edges):
            if type(node).__name__ == "AccumulateGrad":
                operation, kind = self.parameters.get(id(node.variable), "step"), "accumulate"
            else:
                operation = self.node_of.get(node._sequence_nr(), "microbatch")  # noqa: SLF001
                kind = "function_backward" if hasattr(node, "_forward_cls") else "node"
            if kind == "function_backward":
                self._count(operation, "forward", "function")
            self._count(operation, "backward", kind)
            node.register_prehook(lambda _, operation=operation: self.enter(operation))

    def enter(self, operation: str) -> None:
        """The backward has come to an operation."""
        self.now = operation

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every backward, and count."""
        plain = torch.autograd.backward

        def watched(edges: Any, *others: Any) -> None:
            self.watch(edges)
            self.now = "microbatch"
            try:
                plain(edges, *others)
            finally:
                self.now, self.sequence = None, _sequence()

        torch.autograd.backward = watched
        try:
            if self.frames:
                sys.setprofile(self.called)
                yield
            else:
                with self:
                    yield
        finally:
            sys.setprofile(None)
            torch.autograd.backward = plain


def count(config: str) -> dict[str, Any]:
    """Counts of one step by operation, direction and item."""
    found: dict[str, Any] = {}
    plain = loop.train_step

    def counted(run: Any, stage: Any, trainee: Any, stop: Any) -> Any:
        if trainee.step not in (STEP - 1, STEP):
            return plain(run, stage, trainee, stop)
        counting = Counting(trainee.models, frames=trainee.step == STEP)
        with counting.watching():
            made = plain(run, stage, trainee, stop)
        for (operation, direction), counts in sorted(counting.counts.items()):
            found.setdefault(operation, {}).setdefault(direction, {}).update(counts)
        return made

    loop.train_step = counted
    try:
        train.train(load_run(config, []), existing="fresh")
    finally:
        loop.train_step = plain
    return found


def _sequence() -> int:
    """The number of the next node of autograd."""
    return torch.autograd._get_sequence_nr()  # noqa: SLF001  # pyright: ignore[reportPrivateImportUsage]


def _nodes(edges: Any) -> Iterator[Any]:
    """All nodes behind edges, each once."""
    seen: set[Any] = set()
    todo = [edge.node for edge in edges]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
            yield node


def _kind(name: str, args: Any, frame: FrameType | None) -> str:
    """The kind of a call of torch; products by the width of their numbers and by the loop."""
    kind = KIND_OF.get(name, "pointwise")
    if kind != "product":
        return kind
    if not any(isinstance(one, Tensor) and one.dtype == torch.bfloat16 for one in args):
        return "wide_product"
    while frame is not None:
        if frame.f_code.co_filename.endswith(LOOP):
            return "expert_product"
        frame = frame.f_back
    return "product"
