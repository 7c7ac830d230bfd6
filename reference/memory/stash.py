"""How the model says what a memory policy may do, and the policy that does it.

The model calls `op(name, fn, ...)` where a policy may run `fn` again, `mark(name, tensor)` where it
may store a tensor in FP8, and `layer(index, fn, ...)` around a layer. Without an active `Stash`
these only call `fn`. With one, autograd's hooks on saved tensors (`saved_tensors_hooks`) put a
handle in the place of every tensor that a backward pass will need, recognised by its storage:

- the storage is an output of an op that the policy recomputes, or was made inside one: the op runs
  again, once, from its inputs, which wait in the same way;
- it was marked for FP8: it waits as E4M3 tiles of 1 x 128;
- otherwise it waits as it is.

Under `offload: [activations]` whatever waits of a layer goes to host memory. Parameters pass
through. Each forward has its own `Stash`, so that several may wait for their backward.

Sources: Korthikanti et al. 2022 (arXiv:2205.05198), section 5; Kimi K2 (arXiv:2507.20534), section
2.4. Left out: second derivatives of what is run again.

Which names of a memory policy mean nothing for a model or a device: as warnings, since such a
policy is a mistake that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from weakref import ref

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter

from reference.memory.saved_tensor import (
    Again,
    Form,
    Frame,
    Handle,
    Kept,
    KeptBytes,
    Near,
    Packed,
    SavedStorage,
    Sent,
    Unit,
    key,
    now,
)
from twin.errors import Problem
from twin.spec.memory import MemorySpec
from twin.spec.model import GroupedAttention, ModelSpec

T = TypeVar("T")

_STAYS: Final[dict[str, tuple[int, ...]]] = {"attention_core": (0,)}
"""Outputs that are kept where an op runs again: the output of the attention core is the input of
the projection behind it (Korthikanti et al. 2022, section 5), and of its own backward."""


def op(name: str, fn: Callable[..., T], *inputs: Any) -> T:
    """`fn(*inputs)`, a tensor or a tuple of tensors. A policy that names it runs it again in the
    backward pass, so `fn` must do the same each time; tensors that it needs beside parameters are
    among the inputs, not inside others."""
    stash = now.stash
    if stash is None or now.again or not torch.is_grad_enabled():
        return fn(*inputs)
    return stash.run_op(name, fn, inputs)


def mark(name: str, tensor: Tensor) -> Tensor:
    """The tensor itself, which a policy that names it stores in FP8. It is contiguous, and alone on
    its storage."""
    stash = now.stash
    if stash is not None and not now.again and torch.is_grad_enabled():
        stash.mark(name, tensor)
    return tensor


def layer(index: int, fn: Callable[..., T], *inputs: Any) -> T:
    """`fn(*inputs)`: one layer of the model, of which `full` keeps only the inputs, and which goes
    to host memory as a whole."""
    stash = now.stash
    if stash is None or now.again or not torch.is_grad_enabled():
        return fn(*inputs)
    return stash.run_layer(index, fn, inputs)


def recomputing() -> bool:
    """Whether a backward pass runs this forward again: whatever counts must not count twice."""
    return now.again


_persistent: dict[int, StorageWeakRef] = {}


def persistent(tensor: Tensor) -> Tensor:
    """The tensor itself, which lives as long as the model and is not an activation: a table. It is
    neither counted nor moved, like a parameter."""
    _persistent[key(tensor)] = StorageWeakRef(tensor.untyped_storage())
    return tensor


class Stash:
    """A memory policy over one forward pass: `with Stash(policy) as stash: loss = ...`; then
    `loss.backward()`.

    A policy that changes nothing for activations costs nothing and counts nothing; with `measure`
    it counts, and names what it counts.
    """

    def __init__(self, policy: MemorySpec, *, measure: bool = False) -> None:
        self._recompute: frozenset[str] = frozenset(policy.recompute)
        self._fp8_store: frozenset[str] = frozenset(policy.fp8_store)
        self._offload = "activations" in policy.offload
        self._measure = measure
        self._acts = bool(measure or self._offload or policy.recompute or policy.fp8_store)
        self._hooks: saved_tensors_hooks | None = None
        self._around: Stash | None = None
        self._frame: Frame | None = None
        self._units = [Unit(None)]
        self._unit = self._units[0]
        # What autograd may still ask for in this unit, and of the units before, by storage.
        self._running: dict[int, SavedStorage] = {}
        self._past: dict[int, SavedStorage] = {}
        self._marked: dict[int, torch.Size] = {}
        self.ledger: tuple[KeptBytes, ...] = ()
        """What waits for the backward pass, known when the forward is over."""

    @property
    def kept(self) -> dict[str, int]:
        """Bytes that wait for the backward pass: `activations` of layers on the device, the same on
        the `host`, and what the embedding, the head and the loss keep, `outside`. Empty where
        nothing was counted."""
        if not self._acts:
            return {}
        layers = [one for one in self.ledger if one.layer is not None]
        return {
            "activations": sum(one.device for one in layers),
            "host": sum(one.host for one in layers),
            "outside": sum(one.device for one in self.ledger if one.layer is None),
        }

    def __enter__(self) -> Self:
        if self._acts:
            if self._hooks is not None:
                raise RuntimeError("a Stash is for one forward pass")
            self._around, now.stash = now.stash, self
            self._hooks = saved_tensors_hooks(self._wait, _come)
            self._hooks.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._hooks is None:
            return
        self._hooks.__exit__(kind, error, trace)
        now.stash, self._around = self._around, None
        outside, last = self._units[0], self._units[-1]
        self._settle(outside)
        self._past.clear()
        # The backward begins outside of layers: it fetches the last one.
        outside.before = last if last is not outside else None
        self.ledger = tuple(held.count() for unit in self._units for held in unit.helds())

    def wait(self) -> None:
        """Let the device wait until all that goes to host memory is out."""
        for unit in self._units:
            unit.wait()

    def lead(self, following: Stash) -> None:
        """The backward of `following` comes behind this one's: its last layer is fetched under this
        one's first."""
        first, last = self._units[:2][-1], following._units[-1]
        if last.layer is not None:
            first.before = last

    def run_op(self, name: str, fn: Callable[..., T], inputs: tuple[Any, ...]) -> T:
        """`op` under this policy."""
        if self._frame is not None:
            return fn(*inputs)
        if name in self._recompute:
            return self._run_frame(name, fn, inputs)
        outputs = fn(*inputs)
        if self._measure:
            for output in outputs if isinstance(outputs, tuple) else (outputs,):
                if isinstance(output, Tensor):
                    self._name(name, output)
        return outputs

    def run_layer(self, index: int, fn: Callable[..., T], inputs: tuple[Any, ...]) -> T:
        """`layer` under this policy."""
        outside, last = self._units[0], self._units[-1]
        if last.before is not None:
            last.before.wait()
        self._settle(outside)
        self._unit = Unit(index, last if last is not outside else None)
        try:
            full = "full" in self._recompute
            outputs = self._run_frame("full", fn, inputs) if full else fn(*inputs)
        finally:
            self._settle(self._unit)
            self._units.append(self._unit)
            self._unit = outside
        if self._offload:
            self._units[-1].send()
        return outputs

    def mark(self, name: str, tensor: Tensor) -> None:
        """`mark` under this policy."""
        if self._frame is not None:
            return
        if name in self._fp8_store:
            assert tensor.is_contiguous()
            assert tensor.nbytes == tensor.untyped_storage().nbytes()
            self._marked[key(tensor)] = tensor.size()
        if self._measure or name in self._fp8_store:
            self._name(name, tensor)

    def _name(self, name: str, tensor: Tensor) -> None:
        """Remember what a storage is called, whether or not anybody will save it."""
        if self._find(tensor) is None:
            self._hold(tensor, None, name)

    def _find(self, tensor: Tensor) -> SavedStorage | None:
        place = key(tensor)
        return self._running.get(place) or self._past.get(place)

    def _hold(self, tensor: Tensor, form: Form | None, name: str = "") -> SavedStorage:
        held = self._running[key(tensor)] = SavedStorage(tensor, self._unit, name, form)
        return held

    def _settle(self, unit: Unit) -> None:
        """Let go of what nobody saved, now that nobody will."""
        found = {place: ref(held) for place, held in self._running.items()}
        self._running.clear()
        self._marked.clear()
        unit.settle(found.values())
        self._past |= {place: held for place, one in found.items() if (held := one())}

    def _run_frame(self, name: str, fn: Callable[..., T], inputs: tuple[Any, ...]) -> T:
        frame = self._frame = Frame(fn, inputs, self._wait)
        try:
            outputs = fn(*inputs)
        finally:
            self._frame = None
        made = outputs if isinstance(outputs, tuple) else (outputs,)
        stays = range(len(made)) if name == "full" else _STAYS.get(name, ())
        for place, output in enumerate(made):
            if not isinstance(output, Tensor):
                continue
            held = self._find(output)
            if place not in stays and held is None:
                frame.want(("output", place), self._hold(output, Again(frame), name))
            elif place in stays and held is not None and isinstance(held.form, Again):
                held.form = self._keep(output)
        return outputs

    def _wait(self, tensor: Tensor) -> Tensor | Handle:
        """What autograd holds in a tensor's place until the backward pass."""
        frame = self._frame
        if frame is not None:
            frame.saved += 1
        held = self._find(tensor)
        if held is None:
            if _is_parameter(tensor) or key(tensor) in _persistent:
                return tensor.detach()
            if frame is not None:
                held = self._hold(tensor, Again(frame))
                frame.want(("saved", frame.saved - 1), held)
            else:
                held = self._hold(tensor, self._keep(tensor))
        elif held.form is None:
            held.form = self._pack(tensor) or self._keep(tensor)
        near = isinstance(held.form, Kept) and not self._offload
        return Near(held, tensor) if near else Handle(held, tensor)

    def _keep(self, tensor: Tensor) -> Form:
        away = self._offload and self._unit.layer is not None
        return (Sent if away else Kept)(tensor.untyped_storage())

    def _pack(self, tensor: Tensor) -> Form | None:
        """All of a storage that was marked for FP8, of which `tensor` shows a part."""
        size = self._marked.get(key(tensor))
        if size is None:
            return None
        return Packed(tensor.detach().as_strided(size, _dense(size), 0))


def _dense(size: torch.Size) -> tuple[int, ...]:
    """Strides of a contiguous tensor."""
    return tuple(size[place + 1 :].numel() for place in range(len(size)))


def _is_parameter(tensor: Tensor) -> bool:
    # `isinstance` runs Python code of torch's here, for every tensor that is saved.
    return type(tensor) is Parameter or type(tensor._base) is Parameter  # noqa: SLF001


def _come(waits: Tensor | Handle) -> Tensor:
    """What autograd gets back for it."""
    return waits.tensor() if isinstance(waits, Handle) else waits


CODE = "TW240"


def idle(policy: MemorySpec, model: ModelSpec, device: torch.device) -> tuple[Problem, ...]:
    """A warning for each name that changes nothing."""
    return (
        *_beside_full(policy),
        *_absent(policy, model),
        *_parts(policy),
        *_update(policy),
        *_same_memory(policy, device),
    )


def _beside_full(policy: MemorySpec) -> list[Problem]:
    if "full" not in policy.recompute:
        return []
    others = [one for one in policy.recompute if one != "full"]
    fields = {"recompute": others, "fp8_store": policy.fp8_store}
    return [
        _warning(field, name, "recompute full runs whole layers again and keeps their input alone")
        for field, names in fields.items()
        for name in names
    ]


def _absent(policy: MemorySpec, model: ModelSpec) -> list[Problem]:
    if "full" in policy.recompute:
        named = [("offload", one) for one in policy.offload]
    else:
        named = [
            *(("recompute", one) for one in policy.recompute),
            *(("fp8_store", one) for one in policy.fp8_store),
            *(("offload", one) for one in policy.offload),
        ]
    lacks = {"moe": "this trainer runs whole layers or single operations again"}
    if isinstance(model.attention, GroupedAttention):
        lacks["mla_up"] = f"the attention of {model.name} has no latents"
    if not any(model.has_experts(layer) for layer in range(model.layers)):
        experts = f"{model.name} has no experts"
        lacks |= dict.fromkeys(("moe_down", "moe_up_input", "optimizer_expert"), experts)
    else:
        lacks["moe_down"] = (
            "routing weights enter before it, so no backward pass needs its output, and it never "
            "runs again"
        )
    return [_warning(field, name, lacks[name]) for field, name in named if name in lacks]


def _parts(policy: MemorySpec) -> list[Problem]:
    named = (name for name in policy.activations_on_host if name != "activations")
    why = "this trainer sends all activations to the host, or none"
    return [_warning("offload", name, why) for name in named]


def _update(policy: MemorySpec) -> list[Problem]:
    if policy.optimizer_update == "device" or policy.states_on_host:
        return []
    return [_warning("optimizer_update", "host", "no optimizer state is offloaded")]


def _same_memory(policy: MemorySpec, device: torch.device) -> list[Problem]:
    if device.type == "cuda":
        return []
    why = f"device {device.type} computes in host memory: there are copies, and nothing is saved"
    return [_warning("offload", name, why) for name in policy.offload]


def _warning(field: str, name: str, why: str) -> Problem:
    return Problem(CODE, f"memory.{field}", f"{field} {name} changes nothing: {why}")
