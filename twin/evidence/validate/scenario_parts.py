"""Model and cluster of a published row.

The model is a name of the catalog, or a part made from the sizes that the row or its file gives.
The cluster is the catalog's node of the row's GPU, cut down or repeated, and a fabric as fast as
its NICs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any, Final, cast

from twin.errors import UsageError
from twin.evidence.validate.network_words import NicWords, nic_of, without_nvlink
from twin.evidence.validate.suite import (
    NOT_TOLD,
    Fields,
    PublishedRow,
    Unreadable,
    count,
    is_fields,
)
from twin.loading import catalog_parts, load_part
from twin.loading.catalog import unavailable
from twin.spec.cluster import GpuSpec, NodeSpec
from twin.spec.model import ModelSpec

GPT_VOCAB: Final = 51200
"""GPT-2's 50,257 tokens as Megatron-LM pads them for tensor ranks."""


def model_of(row: PublishedRow) -> str | dict[str, Any]:
    """What stands at `model:` of the row's scenario: a name, or a part of its own. Of a variant of
    a catalog model it is that model's name; `model_changes` has the rest. Raises `Unreadable` where
    neither can be made."""
    said = row.fields.get("model")
    variant = _variant(row)
    if variant is not None:
        return variant[0]
    if is_fields(said):
        name = str(said.get("name", ""))
        return name if _same_as_catalog(name, said) else part(row.model, said)
    if not isinstance(said, str):
        raise Unreadable("the row names no model")
    reason = unavailable("models").get(said)
    if reason is not None:
        raise Unreadable(f"{NOT_TOLD}{reason}")
    if known(said):
        return said
    if said in row.models:
        return part(said, _resolved(row.models, said))
    raise Unreadable(f"nobody tells what the model {said} is")


def model_changes(row: PublishedRow) -> dict[str, Any]:
    """What the row's model has otherwise than the catalog's model that `model_of` names, such as
    fewer layers."""
    variant = _variant(row)
    found = {} if variant is None else variant[1]
    layers = count(row.fields, "layers")
    return found if layers is None else {**found, "layers": layers}


_FEWER: Final = re.compile(r"(.+?)[-_ ]+\(?(?:(\d+)[-_ ]?layers?|l(\d+))\)?", re.IGNORECASE)
"""A model that is another with so many layers, as in `deepseek-v3-4layers` or `deepseek-v3-l4`."""


def _variant(row: PublishedRow) -> tuple[str, dict[str, Any]] | None:
    """A catalog model and what is otherwise in the row's: from `same_as`, or from its name. None
    for a model that the catalog has, or that is no variant of such."""
    said = row.fields.get("model")
    own = said if is_fields(said) else row.models.get(said) if isinstance(said, str) else None
    if isinstance(said, str) and known(said):
        return None
    if is_fields(own) and "same_as" in own:
        base = str(own["same_as"])
        if base in row.models and not known(base):
            return None
        if not known(base):
            raise Unreadable(f"the catalog has no model {base}")
        return base, _changes(own)
    fewer = _FEWER.fullmatch(said) if isinstance(said, str) and own is None else None
    if fewer is None or not known(fewer[1]):
        return None
    return fewer[1], {"layers": int(fewer[2] or fewer[3])}


_CHANGES: Final = {
    "layers": ("layers",), "hidden": ("hidden",), "vocab": ("vocab",),
    "mtp_layers": ("mtp_layers",), "heads": ("attention", "heads"),
    "kv_heads": ("attention", "kv_heads"), "head_dim": ("attention", "head_dim"),
    "ffn": ("ffn", "width"), "experts": ("moe", "experts"), "topk": ("moe", "top_k"),
    "moe_ffn": ("moe", "width"), "shared_experts": ("moe", "shared_experts"),
    "dense_layers": ("moe", "first_dense_layers"),
}  # fmt: skip
"""What published rows call our fields, and where these are in a model."""


def _changes(sizes: Fields) -> dict[str, Any]:
    """Sizes in the words of published rows as fields of a model."""
    found: dict[str, Any] = {}
    for name, (*sections, field) in _CHANGES.items():
        if name in sizes:
            place = found
            for part_name in sections:
                place = place.setdefault(part_name, {})
            place[field] = count(sizes, name) if sizes[name] else 0
    return found


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


_BLOCKED: Final = re.compile(r"1:(\d+) oversubscribed.*?(\d+)-GPU pods", re.IGNORECASE)
"""What is left of the rate between pods, and the GPUs of one."""


@dataclass(frozen=True, slots=True)
class RowCluster:
    """The section `cluster` of a scenario, what is changed in the parts that it names, and what the
    row leaves open."""

    section: dict[str, Any]
    over: dict[str, Any]
    assumed: tuple[str, ...] = ()


def cluster_of(row: PublishedRow) -> RowCluster:
    """Where a row ran. Raises `Unreadable` for a GPU that the catalog does not know, or a count of
    GPUs that fills no nodes."""
    gpus = row.gpus
    if gpus is None:
        raise Unreadable("the row does not say on how many GPUs")
    name, told = _node(row)
    node = load_part("nodes", name).spec
    each = _per_node(gpus, _gpus_per_node(row, node))
    over: dict[str, Any] = {} if each == node.gpus else {"gpus": each}
    over |= _links(row, node, told)
    rate = told.rate or _gigabits(node)
    section = {"node": name, "nodes": gpus // each, "fabric": _fabric(row, node, rate)}
    found = {"node": over} if over else {}
    blocked = _BLOCKED.search(_network(row))
    if blocked is not None:
        pod = max(1, int(blocked[2]) // each)
        found["fabric"] = {"oversubscription": float(blocked[1]), "nodes_per_leaf": pod}
    assumed = (told.assumed,) if told.assumed and gpus > each else ()
    return RowCluster(section, found, assumed)


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted paths of a tree and their values, as `--set` takes them."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _network(row: PublishedRow) -> str:
    return str(row.system.get("network", ""))


def _gigabits(node: NodeSpec) -> float:
    """Gb/s of the NIC of each GPU."""
    return node.nic.bandwidth * 8e-9


def _gpus_per_node(row: PublishedRow, node: NodeSpec) -> int:
    """GPUs of a whole node: the row's, where it says fewer than the catalog's node has."""
    names = ("gpus_per_node", "gpus_per_nvlink_domain")
    told = [own for name in names if isinstance(own := row.system.get(name), int) and own > 0]
    return min((node.gpus, *told))


_NVLINK: Final = re.compile(r"NVLink (\d+) ?GB/s")
"""Of a GPU that has less than its sister of the same chip, each way: A800, H800."""


def _links(row: PublishedRow, node: NodeSpec, told: NicWords) -> dict[str, Any]:
    """Links that the row has otherwise than the catalog's node: the rate of its NICs, and PCIe
    where its GPUs have no NVLink."""
    found: dict[str, Any] = {}
    if told.rate is not None and round(told.rate, 3) != round(_gigabits(node), 3):
        found["nic"] = {"bandwidth": f"{told.rate:g}Gbps"}
    rate = _NVLINK.search(_network(row))
    if rate is not None:
        found["nvlink"] = {"bandwidth": f"{rate[1]}GB/s"}
    if without_nvlink(_network(row)):
        pcie = node.host.pcie
        port = {"bandwidth": f"{pcie.bandwidth * 1e-9:g}GB/s", "efficiency": pcie.efficiency}
        found |= {"nvlink": port, "nvlink_sharp": False}
    return found


@cache
def gpu_spec(name: str) -> GpuSpec:
    """A GPU of the catalog, by the name of its source. Raises `Unreadable` where it has none."""
    try:
        return load_part("gpus", name).spec
    except UsageError:
        raise Unreadable(f"the catalog has no GPU {name}") from None


def gpu_of(row: PublishedRow) -> str:
    """The GPU's name in the catalog."""
    return gpu_spec(row.gpu).name


EFA: Final = "efa"
"""Amazon's fabric in the catalog, and how names of nodes on it end."""


def on_efa(row: PublishedRow) -> bool:
    """Whether nodes are connected by Amazon's EFA."""
    return "EFA" in _network(row)


@cache
def nodes_with(gpu: str, *, efa: bool = False) -> dict[str, NodeSpec]:
    """The catalog's nodes with a GPU, by name: those on Amazon's fabric, or the others. Raises
    `Unreadable` where there are none."""
    names = [name for name in catalog_parts("nodes") if name.endswith(f"-{EFA}") == efa]
    specs = {name: load_part("nodes", name).spec for name in names}
    found = {name: spec for name, spec in specs.items() if spec.gpu.name == gpu}
    if not found:
        raise Unreadable(f"the catalog has no node of {gpu}")
    return found


def _node(row: PublishedRow) -> tuple[str, NicWords]:
    """Of the nodes with the GPU the one whose NICs come closest to what the row says, and that;
    where it says nothing, the fastest."""
    having = _nodes(row)
    rates = {name: _gigabits(node) for name, node in having.items()}
    fastest = max(having, key=lambda name: rates[name])
    size = _gpus_per_node(row, having[fastest])
    told = nic_of(_network(row), row.gpu, size, rates[fastest])
    rate = told.rate
    if rate is None:
        return fastest, told
    return min(having, key=lambda name: abs(rates[name] - rate)), told


def _nodes(row: PublishedRow) -> dict[str, NodeSpec]:
    """Nodes with the row's GPU; on Amazon's fabric others', where the catalog has none on it."""
    gpu = gpu_of(row)
    try:
        return nodes_with(gpu, efa=on_efa(row))
    except Unreadable:
        return nodes_with(gpu)


def _per_node(gpus: int, most: int) -> int:
    """GPUs of each of equal nodes: as many as divide the whole."""
    nodes = ceil(gpus / most)
    while gpus % nodes:
        nodes += 1
    return gpus // nodes


def _fabric(row: PublishedRow, node: NodeSpec, rate: float) -> str:
    """The catalog's fat tree that is as fast as the node's NICs, or Amazon's fabric."""
    if on_efa(row):
        return EFA
    domain = row.system.get("gpus_per_nvlink_domain")
    names = [name for name in catalog_parts("fabrics") if name.startswith("rail-fat-tree")]
    wide = [name for name in names if "nvl" in name]
    if isinstance(domain, int) and domain > node.gpus >= 8 and wide:
        return wide[0]
    speeds = {int(own[1]): name for name in names if (own := _TREE.fullmatch(name))}
    enough = [speed for speed in speeds if speed >= round(rate)]
    if not enough:
        raise Unreadable(f"the catalog has no fabric of {rate:g} Gb/s per NIC")
    return speeds[min(enough)]


_TREE: Final = re.compile(r"rail-fat-tree-(\d+)g")
"""A fabric of the catalog, by the Gb/s of its ports."""
