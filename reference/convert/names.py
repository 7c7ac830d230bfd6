"""Which tensor of a Hugging Face folder is which part of a tensor of the reference.

Released names are those of DeepSeek-V3 and Kimi K2 (and, for grouped-query attention, of Llama and
Qwen3): one tensor per expert, gate and up apart. Ours stack all experts of a layer and lay gates
over ups, [2F, D]. Every part of ours is a run of whole rows, so that the released tensors of one of
ours, in order, are its bytes; nothing is transposed or permuted.

Shapes: D hidden, F width of a block, H heads, G key-value heads, Q query-key width, V value width,
L query latent, C key-value latent, R rotary width, E experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from twin.spec.model import GroupedAttention, LatentAttention, ModelSpec


@dataclass(frozen=True, slots=True)
class ReleasedPart:
    """One released tensor, and the rows of ours that it is."""

    ours: str
    theirs: str
    shape: tuple[int, ...]
    """Of the released tensor."""
    first_row: int = 0
    """Where it begins in ours, or in its expert of ours."""
    expert: int | None = None

    def of(self, tensor: object) -> object:
        """This part of ours, or of anything that is indexed like it."""
        rows = slice(self.first_row, self.first_row + self.shape[0])
        index = rows if self.expert is None else (self.expert, rows)
        return tensor[index]  # pyright: ignore[reportIndexIssue]


@dataclass(frozen=True, slots=True)
class Whole:
    """One of our tensors, and the parts that follow one another in it."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[ReleasedPart, ...]


def tensors(model: ModelSpec) -> Iterator[Whole]:
    """Every tensor that a checkpoint of the reference holds, in the order of the layers."""
    for name, parts in groupby(_parts(model), key=lambda part: part.ours):
        held = tuple(parts)
        experts = [part.expert for part in held if part.expert is not None]
        rows = max(part.first_row + part.shape[0] for part in held)
        stacked = (max(experts) + 1,) if experts else ()
        yield Whole(name, (*stacked, rows, *held[0].shape[1:]), held)


def _parts(model: ModelSpec) -> Iterator[ReleasedPart]:
    table = (model.vocab, model.hidden)
    yield ReleasedPart("embedding.weight", "model.embed_tokens.weight", table)
    for layer in range(model.layers):
        ours, theirs = f"layers.{layer}.", f"model.layers.{layer}."
        for part in _layer(model, layer):
            yield ReleasedPart(
                ours + part.ours, theirs + part.theirs, part.shape, part.first_row, part.expert
            )
    yield ReleasedPart("final_norm.gain", "model.norm.weight", (model.hidden,))
    if not model.tied_embeddings:
        yield ReleasedPart("head.weight", "lm_head.weight", table)


def _layer(model: ModelSpec, layer: int) -> Iterator[ReleasedPart]:
    norm = (model.hidden,)
    yield ReleasedPart("attention_norm.gain", "input_layernorm.weight", norm)
    attention = model.attention
    if isinstance(attention, LatentAttention):
        yield from _latent(attention, model.hidden)
    else:
        yield from _grouped(attention, model.hidden)
    yield ReleasedPart("ffn_norm.gain", "post_attention_layernorm.weight", norm)
    if model.has_experts(layer):
        yield from _experts(model)
    else:
        yield from _swiglu("ffn", "mlp", model.hidden, model.ffn.width)


def _latent(spec: LatentAttention, D: int) -> Iterator[ReleasedPart]:
    ours, theirs = "attention.", "self_attn."
    L, C, R = spec.q_lora_rank, spec.kv_lora_rank, spec.qk_rope_head_dim
    Q, V = spec.qk_nope_head_dim + R, spec.v_head_dim
    H = spec.heads
    if L is None:
        yield ReleasedPart(f"{ours}q.weight", f"{theirs}q_proj.weight", (H * Q, D))
    else:
        yield ReleasedPart(f"{ours}q_down.weight", f"{theirs}q_a_proj.weight", (L, D))
        yield ReleasedPart(f"{ours}q_norm.gain", f"{theirs}q_a_layernorm.weight", (L,))
        yield ReleasedPart(f"{ours}q_up.weight", f"{theirs}q_b_proj.weight", (H * Q, L))
    up = H * (spec.qk_nope_head_dim + V)
    yield ReleasedPart(f"{ours}kv_down.weight", f"{theirs}kv_a_proj_with_mqa.weight", (C + R, D))
    yield ReleasedPart(f"{ours}kv_norm.gain", f"{theirs}kv_a_layernorm.weight", (C,))
    yield ReleasedPart(f"{ours}kv_up.weight", f"{theirs}kv_b_proj.weight", (up, C))
    yield ReleasedPart(f"{ours}out.weight", f"{theirs}o_proj.weight", (D, H * V))


def _grouped(spec: GroupedAttention, D: int) -> Iterator[ReleasedPart]:
    Q = spec.head_dim
    for name, heads in (("q", spec.heads), ("k", spec.kv_heads), ("v", spec.kv_heads)):
        shape = (heads * Q, D)
        yield ReleasedPart(f"attention.{name}.weight", f"self_attn.{name}_proj.weight", shape)
    yield ReleasedPart("attention.out.weight", "self_attn.o_proj.weight", (D, spec.heads * Q))
    for name in ("q_norm", "k_norm") if spec.qk_norm else ():
        yield ReleasedPart(f"attention.{name}.gain", f"self_attn.{name}.weight", (Q,))


def _experts(model: ModelSpec) -> Iterator[ReleasedPart]:
    moe, D = model.moe, model.hidden
    assert moe is not None, "only layers with experts are asked"
    E, F = moe.experts, moe.width
    yield ReleasedPart("ffn.router.weight", "mlp.gate.weight", (E, D))
    if moe.correction_bias:
        yield ReleasedPart("ffn.router.bias", "mlp.gate.e_score_correction_bias", (E,))
    for expert in range(E):
        own = f"mlp.experts.{expert}"
        yield ReleasedPart("ffn.experts.up", f"{own}.gate_proj.weight", (F, D), 0, expert)
        yield ReleasedPart("ffn.experts.up", f"{own}.up_proj.weight", (F, D), F, expert)
    for expert in range(E):
        own = f"mlp.experts.{expert}.down_proj.weight"
        yield ReleasedPart("ffn.experts.down", own, (D, F), 0, expert)
    if moe.shared_experts:
        width = moe.shared_width or moe.width * moe.shared_experts
        yield from _swiglu("ffn.shared", "mlp.shared_experts", D, width)


def _swiglu(ours: str, theirs: str, D: int, F: int) -> Iterator[ReleasedPart]:
    yield ReleasedPart(f"{ours}.up.weight", f"{theirs}.gate_proj.weight", (F, D))
    yield ReleasedPart(f"{ours}.up.weight", f"{theirs}.up_proj.weight", (F, D), F)
    yield ReleasedPart(f"{ours}.down.weight", f"{theirs}.down_proj.weight", (D, F))
