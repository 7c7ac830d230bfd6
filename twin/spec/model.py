"""What a model is: the architecture numbers from which parameters, FLOP, bytes and activations are
counted.

The reference trainer reads the same file, so the fields follow the names of the released
configurations. Some are for it alone and change nothing that is counted here: the constant of the
norms, how positions rotate, and what the router makes of its logits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, Strict, ValidationInfo, field_validator

from twin.errors import FieldError
from twin.spec.axis import Axis
from twin.spec.base import UNWRITTEN, Count, Flag, Ratio, Spec, Tokens, Whole
from twin.spec.mixer import Mixer
from twin.spec.vision import VisionSpec

Scale = Annotated[float, Strict(), Field(gt=0, le=1000)]
"""What a number is multiplied by; not 0."""


class Yarn(Spec):
    """Rotary positions stretched to a longer context: YaRN (Peng et al., arXiv:2309.00071, sections
    3.2 to 3.4), in the form and words of the released configurations of DeepSeek-V2 and later."""

    factor: Ratio
    """how many times longer the context becomes"""
    original_context: Tokens
    """context before, over which betas count turns"""
    beta_fast: Scale = 32.0
    """frequencies that turn at least so often over it stay as they are"""
    beta_slow: Scale = 1.0
    """those that turn at most so often are divided by the factor"""
    mscale: Annotated[float, Strict(), Field(gt=0, le=10)] = 1.0
    """cosines and sines are multiplied by 0.1 x this x ln(factor) + 1, and divided by the same of
    `mscale_all_dim`"""
    mscale_all_dim: Annotated[float, Strict(), Field(ge=0, le=10)] = 1.0
    """the softmax scale is multiplied by (0.1 x this x ln(factor) + 1) squared"""

    @field_validator("beta_slow")
    @classmethod
    def _slow_is_not_faster(cls, slow: float, info: ValidationInfo) -> float:
        fast: float | None = info.data.get("beta_fast")
        if fast is not None and slow > fast:
            message = f"`beta_slow` is above `beta_fast`, which is {fast:g}"
            raise FieldError("TW017", message, f"write at most {fast:g}")
        return slow


class Rope(Spec):
    """Rotary position embedding (Su et al., arXiv:2104.09864): dimension pair i of n turns by
    theta^(-i / n) per position."""

    theta: Annotated[float, Strict(), Field(ge=1, le=1e12)] = 10_000.0
    """base of the frequencies"""
    yarn: Yarn | None = None
    """stretches positions to a longer context; null: as trained first"""


class Indexer(Spec):
    """Sparse attention (DeepSeek-V3.2, arXiv:2512.02556, section 2.1): thin heads score all tokens
    before a token, and attention reads the best of these."""

    heads: Count
    """heads of queries, which share one key"""
    head_dim: Count
    """width of a query and of the key"""
    top_k: Count
    """tokens that a token attends to"""


class LatentAttention(Spec):
    """Multi-head latent attention (DeepSeek-V2, section 2.1): low-rank queries and keys-values,
    split rotary part."""

    kind: Literal["mla"]
    """multi-head latent attention"""
    heads: Count
    """attention heads"""
    q_lora_rank: Count | None = None
    """null: queries at full rank"""
    kv_lora_rank: Count
    """width of the compressed keys and values"""
    qk_nope_head_dim: Count
    """width of a head's query and key without position"""
    qk_rope_head_dim: Whole
    """width of a head's rotary query; keys share one"""
    v_head_dim: Count
    """width of a head's value"""
    indexer: Annotated[Indexer | None, UNWRITTEN] = None
    """which tokens before it a token attends to; null: all"""


class GroupedAttention(Spec):
    """Multi-head attention; grouped-query when `kv_heads` is smaller than `heads`."""

    kind: Literal["gqa"]
    """multi-head or grouped-query attention"""
    heads: Count
    """query heads"""
    kv_heads: Count
    """key and value heads; fewer than `heads`: grouped queries"""
    head_dim: Count
    """width of one head"""
    bias: Flag = False
    """projections add a bias"""
    qkv_bias: Flag = False
    """only queries, keys and values add a bias"""
    qk_norm: Flag = False
    """an RMSNorm over each head's query and key"""
    qk_norm_whole: Annotated[Flag, UNWRITTEN] = False
    """that norm is over the queries, or keys, of all heads together"""
    sinks: Flag = False
    """one learned logit per head in the softmax"""
    window: Count | None = None
    """tokens that a token attends to, itself and those before it; null: all before"""
    full_every: Count | None = None
    """where there is a window: each n-th layer has none; null: every layer has it"""
    chunked: Annotated[Flag, UNWRITTEN] = False
    """windows are chunks: a token attends to those before it in its own chunk of `window` tokens"""
    gated: Annotated[Flag, UNWRITTEN] = False
    """a gate from the block's input weighs what attention gives, value by value"""


class DenseFfn(Spec):
    """A dense feed-forward block: `swiglu` has three matrices, the others two."""

    kind: Literal["swiglu", "gelu", "squared_relu"]
    """swiglu: three matrices; gelu and squared_relu: two"""
    width: Count
    """hidden width of the block"""
    bias: Flag = False
    """matrices add a bias"""


class Moe(Spec):
    """Routed experts with optional shared experts; some layers may stay dense."""

    experts: Annotated[Count, Field(le=100_000)]
    """routed experts per layer"""
    top_k: Count
    """experts that each token visits"""
    groups: Count = 1
    """groups of neighbouring experts, of which a token visits a few"""
    top_groups: Count = Field(default=1, validate_default=True)
    """groups that a token's experts may lie in"""
    width: Count
    """hidden width of one expert"""
    ungated: Annotated[Flag, UNWRITTEN] = False
    """experts are two matrices with a squared ReLU between; false: SwiGLU, three matrices"""
    latent: Annotated[Count | None, UNWRITTEN] = None
    """width to which tokens are projected before they go to routed experts, and from which the sum
    of these is projected back; null: the model's"""
    zero_experts: Annotated[Whole, UNWRITTEN] = 0
    """further experts of the router that give a token back as it came; `top_k` counts those that
    compute, on average"""
    shared_experts: Whole = 0
    """experts that every token visits"""
    shared_width: Count | None = None
    """hidden width of all shared experts together; null: each as wide"""
    shared_gate: Flag = False
    """a gate weighs the shared experts' output"""
    first_dense_layers: Whole = 0
    """first layers without experts"""
    every: Count = 1
    """of the other layers, only each n-th of the model has experts"""
    bias: Flag = False
    """router and experts add a bias"""
    clamp: Scale | None = None
    """limit at which gate and up of an expert are cut off; null: none"""
    correction_bias: Flag = False
    """the router adds a learned bias per expert when it chooses"""
    scores: Literal["sigmoid", "softmax"] = "softmax"
    """what the router makes of its logits"""
    normalize_weights: Flag = True
    """the weights of a token's experts are divided by their sum"""
    routed_scale: Scale = 1.0
    """what these weights are multiplied by thereafter"""

    @field_validator("groups")
    @classmethod
    def _groups_are_of_one_size(cls, groups: int, info: ValidationInfo) -> int:
        experts: int | None = info.data.get("experts")
        if experts is not None and experts % groups:
            message = f"{experts} experts do not fall into {groups} groups of one size"
            raise FieldError("TW017", message, "write a number that divides the experts")
        return groups

    @field_validator("top_groups")
    @classmethod
    def _top_groups_hold_enough(cls, top_groups: int, info: ValidationInfo) -> int:
        experts, top_k, groups = (info.data.get(key) for key in ("experts", "top_k", "groups"))
        if experts is None or top_k is None or groups is None:
            return top_groups
        least = -(-top_k * groups // experts)
        if top_groups > groups or top_groups < least <= groups:
            message = (
                f"a token cannot choose {top_k} of {experts} experts in {top_groups} of "
                f"{groups} groups"
            )
            span = f"{least} to {groups}" if least < groups else f"{groups}"
            raise FieldError("TW017", message, f"write {span}")
        return top_groups


FEED_FORWARD: Final = ("dense", "moe")
"""What a pattern calls feed-forward blocks."""
ATTENTION: Final = ("attention", "window")
"""What a pattern calls the model's attention: to all tokens before, or within its window."""
_SIZES: Final = re.compile(r"@[1-9]\d{0,8}(x[1-9]\d{0,8})?(?=\+|\Z)", re.ASCII)


class ModelSpec(Spec):
    """A decoder-only transformer."""

    name: str
    """what reports call the model"""
    layers: Annotated[Count, Field(le=2_000)]
    """transformer layers"""
    hidden: Annotated[Count, Field(le=1_000_000)]
    """width of a token between blocks"""
    vocab: Count
    """entries of the vocabulary, padding included"""
    attention: Annotated[LatentAttention | GroupedAttention, Field(discriminator="kind")]
    """attention of every layer, or of those that `pattern` says"""
    ffn: DenseFfn
    """feed-forward block of the dense layers"""
    moe: Moe | None = None
    """experts of the layers that have them"""
    mixer: Annotated[Mixer | None, Axis("twin.arch.blocks"), UNWRITTEN] = None
    """what mixes tokens in layers that have no attention"""
    pattern: Annotated[tuple[str, ...], UNWRITTEN] = ()
    """blocks of each layer in order, repeated to the last layer: attention, window (attention
    within its window) or the mixer's kind; dense or moe; or the first and the second with a plus
    between. Layers that differ in size say it: `attention@16x4+dense@1536` has 16 heads, 4
    key-value heads and a block 1,536 wide. Empty: attention, then dense or moe as `moe` says"""
    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    """norm before attention and feed-forward block"""
    norms_behind: Annotated[Flag, UNWRITTEN] = False
    """a norm behind attention and feed-forward block too, before they are added"""
    norm_eps: Annotated[float, Strict(), Field(gt=0, le=0.1)] = 1e-6
    """what norms add to the mean square, or variance"""
    learned_positions: Whole = 0
    """positions with a learned embedding; 0: none are learned"""
    rotary: Flag = True
    """positions rotate queries and keys, where none are learned"""
    rope: Rope = Rope()
    """how positions rotate, where they do"""
    embedding_norm: Flag = False
    """a norm follows the embedding"""
    dropout: Flag = False
    """dropout after attention and feed-forward"""
    tied_embeddings: Flag = False
    """the head shares the embedding's matrix"""
    mtp_layers: Annotated[Whole, Field(le=100)] = 0
    """modules that predict further tokens: each a transformer layer, a projection and a use of
    embedding and head"""
    mtp_pattern: Annotated[tuple[str, ...], UNWRITTEN] = ()
    """layers of such a module in order, in the words of `pattern`; empty: one like the last of the
    model"""
    mtp_shared: Annotated[Flag, UNWRITTEN] = False
    """all such modules use the weights of the first"""
    vision: Annotated[VisionSpec | None, UNWRITTEN] = None
    """the encoder of images before the model; null: none"""
    left_out: str = ""
    """what the real model has beside this; a warning says so"""

    @property
    def embedding_twice(self) -> bool:
        """Whether the last stage uses the embedding's matrix, too: in a tied head, or to predict
        further tokens."""
        return self.tied_embeddings or self.mtp_layers > 0

    def blocks(self, layer: int) -> tuple[str, str]:
        """The mixer and the feed-forward block of the layer at this position, from 0, in the words
        of a pattern, sizes included; empty where it has none."""
        if self.pattern:
            return blocks_of(self.pattern[layer % len(self.pattern)])
        moe = self.moe
        dense = moe is None or layer < moe.first_dense_layers or (layer + 1) % moe.every
        return "attention", "dense" if dense else "moe"

    def has_experts(self, layer: int) -> bool:
        """Whether the layer at this position, from 0, has routed experts."""
        return self.blocks(layer)[1] == "moe"

    @field_validator("pattern", "mtp_pattern")
    @classmethod
    def _pattern_names_blocks(
        cls, pattern: tuple[str, ...], info: ValidationInfo
    ) -> tuple[str, ...]:
        mixer, moe, attention = (info.data.get(key) for key in ("mixer", "moe", "attention"))
        windowed = getattr(attention, "window", None) is not None
        mixers = [*ATTENTION[: 1 + windowed], *([mixer.kind] if mixer else [])]
        feeds = FEED_FORWARD[: 1 + (moe is not None)]
        known = {*mixers, *feeds, *(f"{one}+{feed}" for one in mixers for feed in feeds)}
        pair = 2 * isinstance(attention, GroupedAttention)
        sized = {"dense": 1, **dict.fromkeys(ATTENTION, pair)}
        wrong = next((one for one in pattern if not _names_blocks(one, known, sized)), None)
        if wrong is not None:
            message = f"`{wrong}` names no blocks of this model"
            names = f"{', '.join(mixers)}; {', '.join(feeds)}; or two joined by a plus"
            own = "; sizes as attention@16x4 and dense@1536" if "@" in wrong else ""
            raise FieldError("TW017", message, f"write {names}{own}")
        whole = info.field_name == "pattern"
        if whole and pattern and moe is not None and (moe.first_dense_layers or moe.every > 1):
            message = "`pattern` says which layers have experts, and `moe` says so, too"
            fix = "leave out moe.first_dense_layers and moe.every"
            raise FieldError("TW017", message, fix)
        return pattern


def blocks_of(entry: str) -> tuple[str, str]:
    """The mixer and the feed-forward block that an entry of a pattern names; empty where it names
    only the other."""
    mixer, plus, feed = entry.partition("+")
    if not plus and word_of(mixer) in FEED_FORWARD:
        return "", mixer
    return mixer, feed


def word_of(block: str) -> str:
    """What a pattern calls a block, without its sizes."""
    return block.partition("@")[0]


def sizes_of(block: str) -> tuple[int, ...]:
    """The sizes that a pattern gives a block of its own: heads and key-value heads, or a width."""
    return tuple(int(one) for one in block.partition("@")[2].split("x") if one)


def _names_blocks(entry: str, known: Collection[str], sized: Mapping[str, int]) -> bool:
    """Whether an entry names blocks, with so many sizes or none behind each."""
    if _SIZES.sub("", entry) not in known:
        return False
    blocks = filter(None, blocks_of(entry))
    return all(len(sizes_of(one)) in (0, sized.get(word_of(one), 0)) for one in blocks)


class LoraSpec(Spec):
    """Adapters of the matrices of attention, feed-forward blocks, shared and routed experts."""

    rank: Count
    """columns of A, and rows of B"""
    adapters: Count = 1
    """pairs of A and B that stand side by side, as of several users; one of them is trained and has
    gradients and states"""
