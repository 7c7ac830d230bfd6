"""Models of published rows: a name of the catalog where there is one, or a part made from the sizes
that a row or its file gives."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from twin.errors import UsageError
from twin.evidence.validate.row import Fields, Row, Unreadable, count, is_fields
from twin.loading import load_part
from twin.loading.parts import unavailable
from twin.spec.model import ModelSpec

GPT_VOCAB: Final = 51200
"""GPT-2's 50,257 tokens as Megatron-LM pads them for tensor ranks."""


def model_of(row: Row) -> str | dict[str, Any]:
    """What stands at `model:` of the row's scenario: a name, or a part of its own. Raises
    `Unreadable` where neither can be made."""
    said = row.fields.get("model")
    if is_fields(said):
        name = str(said.get("name", ""))
        return name if _same_as_catalog(name, said) else part(row.model, said)
    if not isinstance(said, str):
        raise Unreadable("the row names no model")
    reason = unavailable("models").get(said)
    if reason is not None:
        raise Unreadable(f"model {said}: {reason}")
    if known(said):
        return said
    if said in row.models:
        return part(said, _resolved(row.models, said))
    raise Unreadable(f"nobody tells what the model {said} is")


def spec_of(model: str) -> ModelSpec:
    """A model of the catalog."""
    return load_part("models", model).spec


@cache
def known(name: str) -> bool:
    """Whether the catalog has a model of that name, or alias."""
    try:
        spec_of(name)
    except UsageError:
        return False
    return True


def _same_as_catalog(name: str, sizes: Fields) -> bool:
    """Whether the catalog knows a model of that name and those sizes."""
    if not known(name):
        return False
    spec = spec_of(name)
    pairs = (("layers", spec.layers), ("hidden", spec.hidden), ("heads", spec.attention.heads),
             ("vocab", spec.vocab))  # fmt: skip
    return all(sizes.get(key, own) == own for key, own in pairs)


def _resolved(models: Fields, name: str, seen: tuple[str, ...] = ()) -> Fields:
    """The sizes of a model that may be the same as another but for some."""
    own = models.get(name)
    if not is_fields(own) or name in seen:
        raise Unreadable(f"nobody tells what the model {name} is")
    other = own.get("same_as")
    return own if other is None else {**_resolved(models, str(other), (*seen, name)), **own}


def part(name: str, sizes: Fields) -> dict[str, Any]:
    """A part of the catalog from sizes in the words of published rows: GPT (with GPT-2's
    vocabulary where none is given) unless they say gated feed-forward blocks."""
    layers, hidden, heads = (count(sizes, key) for key in ("layers", "hidden", "heads"))
    if layers is None or hidden is None or heads is None:
        raise Unreadable(f"nobody tells layers, hidden and heads of the model {name}")
    gated = bool(sizes.get("swiglu", "ffn" in sizes or "moe_ffn" in sizes))
    found: dict[str, Any] = {
        "name": name,
        "layers": layers,
        "hidden": hidden,
        "vocab": count(sizes, "vocab") or GPT_VOCAB,
        "attention": _attention(sizes, hidden, heads, gated),
        "ffn": _ffn(sizes, hidden, gated),
        "tied_embeddings": bool(sizes.get("tied_embeddings", not gated)),
        "mtp_layers": count(sizes, "mtp_layers") if sizes.get("mtp_layers") else 0,
    }
    if not gated:
        found |= {"norm": "layernorm", "learned_positions": 2048, "dropout": True}
    if "experts" in sizes:
        found["moe"] = _moe(sizes)
    return found


def _attention(sizes: Fields, hidden: int, heads: int, gated: bool) -> dict[str, Any]:
    if "kv_lora_rank" in sizes:
        needed = ("kv_lora_rank", "qk_nope", "qk_rope", "v_head")
        rank, nope, rope, value = (count(sizes, key) or 0 for key in needed)
        return {
            "kind": "mla",
            "heads": heads,
            "q_lora_rank": count(sizes, "q_lora_rank"),
            "kv_lora_rank": rank,
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": rope,
            "v_head_dim": value,
        }
    grouped = count(sizes, "gqa_group")
    shared = heads // grouped if grouped else count(sizes, "kv_heads") or heads
    width = count(sizes, "head_dim") or hidden // heads
    return {"kind": "gqa", "heads": heads, "kv_heads": shared, "head_dim": width, "bias": not gated}


def _ffn(sizes: Fields, hidden: int, gated: bool) -> dict[str, Any]:
    width = count(sizes, "ffn") or count(sizes, "moe_ffn") or 4 * hidden
    return {"kind": "swiglu" if gated else "gelu", "width": width, "bias": not gated}


_MOE: Final = {
    "n_group": "groups",
    "topk_group": "top_groups",
    "shared_experts": "shared_experts",
    "shared_expert_ffn": "shared_width",
    "dense_layers": "first_dense_layers",
}
"""What published rows call our fields."""


def _moe(sizes: Fields) -> dict[str, Any]:
    experts, top = count(sizes, "experts"), count(sizes, "topk")
    width = count(sizes, "moe_ffn") or count(sizes, "ffn")
    if experts is None or top is None or width is None:
        raise Unreadable("experts without topk or width")
    found: dict[str, Any] = {"experts": experts, "top_k": top, "width": width}
    found |= {ours: count(sizes, theirs) for theirs, ours in _MOE.items() if sizes.get(theirs)}
    if found.get("shared_width") and not found.get("shared_experts"):
        found["shared_experts"] = 1
    return found
