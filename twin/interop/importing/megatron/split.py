"""How Megatron-LM's arguments cut the layers into chunks: evenly, with other first and last stages,
or as `--pipeline-model-parallel-layout` says.

Source: `validate_args` of megatron/training/arguments.py at 000c4ac2, and `get_num_layers_to_build`
of megatron/core/transformer/transformer_block.py. What does not divide is refused there as here.
"""

from __future__ import annotations

from twin.interop.importing.megatron.arguments import Arguments
from twin.interop.importing.megatron.patterns import chunks_of, even_split

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
