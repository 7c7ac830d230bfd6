"""A published training row as a scenario.

What the row says becomes fields of a scenario; what it leaves out comes from its software stack
(`twin.evidence.validate.stacks`) or is assumed, and what was assumed is told beside the prediction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, Literal, cast

from twin.evidence.validate.scenario_parts import (
    cluster_of,
    gpu_of,
    model_changes,
    model_of,
    spec_of,
)
from twin.evidence.validate.stacks import Stack, knows, profile_of, stack_of
from twin.evidence.validate.suite import (
    MICROBATCH,
    NO_BATCH,
    NO_LAYOUT,
    PublishedRow,
    Unreadable,
    count,
    degree,
)

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Expressed:
    """A row as a scenario: the tree of its YAML, what is changed in the catalog parts that it names
    (`over`, a second file that extends the first), the stack it ran, and what was assumed."""

    tree: Tree
    over: Tree
    stack: Stack
    assumed: tuple[str, ...]
    silent: bool = False
    """The row does not say what is computed again."""
    batch: int | None = None
    """Sequences of a step, where a script says so and the row does not."""
    micro_batches: int = 1
    """Micro-batches of the step, of a row that times one of them."""

    def computing_again(self, what: tuple[str, ...]) -> Expressed:
        """The same with so much computed again, because less does not fit."""
        tree = {**self.tree, "memory": {**self.tree["memory"], "recompute": list(what)}}
        told = f"computed again: {', '.join(what)}, because less does not fit"
        return replace(self, tree=tree, assumed=(*self.assumed, told))


def express(row: PublishedRow) -> Expressed:
    """The scenario of a training row. Raises `Unreadable` with the reason where there is none."""
    if isinstance(row.system.get("gpus"), list) and row.sequence is None:
        raise Unreadable(NO_BATCH)
    gpu = gpu_of(row)
    stack = stack_of(row, gpu)
    assumed: list[str] = []
    script, told = stack.script(row), row.batch
    if script is not None:
        row, stack = script.completed(row), stack.under(script)
        what = "what the source leaves out or has otherwise" if told else "layout and batch"
        assumed.append(f"{what}, of {script.script}")
    if not stack.ran(row):
        assumed.append(f"software: {stack.software}, as the row's words or its layout suggest")
    if not knows(stack, gpu):
        assumed.append(f"the GPU's own calibration: its software has none for {gpu}")
    batch, sequence = _batch(row, stack, assumed), row.sequence
    if batch is None or sequence is None:
        raise Unreadable(NO_BATCH)
    model = model_of(row)
    again = _recompute(row)
    place = cluster_of(row)
    assumed += place.assumed
    tree: Tree = {
        "schema": 1,
        "name": row.id,
        "model": model,
        "cluster": place.section,
        "parallel": _parallel(row, stack, model, assumed),
        "memory": {"recompute": list(stack.recompute[0] if again is None else again)},
        "train": {
            "tokens": "1T",
            "global_batch": f"{batch}seq",
            "sequence": f"{sequence}tok",
            **_optimizer(row, stack),
            "precision": _precision(row),
            **_scaling(row),
            **_capacity(row),
            **_adapters(row, assumed),
        },
        "calibration": profile_of(stack, row, gpu),
    }
    zero = tree["parallel"]["zero"]
    tree["software"] = (zero == 3 and stack.sharded) or stack.part or None
    over: Tree = {"cluster": place.over} if place.over else {}
    changes = model_changes(row)
    if _learns_positions(model):
        changes["learned_positions"] = sequence
    if changes:
        over["model"] = changes
    over = _merged(over, stack.over)
    return Expressed(
        _merged(tree, _habits(stack, zero)),
        over,
        stack,
        tuple(assumed),
        again is None,
        batch if told is None and script else None,
        stack.micro_batches if _times_a_micro_batch(row) else 1,
    )


def _habits(stack: Stack, zero: int) -> Tree:
    """Habits of a stack in a scenario. What shards no parameters is no `fully_shard`: DDP, or
    DeepSpeed's first stages, around the same layers."""
    if zero == 3 or "memory" not in stack.scenario:
        return stack.scenario
    return {**stack.scenario, "memory": {**stack.scenario["memory"], "fully_shard": False}}


def _optimizer(row: PublishedRow, stack: Stack) -> Tree:
    """Muon where the row says so; else the stack's own, or AdamW."""
    if "muon" in row.words:
        return {"optimizer": "muon"}
    return {} if "optimizer" in stack.scenario.get("train", {}) else {"optimizer": "adamw"}


def _times_a_micro_batch(row: PublishedRow) -> bool:
    known = row.gpus is not None and count(row.fields, "mbs") is not None
    return known and row.batch is None and MICROBATCH in row.metrics


def _batch(row: PublishedRow, stack: Stack, assumed: list[str]) -> int | None:
    """Sequences of a step; where a row tells the time of one micro-batch, those of a step of its
    stack on each replica."""
    own, gpus = count(row.fields, "mbs"), row.gpus
    if not _times_a_micro_batch(row) or own is None or gpus is None:
        return row.batch
    ranks = prod(degree(row.layout, name) for name in ("tp", "pp", "cp"))
    many = stack.micro_batches
    told = "one micro-batch" if many == 1 else f"{many} micro-batches"
    assumed.append(f"a step of {told} per replica, of which the time of one was told")
    return many * own * max(1, gpus // ranks)


def _adapters(row: PublishedRow, assumed: list[str]) -> Tree:
    """Low-rank adapters, where a row's workload names them."""
    words = str(row.fields.get("workload", "")).lower()
    if "lora" not in words:
        return {}
    rank = re.search(r"r ?= ?(\d+)", words)
    if rank is None:
        assumed.append(f"adapters of rank {_RANK}, where the source gives none")
    return {"lora": {"rank": int(rank[1]) if rank else _RANK}}


def _merged(tree: Tree, more: Tree) -> Tree:
    """The tree, and what is not in it yet."""
    found = dict(tree)
    for key, value in more.items():
        own = found.get(key)
        if isinstance(own, dict) and isinstance(value, dict):
            found[key] = _merged(cast("Tree", own), cast("Tree", value))
        elif key not in found:
            found[key] = value
    return found


def _learns_positions(model: str | Tree) -> bool:
    """Whether the model has learned positions: then as many as its sequences have tokens."""
    spec = spec_of(model) if isinstance(model, str) else None
    return bool(spec.learned_positions if spec else cast("Tree", model).get("learned_positions"))


def _has_experts(model: str | Tree) -> bool:
    if isinstance(model, str):
        return spec_of(model).moe is not None
    return "moe" in model


def _layers(model: str | Tree, row: PublishedRow) -> int:
    own = spec_of(model).layers if isinstance(model, str) else int(model["layers"])
    return model_changes(row).get("layers", own)


def _precision(row: PublishedRow) -> str:
    if row.precision == "fp4":
        words = str(row.fields.get("precision", "")).lower()
        return "mxfp4" if "mxfp4" in words else "nvfp4"
    return row.precision


_SCALINGS: Final = {
    "mx": "mx", "block": "block", "subchannel": "block", "delayed": "tensor", "-cs": "current",
    "current": "current", "tensorwise": "current", "rowwise": "row",
}  # fmt: skip
"""Words for what shares a scale of FP8."""


def _scaling(row: PublishedRow) -> Tree:
    """Of FP8, where the row's own word says it. Parentheses that name FP8 again are of another run,
    whose number stands in parentheses, too."""
    words = re.sub(r"\([^)]*fp8[^)]*\)", "", str(row.fields.get("precision", "")).lower())
    own = next((one for word, one in _SCALINGS.items() if word in words), None)
    return {"fp8_scaling": own} if own and row.precision == "fp8" else {}


_CAPACITY: Final = re.compile(r"(?:dropped|drops|drop).*?capacity(?: factor)? (\d+(?:\.\d+)?)")


def _capacity(row: PublishedRow) -> Tree:
    """Places of experts, where a row says that tokens beyond them are dropped."""
    found = _CAPACITY.search(row.words)
    return {"expert_capacity": float(found[1])} if found else {}


_RANK: Final = 16
"""Of adapters: the default of NeMo's recipes (`dim`)."""
_GATHERS: Final = "SHARD_GRAD_OP"
"""FSDP's word for parameters that stay gathered from forward to backward."""


def _parallel(row: PublishedRow, stack: Stack, model: str | Tree, assumed: list[str]) -> Tree:
    layout = row.layout
    tensor, pipeline, context = (degree(layout, name) for name in ("tp", "pp", "cp"))
    tensor = max(tensor, _in_words(row, "tp"))
    heads = _in_words(row, "sp")
    context = max(context, heads)
    if not is_told(layout):
        raise Unreadable(NO_LAYOUT)
    experts, layers = _has_experts(model), _layers(model, row)
    virtual = degree(layout, "vp") if pipeline > 1 else 1
    found: Tree = {
        "tensor": tensor,
        "pipeline": pipeline,
        "context": context,
        "zero": _zero(row, stack),
        "sequence_parallel": tensor > 1 and bool(layout.get("sp", stack.sequence_parallel)),
    }
    if heads > 1:
        found["context_heads"] = heads
    if layout.get("sharding") == _GATHERS:
        found["reshard_after_forward"] = False
    found |= _optimizer_beside(row)
    found |= _in_groups(row, found["zero"], tensor * pipeline, assumed)
    if experts:
        if "ep" in layout:
            found["expert"] = degree(layout, "ep")
        found["expert_tensor"] = _expert_tensor(row, stack, tensor)
        found["dispatcher"] = _dispatcher(row, stack)
    size = _micro_batch(row, tensor * pipeline * context, assumed)
    bubble = _bubble(row, tensor * context, pipeline, size)
    found |= _schedule(row, pipeline, virtual, _chunks(stack, layers, pipeline, bubble), assumed)
    if stack.delays_weight_gradients and "overlap_all_to_all" in found["schedule"]:
        found["schedule"]["defer_weight_grad"] = True
    chunks = pipeline * found.get("virtual", 1)
    split = _ends_counted(row, chunks, layers) or stack.split(chunks, layers)
    if pipeline > 1 and split is not None:
        found["layers"] = list(split)
    found["micro_batch"] = size
    overlap = "pieces" if layout.get("async_tp") else stack.overlap_tensor
    if tensor > 1 and (found["sequence_parallel"] or overlap == "bulk"):
        found["overlap_tensor"] = overlap
    return found


_ENDS: Final = re.compile(
    r"one layer fewer on the first and last stage|account-for-(?:embedding|loss)-in-pipeline-split"
)


def _ends_counted(row: PublishedRow, chunks: int, layers: int) -> tuple[int, ...] | None:
    """Layers of every chunk where embedding and head count as a layer each (Megatron-LM's
    --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split); None where
    no words say so."""
    each, rest = divmod(layers + 2, chunks)
    if rest or chunks < 2 or not _ENDS.search(row.words):
        return None
    return (each - 1, *[each] * (chunks - 2), each - 1)


_DEGREES: Final = ("tp", "pp", "cp", "ep", "fsdp", "zero", "dp", "intra_node_model_parallel")


def is_told(layout: Mapping[str, Any]) -> bool:
    """Whether a layout has any degree."""
    return any(name in layout for name in _DEGREES)


def _in_words(row: PublishedRow, kind: Literal["tp", "sp"]) -> int:
    """Ranks that share attention, where a source writes `tp8`, or `sp8`: those cut sequences, and
    exchange tokens for heads (Ulysses)."""
    found = re.fullmatch(rf"{kind}(\d+)", str(row.layout.get("attention", "")))
    return int(found[1]) if found else 1


def _expert_tensor(row: PublishedRow, stack: Stack, tensor: int) -> int:
    """As many as the row says, or as the stack takes by default."""
    own = count(row.layout, "etp")
    return own or (tensor if stack.expert_tensor == "tensor" else 1)


def _dispatcher(row: PublishedRow, stack: Stack) -> str:
    words = str(row.layout.get("dispatcher", "")).lower()
    if "hybridep" in words:
        return "hybridep"
    if "deepep" in words:
        return "deepep"
    if "allgather" in words or "all-gather" in words:
        return "allgather"
    return "alltoall" if words else stack.dispatcher


def _zero(row: PublishedRow, stack: Stack) -> int:
    layout = row.layout
    own = layout.get("zero")
    if own == 2 and stack.reduces_once and degree(layout, "pp") > 1:
        return 1
    if isinstance(own, int) and not isinstance(own, bool) and own in (0, 1, 2, 3):
        return own
    if degree(layout, "fsdp") > 1:
        return 3
    return stack.zero


_OPTIMIZER: Final = r"overlapped ?distributed ?optimizer"
_BESIDE: Final = {
    "overlap_grad_reduce": re.compile(rf"overlap[-_ ]grad[-_ ]reduce|{_OPTIMIZER}"),
    "overlap_param_gather": re.compile(rf"overlap[-_ ]param[-_ ]gather|{_OPTIMIZER}"),
}
_APART: Final = {
    "overlap_grad_reduce": re.compile(
        r"optimizer are not overlapped|overlap_sync_grad ?= ?false|deepspeed 3d"
    ),
    "overlap_param_gather": re.compile(
        r"optimizer are not overlapped|overlap_(?:sync_)?param\w* ?= ?false"
    ),
}


def _optimizer_beside(row: PublishedRow) -> Tree:
    """Whether gradients are reduced beside backward passes, and new weights gathered beside the
    first forwards, where words say so. DeepSpeed's pipelines reduce behind all passes
    (`PipelineEngine._exec_reduce_grads`)."""
    beside = {name: True for name, words in _BESIDE.items() if words.search(row.words)}
    apart = {name: False for name, words in _APART.items() if words.search(row.words)}
    return beside | apart


_HYBRID: Final = re.compile(r"\bhsdp\b|hybrid[-_ ]shard|\bdp_replicate\b")
_OVER: Final = re.compile(r"optimizer states over (\d+) gpus|\bzero1 ?= ?(\d+)")


def _in_groups(row: PublishedRow, zero: int, ranks: int, assumed: list[str]) -> Tree:
    """Sharding over some of the ranks that hold the same weights: as many as the row says, or where
    it says no number, those of a node. `ranks` share each of these weights."""
    over = _OVER.search(row.words)
    shards = degree(row.layout, "fsdp")
    if zero == 3 and _HYBRID.search(row.words):
        if shards == 1:
            assumed.append("hybrid sharding inside nodes")
            shards = row.system.get("gpus_per_nvlink_domain", 8)
    elif zero == 1 and over is not None:
        shards = int(over[1] or over[2])
    else:
        return {}
    copies, rest = divmod((row.gpus or 0) // ranks, max(1, shards))
    return {"shard_copies": copies} if copies > 1 and not rest else {}


_LATE: Final = 3
"""Weight gradients that ZB-2p's search puts off: ceil((F + B) / W) from Table 1 of the zero-bubble
paper, 2 + s / (2 h) rounded up."""


def _bubble(row: PublishedRow, ranks: int, pipeline: int, size: int) -> float:
    """Bubble over work of plain 1F1B, for stages of some ranks and a micro-batch: (pipeline - 1) /
    micro-batches; 0 where the row has no batch."""
    if row.gpus is None or row.batch is None:
        return 0.0
    return (pipeline - 1) * row.gpus * size / (row.batch * ranks * pipeline)


_LAYERS_PER_CHUNK: Final = 2
"""Of interleaved pipelines: what most of NVIDIA's recipes come to."""


def _chunks(stack: Stack, layers: int, pipeline: int, bubble: float) -> int | None:
    """Chunks per stage of a stack that says so, or how many layers each has, embedding and head
    counted as one layer each; None where it does not say, and plain 1F1B has a bubble that it
    allows."""
    each = stack.layers_per_chunk
    if each is None and stack.interleaves_above is not None and bubble > stack.interleaves_above:
        each = _LAYERS_PER_CHUNK
    if stack.virtual is not None or each is None:
        return stack.virtual
    return max(1, (layers + 2) // (pipeline * each))


def _schedule(
    row: PublishedRow, pipeline: int, virtual: int, usual: int | None, assumed: list[str]
) -> Tree:
    words = str(row.layout.get("schedule", "")).lower()
    overlap = bool(row.layout.get("moe_a2a_overlap") or row.layout.get("ep_overlap"))
    if pipeline == 1 and not overlap:
        return {"schedule": "1f1b"}
    if "dualpipe" in words:
        return {"schedule": "dualpipe"}
    if "zb-1p" in words:
        return {"schedule": "zb_h1"}
    if "zb-2p" in words:
        return {"schedule": {"kind": "zb_h2", "weights_late": _LATE}}
    told = "1f1b-i" in words or "interleaved" in words
    if virtual == 1 and (told or (usual and not words)):
        virtual = usual or 2
        assumed.append(f"{virtual} chunks per stage, where the source says interleaved only")
    if virtual == 1 and not overlap:
        return {"schedule": "1f1b"}
    kind: Tree = {"kind": "interleaved_1f1b"}
    if overlap:
        kind |= {"overlap_all_to_all": True, "extra_warmup": 1}
    return {"virtual": virtual, "schedule": kind}


def _micro_batch(row: PublishedRow, ranks: int, assumed: list[str]) -> int:
    own = count(row.fields, "mbs") or count(row.layout, "local_batch")
    if own is not None:
        return own
    gpus, batch = row.gpus, row.batch
    steps = count(row.layout, "microbatches") or count(row.layout, "ga")
    if steps is not None and gpus is not None and batch is not None:
        return max(1, batch // (steps * max(1, gpus // ranks)))
    assumed.append("one sequence per micro-batch")
    return 1


_RECOMPUTE: Final = ("recompute", "activation_checkpointing", "activation")


def _recompute(row: PublishedRow) -> tuple[str, ...] | None:
    """What the row says is computed again, in the twin's words; None where it says nothing."""
    said = [row.layout[name] for name in _RECOMPUTE if name in row.layout]
    if "fullrecompute" in str(row.layout.get("dispatcher", "")):
        said.append("full")
    if not said:
        return None
    words = str(said[0]).lower()
    if words in ("false", "none", "no"):
        return ()
    if words in ("true", "full", "recompute", "offload"):
        return ("full",)
    if words == "selective per-op":
        return ("alternate_products",)
    if words == "selective":
        return ("attention_core",)
    parts = [word.strip() for word in re.split(r"[,+]", words)]
    return tuple(dict.fromkeys(_MODULES[part] for part in parts if part in _MODULES))


_MODULES: Final = {
    "norm": "norms", "layernorm": "norms", "act": "swiglu", "moe_act": "swiglu",
    "mla_up_proj": "mla_up", "core_attn": "attention_core", "moe": "moe",
    "all_but_qkv": "all_but_qkv",
}  # fmt: skip
"""Modules of Megatron-Core's --recompute-modules, and MaxText's remat, in the twin's words."""
