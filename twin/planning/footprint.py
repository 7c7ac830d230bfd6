"""What one chunk holds for one micro-batch: between its passes, and while they run.

A forward keeps what its backward needs, less what the memory policy computes again, in fewer bytes
where it stores in FP8; a backward brings that back and frees it. Sources: activations and
recomputation from Korthikanti et al. 2022, sections 4 and 5; what waits between the two halves of a
split backward is M_W of Qi et al. 2023 (arXiv:2401.10241, table 1): the input and the output's
gradient of every op with weights. An input that two ops share is counted for both, which is an
upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Final

from twin.arch.fp8 import packed_bytes, stored
from twin.arch.ops import Layer, Op
from twin.arch.recompute import ATTENTION_CORE, again, brought, wholly
from twin.planning.types import Chunk
from twin.schedules.base import Pass
from twin.spec.memory import MemorySpec

PARAMETER_BYTES: Final = 2
"""BF16 weights (Rajbhandari et al. 2020, section 3.1)."""
GRADIENT_BYTES: Final = 4
"""FP32 gradient buffer: micro-batches accumulate in it (Megatron-LM; Kimi K2 report, section
2.4)."""

_KEEPERS: Final[dict[str, frozenset[str]]] = {
    "attention_norm_input": frozenset({"layer_input"}),
    "qkv_input": frozenset({"attention_norm", "attention_norm_cast"}),
    "attention_core": ATTENTION_CORE | {"qkv", "rotary", "q_up", "kv_up", "mla_rope"},
    "attention_out_input": frozenset({"attention_out", "attention_out_cast"}),
    "ffn_norm_input": frozenset({"attention_residual"}),
    "moe_up_input": frozenset(
        {
            "dispatch",
            "dispatch_gather",
            "dispatch_permute",
            "dispatch_sort",
            "experts_pad",
            "experts_cast",
        }
    ),
    "moe_swiglu_input": frozenset({"experts_up"}),
}
"""Part of a layer whose activations may be offloaded -> the ops that keep them: the inputs of the
modules of Megatron-LM's `--offload-modules`, and all that attention needs of its core."""


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes alive because of chunks' passes: `activations` and `logits` wait for a backward pass,
    `working` is what the running pass needs beside them (recomputed and unpacked activations,
    gradients of activations, outputs on their way)."""

    activations: float = 0.0
    logits: float = 0.0
    working: float = 0.0

    @property
    def total(self) -> float:
        """All bytes."""
        return self.activations + self.logits + self.working

    def __add__(self, other: Held) -> Held:
        return Held(
            self.activations + other.activations,
            self.logits + other.logits,
            self.working + other.working,
        )

    def __sub__(self, other: Held) -> Held:
        return self + other.times(-1)

    def times(self, count: int) -> Held:
        """This many of it."""
        return Held(self.activations * count, self.logits * count, self.working * count)

    def categories(self) -> dict[str, float]:
        """As the ledger names them."""
        return {
            "activations": self.activations,
            "logits": self.logits,
            "working_set": self.working,
        }


NOTHING: Final = Held()


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one chunk holds for one micro-batch: between its passes, and at the fullest instant of
    each pass."""

    kept: Held
    """From the forward to the backward."""
    late: Held
    """From the input's backward to the weights'."""
    forward: Held
    backward: Held
    input_backward: Held
    layers: tuple[Held, ...] = ()
    """What each layer keeps, which adds up to `kept`; empty: all at once."""
    sent: float = 0.0
    """Bytes of what is kept that wait in host memory, as far as the order of passes lets them."""

    def during(self, kind: Pass) -> Held:
        """At the fullest instant of a pass."""
        match kind:
            case "F":
                return self.forward
            case "B":
                return self.backward
            case "I":
                return self.input_backward
            case "W":
                return self.late

    def before(self, kind: Pass) -> Held:
        """What a pass finds of its own micro-batch."""
        match kind:
            case "F":
                return NOTHING
            case "B" | "I":
                return self.kept
            case "W":
                return self.late

    def after(self, kind: Pass) -> Held:
        """What a pass leaves of its own micro-batch."""
        match kind:
            case "F":
                return self.kept
            case "I":
                return self.late
            case "B" | "W":
                return NOTHING


def spared(forward: Footprint, backward: Footprint) -> Held:
    """Of the activations that both keep, what is never there at a time where they run as a pair,
    layer beside layer: while one fills from its first layer on, the other empties from its last
    one. Logits are counted at the fullest instant of each pass (`Footprint.during`)."""
    filling = [layer.activations for layer in forward.layers]
    emptying = [layer.activations for layer in reversed(backward.layers)]
    held = fullest = backward.kept.activations
    for more, less in zip_longest(filling, emptying, fillvalue=0.0):
        held += more
        fullest = max(fullest, held)
        held -= less
    both = forward.kept.activations + backward.kept.activations
    return Held(both - fullest) if filling and emptying else NOTHING


def footprints(chunks: Iterable[Chunk]) -> dict[int, Footprint]:
    """What every chunk holds for one micro-batch, by its index."""
    made: dict[tuple[int, ...], Footprint] = {}
    found: dict[int, Footprint] = {}
    needs: dict[int, _Needs] = {}
    for chunk in chunks:
        # Layers of one kind are one shared object.
        key = tuple(id(layer) for layer in chunk.layers)
        if key not in made:
            for layer in chunk.layers:
                if id(layer) not in needs:
                    needs[id(layer)] = _needs(layer, layer.policy)
            made[key] = _filled(chunk.layers, [needs[one] for one in key])
        found[chunk.index] = made[key]
    return found


def footprint(layers: Sequence[Layer], memory: MemorySpec) -> Footprint:
    """What a chunk of these layers holds for one micro-batch. Layers fill one by one in the forward
    pass and empty one by one in the backward pass, so each pass is fullest at one of its layers."""
    own = [replace(layer, policy=memory) for layer in layers]
    return _filled(own, [_needs(layer, memory) for layer in own])


@dataclass(frozen=True, slots=True)
class _Needs:
    """What one layer keeps for its backward and for its weights' gradients, and what its passes
    need beside all that is kept."""

    kept: Held
    late: Held
    forward: Held
    backward: Held
    used: Held
    sent: float


def _needs(layer: Layer, memory: MemorySpec) -> _Needs:
    widest = _widest_pair(layer)
    return _Needs(
        kept=_held(layer, kept_bytes(layer, memory)),
        late=_held(layer, late_bytes(layer)),
        forward=_working(layer, widest),
        backward=_working(layer, back_bytes(layer, memory) + (layer.input_bytes + widest)),
        used=Held(working=PARAMETER_BYTES * layer.used.total * memory.fully_shard),
        sent=sum(sent_by_op(layer, memory).values()),
    )


def _filled(layers: Sequence[Layer], needs: Sequence[_Needs]) -> Footprint:
    """A chunk of layers with these needs."""
    sharded = any(layer.policy.fully_shard for layer in layers)
    gathered = _gathered(layers) if sharded else [0.0] * len(layers)
    kept, late = Held(), sum((need.late for need in needs), Held())
    forward, backward, input_backward = Held(), Held(), late
    left = late
    for need, beside in zip(needs, gathered, strict=True):
        kept += need.kept
        left -= need.late
        reverse = kept + need.backward + Held(working=beside)
        forward = _fuller(forward, kept + need.forward + need.used)
        backward = _fuller(backward, reverse)
        input_backward = _fuller(input_backward, reverse + left)
    layers_kept = tuple(need.kept for need in needs)
    sent = sum(need.sent for need in needs)
    return Footprint(kept, late, forward, backward, input_backward, layers_kept, sent)


def _gathered(layers: Sequence[Layer]) -> list[float]:
    """Bytes beside the backward pass of each layer under torch's `fully_shard`: its bf16
    parameters, which were copied out of what arrived; their bf16 gradients; and the fp32 copy of
    those of the layer behind it, which is on its way (`_fsdp_collectives.py`, `foreach_reduce`).
    The head is fullest before it has gradients of weights."""
    found: list[float] = []
    for layer, behind in zip_longest(layers, layers[1:]):
        own = 0 if layer.kind == "head" else layer.learned.total
        sent = behind.learned.total if behind else 0
        found.append(PARAMETER_BYTES * (layer.used.total + own) + GRADIENT_BYTES * sent)
    return found


def kept_bytes(layer: Layer, memory: MemorySpec) -> float:
    """Bytes of one layer that stay between its forward and its backward pass, on the device or on
    the host. `full` keeps the inputs of transformer layers; embedding and head are never
    recomputed."""
    return sum(kept_by_op(layer, memory).values())


def kept_by_op(layer: Layer, memory: MemorySpec) -> dict[str, float]:
    """The same by the name of the op that keeps them."""
    if wholly(layer, memory.recompute):
        return {"layer_input": layer.input_bytes}
    repeated, packed = again(layer, memory.recompute), frozenset(stored(layer, memory).values())
    kept: dict[str, float] = {}
    for item in layer.items:
        if item.name not in repeated and item.saved:
            size = packed_bytes(item.saved) if item.name in packed else item.saved
            kept[item.name] = kept.get(item.name, 0.0) + size
    return kept | brought(layer, memory.recompute)


def sent_by_op(layer: Layer, memory: MemorySpec) -> dict[str, float]:
    """Those of them that go to host memory. What the head keeps stays: its backward comes at
    once."""
    named = memory.activations_on_host
    if not named or layer.kind == "head":
        return {}
    kept = kept_by_op(layer, memory)
    if "activations" in named:
        return kept
    keepers = frozenset[str]().union(*(_KEEPERS[name] for name in named))
    return {name: size for name, size in kept.items() if name in keepers}


def saved_bytes(layer: Layer) -> float:
    """Bytes that one layer keeps when nothing is recomputed and nothing packed."""
    return sum(item.saved for item in layer.items)


def back_bytes(layer: Layer, memory: MemorySpec) -> float:
    """Bytes of one layer that its backward pass brings back beside what was kept: computed again,
    or unpacked, while the packed ones are still there."""
    kept = kept_by_op(layer, memory)
    unpacked = frozenset(stored(layer, memory).values())
    apart = unpacked | brought(layer, memory.recompute).keys()
    whole = sum(size for name, size in kept.items() if name not in apart)
    return max(saved_bytes(layer) - whole, 0.0)


def late_bytes(layer: Layer) -> float:
    """Bytes of one layer that wait for its weights' gradients when those are put off."""
    ops = [item for item in layer.items if isinstance(item, Op) and item.weight.kernels]
    return sum(op.late for op in ops)


def _fuller(one: Held, other: Held) -> Held:
    return max(one, other, key=lambda held: held.total)


def _held(layer: Layer, size: float) -> Held:
    return Held(logits=size) if layer.kind == "head" else Held(activations=size)


def _working(layer: Layer, size: float) -> Held:
    return Held(logits=size) if layer.kind == "head" else Held(working=size)


def _widest_pair(layer: Layer) -> float:
    """Bytes of the two largest neighbouring tensors: an op's input and output, or their gradients,
    live together."""
    written = [item.output for item in layer.items if isinstance(item, Op) and item.output]
    outputs = [layer.input_bytes, *written]
    return max((left + right for left, right in pairwise(outputs)), default=layer.input_bytes)
