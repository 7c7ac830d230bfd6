"""The model that Megatron-LM's arguments describe, as the fields of `twin.spec.model.ModelSpec`.

Defaults are those of the arguments: LayerNorm, GELU, learned positions, biases and tied embeddings
unless told otherwise (megatron/training/arguments.py at 000c4ac2).

How Megatron-LM's arguments cut the layers into chunks, and which layers have experts.

Chunks: evenly, with other first and last stages, or by `--pipeline-model-parallel-layout
"Et|(tt|)*29,m|L"`, with E the embedding, t a layer, m a module that predicts further tokens, L the
head; `|` ends a chunk, and chunks are in the order in which a micro-batch visits them
(megatron/core/transformer/pipeline_parallel_layer_layout.py at 00caa53a). What does not divide is
refused, as by `validate_args` (megatron/training/arguments.py at 000c4ac2) and
`get_num_layers_to_build` (megatron/core/transformer/transformer_block.py). Experts:
`--moe-layer-freq "([0]*3+[1]*58)"`, an expression over lists, or a number n for one layer in n.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from twin.interop.importing.megatron.hybrid import hybrid_fields
from twin.interop.importing.megatron.launch_file import Arguments

Fields = dict[str, Any]

TOKENIZERS = {"GPT2BPETokenizer": 50_257}
"""Entries of tokenizers that are one vocabulary only: GPT-2's (Radford et al. 2019, section 2.2).
All others are files, whose size the arguments do not say."""
_ORIGINAL_CONTEXT = 4096
"""Of YaRN, as are its betas, in `MLATransformerConfig`: no option changes them."""


def model_fields(args: Arguments, name: str) -> Fields:
    """The fields of the model section."""
    hybrid = hybrid_fields(args)
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
    } | hybrid
    experts = args.count("num-experts", 0, least=0)
    if not experts:
        return found
    where = {} if hybrid else _where(args, layers)
    return found | {"moe": _experts(args, experts) | where}


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
        **_windows(args),
    }


def _windows(args: Arguments) -> Fields:
    """Windows are written as keys before and after a token, and the layers without as a number."""
    written = args.text("window-size", "")
    full = args.text("window-attn-skip-freq", "")
    before = re.fullmatch(r"\(?(\d+), ?0\)?", written)
    if not written:
        return {}
    if before is None or not re.fullmatch(r"\d*", full):
        args.remark("Windows are left out: attention is counted over all tokens before here.")
        return {}
    every = {"full_every": int(full)} if full else {}
    return {"window": int(before.group(1)) + 1, **every}


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


def _experts(args: Arguments, experts: int) -> Fields:
    width = args.count("moe-ffn-hidden-size", args.count("ffn-hidden-size", 1))
    scores = args.text("moe-router-score-function", "softmax", ("softmax", "sigmoid"))
    groups = args.count("moe-router-num-groups", 1)
    gated, squared = args.flag("swiglu"), args.flag("squared-relu")
    if not (gated or squared):
        args.remark("Experts are SwiGLU here, with three matrices; these arguments ask for two.")
    return {
        "experts": experts,
        "top_k": args.count("moe-router-topk", 2),
        "groups": groups,
        "top_groups": args.count("moe-router-group-topk", groups),
        "width": width,
        **_shared(args, width),
        "ungated": squared and not gated,
        "latent": args.count("moe-latent-size", 0, least=0) or None,
        "bias": _biases(args)[0],
        "correction_bias": args.flag("moe-router-enable-expert-bias"),
        "scores": scores,
        # A softmax over the chosen adds up to 1; sigmoids are divided by their sum.
        "normalize_weights": not args.flag("moe-router-pre-softmax") or scores == "sigmoid",
        "clamp": args.number("activation-func-clamp-value", 0.0) or None,
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
    both = (args.number("hidden-dropout", 0.1), args.number("attention-dropout", 0.1))
    return max(both) > 0


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


_REPEATS = (re.compile(r"\(([^)]+)\)\*(\d+)"), re.compile(r"(.)\*(\d+)"))
_MOST = 100_000
"""Letters of an unrolled layout, and layers of an unrolled pattern; far beyond any model."""
_WRITTEN_OUT = 3
"""Layers in a row that are written one by one; more are counted."""


def chunks_of(layout: str) -> tuple[str, ...] | None:
    """The letters of each chunk; None where the text is no layout.

    >>> chunks_of("Et|(tt|)*2mL")
    ('Et', 'tt', 'tt', 'mL')
    """
    text = re.sub(r"[,\s]", "", layout)
    for pattern in _REPEATS:
        if sum(len(one[1]) * int(one[2]) for one in pattern.finditer(text)) > _MOST:
            return None
        text = pattern.sub(lambda one: one[1] * int(one[2]), text)
    if not re.fullmatch(r"E[tm|]*L", text):
        return None
    return tuple(text.split("|"))


def layout_of(layers: Sequence[int], prediction_modules: int = 0) -> str:
    """The layout of so many layers per chunk, the embedding on the first and the head, with the
    modules that predict further tokens, on the last.

    >>> layout_of([1, 2, 2, 0], 1)
    'Et|(tt|)*2mL'
    """
    if len(layers) == 1:
        return f"E{_row(layers[0])}{'m' * prediction_modules}L"
    parts = [f"E{_row(layers[0])}|"]
    for row, same in groupby(_row(count) for count in layers[1:-1]):
        times = len(list(same))
        parts.append(f"({row}|)*{times}" if times > 1 else f"{row}|")
    return "".join(parts) + f"{_row(layers[-1])}{'m' * prediction_modules}L"


def _row(layers: int) -> str:
    return "t" * layers if layers <= _WRITTEN_OUT else f"t*{layers}"


def even_split(layers: int, stages: int, chunks_per_stage: int) -> tuple[int, ...] | None:
    """As many layers on every chunk; None where they do not divide."""
    chunks = stages * chunks_per_stage
    return None if layers % chunks else (layers // chunks,) * chunks


def experts_pattern(text: str, layers: int) -> tuple[int, ...] | None:
    """1 for each layer with experts, else 0; None where the text is no such pattern, or is not as
    long as the model.

    >>> experts_pattern("([0]*1+[1]*3)", 4)
    (0, 1, 1, 1)
    >>> experts_pattern("2", 4)
    (1, 0, 1, 0)
    """
    if re.fullmatch(r"\d+", text.strip()):
        every = int(text)
        return tuple(int(layer % every == 0) for layer in range(layers)) if every else None
    if not re.fullmatch(r"[\[\](),\d*+\s]+", text):
        return None
    try:
        found = _listed(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return tuple(found) if len(found) == layers and set(found) <= {0, 1} else None


def _listed(node: ast.expr) -> list[int]:
    match node:
        case ast.List(elts=elements):
            return [_number(one) for one in elements]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _bounded(_listed(left) + _listed(right))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            held, times = _listed(left), _number(right)
            if len(held) * times > _MOST:
                raise ValueError(times)
            return held * times
        case _:
            raise ValueError(ast.dump(node))


def _bounded(items: list[int]) -> list[int]:
    if len(items) > _MOST:
        raise ValueError(len(items))
    return items


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    raise ValueError(ast.dump(node))


def where_experts_are(pattern: Sequence[int]) -> tuple[int, int] | None:
    """`first_dense_layers` and `every` of `twin.spec.model.Moe` that give this pattern; None where
    none do.

    >>> where_experts_are([0, 1, 1, 1])
    (1, 1)
    >>> where_experts_are([0, 1, 0, 1])
    (0, 2)
    """
    if 1 not in pattern:
        return None
    first, layers = list(pattern).index(1), range(len(pattern))
    for every in range(1, len(pattern) + 1):
        for dense in (0, first):
            told = [int(layer >= dense and (layer + 1) % every == 0) for layer in layers]
            if told == list(pattern):
                return dense, every
    return None


def pattern_of(first_dense: int, every: int, layers: int) -> str | None:
    """What says where experts are; None where they are in every layer, as they are by default.

    >>> pattern_of(1, 1, 61)
    '([0]*1+[1]*60)'
    """
    has = [int(one >= first_dense and (one + 1) % every == 0) for one in range(layers)]
    if all(has):
        return None
    if first_dense == 0 and layers % every == 0:
        return f"([0]*{every - 1}+[1]*1)*{layers // every}"
    runs = [(value, len(list(same))) for value, same in groupby(has)]
    return f"({'+'.join(f'[{value}]*{times}' for value, times in runs)})"


_LAYOUT = "pipeline-model-parallel-layout"
_PER_CHUNK = "num-layers-per-virtual-pipeline-stage"
_PER_RANK = "num-virtual-stages-per-pipeline-rank"
_FIRST, _LAST = "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"
_EMBEDDING = "account-for-embedding-in-pipeline-split"
_LOSS = "account-for-loss-in-pipeline-split"


def split_of(args: Arguments) -> tuple[int, tuple[int, ...] | None]:
    """Chunks per stage, and layers of each chunk; None for a model in one piece."""
    layers, stages = args.count("num-layers"), args.count("pipeline-model-parallel-size", 1)
    args.taken |= {_LAYOUT, _PER_CHUNK, _PER_RANK, _FIRST, _LAST, _EMBEDDING, _LOSS}
    if _LAYOUT in args:
        return _written(args, layers, stages)
    virtual = _virtual(args, layers, stages)
    found = _stages(args, layers, stages, virtual)
    if found is None:
        cut = f"{stages} stages" + (f" of {virtual} chunks" if virtual > 1 else "")
        fix = f"write `--{_LAYOUT}`"
        args.refuse("num-layers", f"{layers} layers do not fall into {cut} evenly", fix)
        return virtual, None
    return virtual, None if stages * virtual == 1 else found


def _written(args: Arguments, layers: int, stages: int) -> tuple[int, tuple[int, ...] | None]:
    """The split of a layout."""
    text = args.text(_LAYOUT, "")
    chunks = chunks_of(text)
    if chunks is None:
        args.refuse(_LAYOUT, f"`{text}` is no layout", "such as 'Et|(tt|)*2tL'", "TW016")
        return 1, None
    if len(chunks) % stages:
        args.refuse(_LAYOUT, f"{len(chunks)} chunks do not fall to {stages} stages evenly")
        return 1, None
    counts = tuple(chunk.count("t") for chunk in chunks)
    if sum(counts) != layers:
        args.refuse(_LAYOUT, f"the layout has {sum(counts)} layers, the model {layers}")
    if any("m" in chunk for chunk in chunks[:-1]):
        args.remark("Modules that predict further tokens are on the last chunk here.")
    return len(chunks) // stages, None if len(chunks) == 1 else counts


def _virtual(args: Arguments, layers: int, stages: int) -> int:
    """Chunks per stage."""
    if _PER_RANK in args:
        return args.count(_PER_RANK)
    if _PER_CHUNK not in args:
        return 1
    each = args.count(_PER_CHUNK)
    counted = layers + args.flag(_EMBEDDING) + args.flag(_LOSS)
    if counted % (stages * each):
        args.refuse(
            _PER_CHUNK, f"{each} layers per chunk do not divide {counted} on {stages} stages"
        )
        return 1
    return counted // (stages * each)


def _stages(args: Arguments, layers: int, stages: int, virtual: int) -> tuple[int, ...] | None:
    """Layers of each chunk where no layout says them; None where they do not divide."""
    embedding, loss = args.flag(_EMBEDDING), args.flag(_LOSS)
    if _FIRST not in args and _LAST not in args:
        even = even_split(layers + embedding + loss, stages, virtual)
        if even is None:
            return None
        counts = [*even]
        counts[0] -= embedding
        counts[-1] -= loss
        return tuple(counts) if min(counts) >= 0 else None
    first = args.count(_FIRST) if _FIRST in args else None
    last = args.count(_LAST) if _LAST in args else None
    ends = (first is not None) + (last is not None)
    left, middle = layers - (first or 0) - (last or 0), stages - ends
    if middle < 0 or left < 0 or (left % middle if middle else left):
        return None
    each = left // middle if middle else 0
    own = [*([first] if first is not None else ()), *(each,) * middle]
    own += [last] if last is not None else []
    if any(count % virtual for count in own):
        return None
    return tuple(count // virtual for _ in range(virtual) for count in own)
