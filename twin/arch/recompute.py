"""Which ops a memory policy runs again in the backward pass, by name.

The names of K2's policies follow its report (Kimi K2, arXiv:2507.20534, section 2.4: layer norms,
SwiGLU, MLA up-projections, MoE down-projections); `attention_core` is the selective recomputation
of Korthikanti et al. 2022 (arXiv:2205.05198), section 5: the part between the projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twin.arch.ops import Layer, Op

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
    "swiglu": frozenset({"ffn_swiglu", "shared_swiglu", "experts_swiglu"}),
    "mla_up": frozenset({"q_up", "kv_up", "mla_rope"}),
    "moe_down": frozenset({"experts_down"}),
}
"""Policy to op names. `moe_down` frees nothing: routing weights enter before the down-projection
(`twin.arch.blocks.moe`), so that no backward pass needs its output."""

TRANSFORMER: Final = ("dense", "moe", "mtp")
"""Kinds of layers that can be recomputed. The embedding and heads are not."""


def wholly(layer: Layer, policies: Sequence[str]) -> bool:
    """Whether the backward pass runs the layer's whole forward again, collectives included. The
    embedding and the head never are."""
    return "full" in policies and layer.kind in TRANSFORMER


def again(layer: Layer, policies: Sequence[str]) -> frozenset[str]:
    """Names of the ops of a layer that the backward pass runs again, with the casts of their
    outputs to FP8 (`twin.arch.fp8`), where there are any."""
    if wholly(layer, policies):
        return frozenset(item.name for item in layer.items if isinstance(item, Op))
    if layer.kind not in TRANSFORMER:
        return frozenset()
    named = frozenset[str]().union(*(RECOMPUTED[p] for p in policies if p in RECOMPUTED))
    return named | {f"{name}_cast" for name in named}
