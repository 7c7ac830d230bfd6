"""A forward that runs again in the backward pass: one op, or a whole layer.

While it runs for the first time, what autograd saves inside gets handles on nothing, and so do its
outputs when it is over; only its inputs wait. The first handle that is read runs it again, with
gradients on, so that autograd saves the same tensors in the same order, to the same bits; all
handles that are still alive get their storages from that one run. The backward itself is that of
the first run, whose nodes hold the handles.

Neither random numbers nor autocast are restored: the model uses neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from weakref import ref

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from reference.kernels.late import current, split_by
from reference.memory.held import Again, Handle, Held
from reference.memory.now import now

Place = tuple[Literal["saved", "output"], int]
"""Which tensor of a run: the n-th that autograd saves, or the n-th output."""


class Frame:
    """One call of `fn(*inputs)`, and who needs what it made."""

    def __init__(
        self, fn: Callable[..., Any], inputs: tuple[Any, ...], wait: Callable[[Tensor], Any]
    ) -> None:
        """`wait` gives what stands for an input until the backward pass."""
        self._fn = fn
        self._late = current()
        self._inputs = tuple(wait(one) if isinstance(one, Tensor) else one for one in inputs)
        self._need = tuple(isinstance(one, Tensor) and one.requires_grad for one in inputs)
        self._wanted: dict[Place, ref[Held]] = {}
        self.saved = 0
        """Tensors that autograd has saved inside."""

    def want(self, place: Place, held: Held) -> None:
        """A storage that the second run will make."""
        self._wanted[place] = ref(held)

    def run(self) -> None:
        """Run again, and give everybody who is still there what was made."""
        inputs = map(_input, self._inputs, self._need)
        count = 0

        def keep(tensor: Tensor) -> None:
            nonlocal count
            self._give(("saved", count), tensor)
            count += 1

        with (
            now.running_again(),
            torch.enable_grad(),
            saved_tensors_hooks(keep, _never),
            split_by(self._late),
        ):
            outputs = self._fn(*inputs)
        for place, output in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
            if isinstance(output, Tensor):
                self._give(("output", place), output)
        self._inputs, self._wanted = (), {}

    def _give(self, place: Place, tensor: Tensor) -> None:
        wanted = self._wanted.get(place)
        held = wanted() if wanted else None
        if held is not None and isinstance(held.form, Again):
            held.form.made = tensor.untyped_storage()


def _input(waits: Any, needs_gradient: bool) -> Any:
    if isinstance(waits, Handle):
        waits = waits.tensor()
    return waits.requires_grad_(needs_gradient) if isinstance(waits, Tensor) else waits


def _never(_: None) -> Tensor:
    raise AssertionError("the second run has no backward of its own")
