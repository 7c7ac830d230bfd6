"""Which ops a memory policy runs again in the backward pass, by name.

The names of K2's policies follow its report (Kimi K2, arXiv:2507.20534, section 2.4: layer norms,
SwiGLU, MLA up-projections, MoE down-projections); `attention_core` is the selective recomputation
of Korthikanti et al. 2022 (arXiv:2205.05198), section 5: the part between the projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from twin.arch.ops import Exchange, Layer, Op

ATTENTION_CORE: Final = frozenset(
    {
        "attention_scores",
        "attention_softmax",
        "attention_dropout",
        "attention_values",
        "attention_flash",
    }
)
"""Ops of the attention core: scores, softmax, dropout and values, or one flash kernel."""

RECOMPUTED: Final[dict[str, frozenset[str]]] = {
    "attention_core": ATTENTION_CORE,
    "norms": frozenset({"attention_norm", "ffn_norm", "q_norm", "k_norm", "kv_norm"}),
    "swiglu": frozenset({"ffn_swiglu", "shared_swiglu", "experts_clamp", "experts_swiglu"}),
    "mla_up": frozenset({"q_up", "kv_up", "mla_rope", "absorb_query"}),
    "moe_down": frozenset({"experts_down"}),
}
"""Policy to op names. `moe_down` frees nothing: routing weights enter before the down-projection
(`twin.arch.blocks.moe`), so that no backward pass needs its output."""

ALTERNATE: Final = "alternate_products"
"""Selective checkpointing per op as torchtitan does it (`_get_custom_policy` in its
`parallelize_llama.py`): of the matrix products of a layer, each matrix by itself, the output of
every first one is kept and every second one runs again, as does all between them but the attention
core. Of q, k, v, out, gate, up, down these are k, out and up."""

ALL_BUT_QKV: Final = "all_but_qkv"
"""All but the projections to queries, keys and values, whose outputs are kept: MaxText's
`remat_policy=save_qkv_proj`."""

EXPERTS: Final = "moe"
"""From the router to the sum of what experts give, exchanges included: Megatron-LM's module `moe`
of `--recompute-modules`, of which the normed hidden state is kept."""
_OF_EXPERTS: Final = ("router", "shared", "expert", "dispatch", "combine")
"""How names of its items begin."""

TRANSFORMER: Final = ("dense", "moe", "mixer", "mtp")
"""Kinds of layers that can be recomputed. The embedding and heads are not."""


def wholly(layer: Layer, policies: Sequence[str]) -> bool:
    """Whether the backward pass runs the layer's whole forward again, collectives included. The
    embedding and the head never are."""
    return "full" in policies and layer.kind in TRANSFORMER


def checkpointed(layer: Layer, policies: Sequence[str]) -> Layer | None:
    """The part of a layer whose forward the backward pass runs again as a whole and in order, with
    its collectives; None where single ops run again at most."""
    if wholly(layer, policies):
        return layer
    if EXPERTS not in policies or layer.kind not in ("moe", "mtp"):
        return None
    return replace(layer, items=tuple(i for i in layer.items if i.name.startswith(_OF_EXPERTS)))


def again(layer: Layer, policies: Sequence[str]) -> frozenset[str]:
    """Names of the items of a layer that the backward pass runs again, with the casts of their
    outputs to FP8 (`twin.arch.fp8`), where there are any."""
    if wholly(layer, policies):
        return frozenset(item.name for item in layer.items if isinstance(item, Op))
    if layer.kind not in TRANSFORMER:
        return frozenset()
    named = frozenset[str]().union(*(RECOMPUTED[p] for p in policies if p in RECOMPUTED))
    found = named | {f"{name}_cast" for name in named}
    if part := checkpointed(layer, policies):
        found |= {item.name for item in part.items}
    if ALTERNATE in policies:
        found |= _alternate(layer)
    if ALL_BUT_QKV in policies:
        found |= {op.name for op in _needed(layer) if not op.name.startswith("qkv")}
    return found


def _needed(layer: Layer) -> tuple[Op, ...]:
    """The ops of a layer up to the last of which something is kept: recomputation stops where all
    is there."""
    ops = [item for item in layer.items if isinstance(item, Op) and item.forward.kernels]
    last = max((i for i, op in enumerate(ops) if op.saved), default=-1)
    return tuple(ops[: last + 1])


def brought(layer: Layer, policies: Sequence[str]) -> dict[str, float]:
    """Bytes that a layer keeps of what its all-to-alls bring, by their names: `alternate_products`
    runs again what makes of them what the backward pass needs."""
    if ALTERNATE not in policies or layer.kind not in TRANSFORMER:
        return {}
    return {
        item.name: item.bytes
        for item in layer.items
        if isinstance(item, Exchange) and item.forward == "all_to_all" and item.backward
    }


def _alternate(layer: Layer) -> frozenset[str]:
    """What `alternate_products` runs again."""
    found: set[str] = set()
    products = 0
    for op in _needed(layer):
        counted = op.kind == "gemm" and op.name != "router"
        products += counted
        kept = products % 2 == 1 if counted else op.kind == "attention"
        if not kept:
            found.add(op.name)
    return frozenset(found)
