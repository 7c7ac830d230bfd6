"""Where in the code something is made: the module whose forward runs, or the node of autograd whose
backward does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)


class _Stack(local):
    """The modules whose forward runs in a thread, outermost first."""

    def __init__(self) -> None:
        self.names: list[str] = []


class Places:
    """The modules of a rank's parts, by name, as they run."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._stack = _Stack()

    @contextmanager
    def followed(self, parts: Iterable[nn.Module]) -> Iterator[None]:
        """Within, `now` knows these."""
        self._names = {id(one): name for part in parts for name, one in part.named_modules()}

        def enter(module: nn.Module, given: Any) -> None:
            del given
            self._stack.names.append(self._names.get(id(module), ""))

        def leave(module: nn.Module, given: Any, made: Any) -> None:
            del module, given, made
            self._stack.names.pop()

        handles = (
            register_module_forward_pre_hook(enter),
            register_module_forward_hook(leave, always_call=True),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def now(self) -> str:
        """`layers.3.attention.out`, `GroupedMatmulBackward`, or "" outside of both."""
        if self._stack.names:
            return self._stack.names[-1]
        node = torch._C._current_autograd_node()  # noqa: SLF001 - it has no public name
        return node.name().lstrip("_") if node is not None else ""
