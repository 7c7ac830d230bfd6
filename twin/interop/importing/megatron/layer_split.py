"""How Megatron-LM's arguments cut the layers into chunks, and which layers have experts.

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

from twin.interop.importing.megatron.arguments import Arguments

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
