"""A rank of a run whose other ranks, and whose device, are not there.

Tensors of the device are on torch's meta device under a `FakeTensorMode`, which keeps apart what is
on a host; collectives and messages end when they begin. Where the code asks for a number there is
none to give: `Answers` says 1, so that the loss is finite, nothing is divided by zero, and every
attention head counts as one that QK-clip scales, as late in a bad run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch._subclasses import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from reference.model.rope import forget_tables

DEVICE: Final = torch.device("meta")
"""What stands for the device."""


class Answers(TorchDispatchMode):
    """Says 1, in the type that is asked for, where a tensor without numbers is asked for its."""

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()
        self._fake = fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func is torch.ops.aten._local_scalar_dense.default:  # noqa: SLF001 - its only name
            kind = args[0].dtype
            return 1.0 if kind.is_floating_point else kind == torch.bool or 1
        if func.overloadpacket is torch.ops.aten.set_:
            # torch remembers what such a call gave by its arguments: storages, which it so keeps.
            with patch.object(self._fake, "cache_enabled", new=False):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextmanager
def pretended(rank: int, ranks: int) -> Iterator[None]:
    """Within, this process is one rank of so many, without a device."""
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    forget_tables()
    try:
        with FakeTensorMode() as fake, Answers(fake):
            yield
    finally:
        forget_tables()
        dist.destroy_process_group()
