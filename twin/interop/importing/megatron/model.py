"""The model that Megatron-LM's arguments describe, as the fields of `twin.spec.model.ModelSpec`.

Defaults are those of the arguments: LayerNorm, GELU, learned positions, biases and tied embeddings
unless told otherwise (megatron/training/arguments.py at 000c4ac2).
"""

from __future__ import annotations

from typing import Any

from twin.interop.importing.megatron.arguments import Arguments
from twin.interop.importing.megatron.layer_split import experts_pattern, where_experts_are

Fields = dict[str, Any]

TOKENIZERS = {"GPT2BPETokenizer": 50_257}
"""Entries of tokenizers that are one vocabulary only: GPT-2's (Radford et al. 2019, section 2.2).
All others are files, whose size the arguments do not say."""
_ORIGINAL_CONTEXT = 4096
"""Of YaRN, as are its betas, in `MLATransformerConfig`: no option changes them."""


def model_fields(args: Arguments, name: str) -> Fields:
    """The fields of the model section."""
    layers, hidden = args.count("num-layers"), args.count("hidden-size")
    norm = args.text("normalization", "LayerNorm", ("LayerNorm", "RMSNorm"))
    tensor = args.count("tensor-model-parallel-size", 1)
    found: Fields = {
        "name": name,
        "layers": layers,
        "hidden": hidden,
        "vocab": _vocab(args, tensor),
        "attention": _latent(args) if args.flag("multi-latent-attention") else _grouped(args),
        "ffn": _dense(args, hidden),
        "norm": norm.lower(),
        "norm_eps": args.number("norm-epsilon", 1e-5),
        "dropout": _dropout(args),
        "tied_embeddings": not args.flag("untie-embeddings-and-output-weights"),
        "mtp_layers": args.count("mtp-num-layers", 0, least=0),
        **_positions(args),
    }
    experts = args.count("num-experts", 0, least=0)
    return found | ({"moe": _experts(args, experts, layers)} if experts else {})


def _biases(args: Arguments) -> tuple[bool, bool]:
    """Whether all linear layers have biases, and whether queries, keys and values alone have."""
    args.taken.add("add-bias-linear")
    given = args.given.get("add-bias-linear")
    off = given is not None and given.values[:1] in (("false",), ("False",))
    every = not (args.flag("disable-bias-linear") or off)
    return every, args.flag("add-qkv-bias") and not every


def _grouped(args: Arguments) -> Fields:
    heads, hidden = args.count("num-attention-heads"), args.count("hidden-size")
    grouped = args.flag("group-query-attention")
    groups = args.count("num-query-groups", heads if not grouped else 1)
    if not grouped and groups != heads:
        args.remark("`--num-query-groups` counts, although `--group-query-attention` is missing.")
    if "kv-channels" not in args and hidden % heads:
        args.refuse("num-attention-heads", f"{heads} heads do not share {hidden} evenly")
    bias, qkv = _biases(args)
    softmax = args.text("softmax-type", "vanilla", ("vanilla", "learnable", "off-by-one"))
    if softmax == "off-by-one":
        args.remark("`--softmax-type off-by-one` has no weights, and costs nothing here.")
    if args.flag("qk-l2-norm"):
        args.remark("`--qk-l2-norm` has no weights: queries and keys are not normed here.")
    return {
        "kind": "gqa",
        "heads": heads,
        "kv_heads": groups,
        "head_dim": args.count("kv-channels", max(hidden // heads, 1)),
        "bias": bias,
        "qkv_bias": qkv,
        "qk_norm": args.flag("qk-layernorm"),
        "sinks": softmax == "learnable",
    }


def _latent(args: Arguments) -> Fields:
    bias, qkv = _biases(args)
    if bias or qkv:
        args.remark("Latent attention has no biases here; these arguments ask for some.")
    if not args.flag("qk-layernorm"):
        args.remark("Compressed queries and keys are normed here; these arguments do not say so.")
    args.taken.add("kv-channels")
    ranks = args.count("q-lora-rank", 0, least=0)
    return {
        "kind": "mla",
        "heads": args.count("num-attention-heads"),
        "q_lora_rank": ranks or None,
        "kv_lora_rank": args.count("kv-lora-rank", 32),
        "qk_nope_head_dim": args.count("qk-head-dim", 128),
        "qk_rope_head_dim": args.count("qk-pos-emb-head-dim", 64, least=0),
        "v_head_dim": args.count("v-head-dim", 128),
    }


def _dense(args: Arguments, hidden: int) -> Fields:
    """The dense block; its width defaults to 4 x hidden, or two thirds of that, in steps of 64."""
    gated, squared = args.flag("swiglu"), args.flag("squared-relu")
    default = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
    return {
        "kind": "swiglu" if gated else "squared_relu" if squared else "gelu",
        "width": args.count("ffn-hidden-size", max(default, 1)),
        "bias": _biases(args)[0],
    }


def _experts(args: Arguments, experts: int, layers: int) -> Fields:
    width = args.count("moe-ffn-hidden-size", args.count("ffn-hidden-size", 1))
    scores = args.text("moe-router-score-function", "softmax", ("softmax", "sigmoid"))
    groups = args.count("moe-router-num-groups", 1)
    if not args.flag("swiglu"):
        args.remark("Experts are SwiGLU here, with three matrices; these arguments ask for two.")
    return {
        "experts": experts,
        "top_k": args.count("moe-router-topk", 2),
        "groups": groups,
        "top_groups": args.count("moe-router-group-topk", groups),
        "width": width,
        **_shared(args, width),
        **_where(args, layers),
        "bias": _biases(args)[0],
        "correction_bias": args.flag("moe-router-enable-expert-bias"),
        "scores": scores,
        # A softmax over the chosen adds up to 1; sigmoids are divided by their sum.
        "normalize_weights": not args.flag("moe-router-pre-softmax") or scores == "sigmoid",
        "routed_scale": args.number("moe-router-topk-scaling-factor", 1.0) or 1.0,
    }


def _shared(args: Arguments, width: int) -> Fields:
    """Shared experts, of which the arguments say the width of all together."""
    shared = args.count("moe-shared-expert-intermediate-size", 0, least=0)
    gate = {"shared_gate": args.flag("moe-shared-expert-gate")}
    if not shared:
        return gate
    if shared % width == 0:
        return gate | {"shared_experts": shared // width}
    return gate | {"shared_experts": 1, "shared_width": shared}


def _where(args: Arguments, layers: int) -> Fields:
    written = args.text("moe-layer-freq", "1")
    pattern = experts_pattern(written, layers)
    if pattern is None:
        message = f"`--moe-layer-freq {written}` is no pattern of {layers} layers"
        args.refuse("moe-layer-freq", message, f"such as ([0]*1+[1]*{layers - 1})", "TW016")
        return {}
    found = where_experts_are(pattern)
    if found is None:
        message = f"`--moe-layer-freq {written}` cannot be expressed: dense layers come first"
        args.refuse("moe-layer-freq", message, "or every n-th layer has experts")
        return {}
    return {"first_dense_layers": found[0], "every": found[1]}


def _vocab(args: Arguments, tensor: int) -> int:
    """Entries with padding: up to a multiple of `--make-vocab-size-divisible-by` x tensor ranks
    (`vocab_size_with_padding`, megatron/training/tokenizer/tokenizer.py)."""
    step = args.count("make-vocab-size-divisible-by", 128) * tensor
    args.taken.add("vocab-extra-ids")
    if "padded-vocab-size" in args:
        args.taken.add("vocab-size")
        return args.count("padded-vocab-size")
    known = TOKENIZERS.get(args.text("tokenizer-type", ""))
    if "vocab-size" not in args and known is None:
        message = "the size of the vocabulary is the tokenizer's, and no argument says it"
        args.refuse("vocab-size", message, "--with '--vocab-size NUMBER'", "TW011")
        return 1
    return -(-args.count("vocab-size", known) // step) * step


def _dropout(args: Arguments) -> bool:
    return args.number("hidden-dropout", 0.1) > 0 or args.number("attention-dropout", 0.1) > 0


def _positions(args: Arguments) -> Fields:
    """How positions come in: learned, rotated, or not at all."""
    kinds = ("learned_absolute", "rope", "mrope", "relative", "none")
    kind = args.text("position-embedding-type", "learned_absolute", kinds)
    if args.flag("use-rotary-position-embeddings"):
        kind = "rope"
    longest = args.count("max-position-embeddings", args.count("seq-length", 1))
    if kind == "learned_absolute":
        return {"learned_positions": longest}
    if kind in ("mrope", "relative"):
        args.remark(f"Positions are `{kind}`, which is counted as rotary positions.")
    if args.number("rotary-percent", 1.0) < 1:
        args.remark("`--rotary-percent`: whole heads are rotated here.")
    if args.flag("use-rope-scaling"):
        args.remark("`--use-rope-scaling`: there is no field for it; no count needs it.")
    theta = args.number("rotary-base", 10_000.0)
    rope: Fields = {"theta": theta}
    if args.flag("multi-latent-attention") and args.text("rope-type", "yarn") == "yarn":
        rope["yarn"] = _yarn(args)
    return {"rotary": kind != "none", "rope": rope}


def _yarn(args: Arguments) -> Fields:
    return {
        "factor": args.number("rotary-scaling-factor", 1.0),
        "original_context": f"{_ORIGINAL_CONTEXT}tok",
        "mscale": args.number("mscale", 1.0),
        "mscale_all_dim": args.number("mscale-all-dim", 0.0),
    }
