"""Scenarios as an attacker writes them: ten lines over every axis of a step, and shipped scenarios
of every kind with some values spoiled."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import gcd
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from hypothesis import HealthCheck
from hypothesis import strategies as st

from tests.properties.layouts import divisors
from twin.loading import load

NODES = (
    "h800-8gpu",
    "h20-8gpu",
    "a100-80gb-8gpu-8x200g",
    "h100-8gpu",
    "b200-8gpu",
    "gb200-nvl72",
    "mi300x-8gpu",
)
FABRICS = ("rail-fat-tree-400g",) * 3 + (
    "two-sites-400g",
    "rail-fat-tree-400g-sharp",
    "clos-400g-4to1",
)
LEAVES = "two-sites-400g", "clos-400g-4to1", "rail-fat-tree-400g-4to1"
"""Of one node each, so that a few nodes have to cross what is between leaves, or sites."""
DISPATCHERS = ("alltoall", "deepep", "hybridep", "allgather", "padded")
POLICIES = ("norms", "swiglu", "attention_core", "moe_down", "full", "moe", "mla_up")
OFFLOADS = ("activations", "attention_core", "qkv_input", "moe_up_input", "optimizer")
UNCHECKED: Final = (
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.data_too_large,
    HealthCheck.function_scoped_fixture,
)
BATCH = "train.global_batch"
LAYERS = "parallel.layers"
_FOLDER = TemporaryDirectory(prefix="twin-attack-")


@dataclass(frozen=True, slots=True)
class Written:
    """A scenario of a training step by sections, as ten lines of YAML."""

    sections: Mapping[str, Mapping[str, Any]]

    def __repr__(self) -> str:
        return f"\n{self.text}"

    @property
    def text(self) -> str:
        """The file."""
        lines = [f"{key}: {json.dumps(value)}" for key, value in self.sections.items()]
        return "\n".join(["schema: 1", "name: attack", *lines, "cost: {gpu_hour: 2USD}", ""])

    @property
    def sequences(self) -> int:
        """The global batch."""
        return int(self.sections["train"]["global_batch"].removesuffix("seq"))

    def but(self, **changed: Any) -> Written:
        """Other values at `section__key`."""
        sections = {key: dict(value) for key, value in self.sections.items()}
        for path, value in changed.items():
            section, key = path.split("__")
            sections[section][key] = value
        return replace(self, sections=sections)

    def scenario(self, *overrides: str) -> Any:
        """As `twin` loads it."""
        return loaded(self.text, *overrides)


def loaded(text: str, *overrides: str) -> Any:
    """The scenario of a file with this text."""
    file = Path(_FOLDER.name, "attack.yaml")
    file.write_text(text, encoding="utf-8")
    return load(file, overrides)


@st.composite
def written(draw: st.DrawFn) -> Written:
    """A layout that divides, of any model, node, schedule, memory policy and overlap."""
    node = draw(st.sampled_from(NODES))
    per_node = 72 if node.endswith("nvl72") else 8
    nodes = 1 if per_node > 8 else draw(st.sampled_from([1, 2, 4]))
    ranks = nodes * per_node
    tensor = draw(divisors(gcd(ranks, 8)))
    context = draw(divisors(gcd(ranks // tensor, draw(st.sampled_from([1, 2, 2, 4])))))
    pipeline = draw(divisors(gcd(ranks // tensor // context, 8)))
    data = ranks // tensor // context // pipeline
    mixture, latent = draw(st.booleans()), draw(st.booleans())
    virtual = draw(st.sampled_from([1, 1, 2]))
    micro_batch = draw(st.sampled_from([1, 2]))
    rounds = pipeline * draw(st.integers(1, 6))
    hidden = draw(st.sampled_from([512, 2048, 4096, 8192]))
    heads = draw(st.sampled_from([8, 16]))
    experts = draw(st.sampled_from([8, 16, 64]))
    layers = draw(st.integers(pipeline * virtual, 2 * pipeline * virtual + 2))
    latents = {"q_lora_rank": 128, "kv_lora_rank": 64, "qk_nope_head_dim": 64}
    model: dict[str, Any] = {
        "name": "m",
        "layers": layers,
        "hidden": hidden,
        "vocab": draw(st.sampled_from([4096, 32000, 128256])),
        "attention": {"kind": "mla", "heads": heads, **latents}
        | {"qk_rope_head_dim": 32, "v_head_dim": 64}
        if latent
        else {"kind": "gqa", "heads": heads, "kv_heads": 8, "head_dim": 64},
        "ffn": {"kind": "swiglu", "width": 3 * hidden},
    }
    if mixture:
        model["moe"] = {
            "experts": experts,
            "top_k": draw(st.sampled_from([1, 2, 4])),
            "width": draw(st.sampled_from([512, 1024])),
            "shared_experts": draw(st.integers(0, 1)),
            "first_dense_layers": draw(st.integers(0, min(2, layers))),
        }
    if draw(st.integers(0, 3)) == 0:
        draw(_hybrid(model))
    several = ["interleaved_1f1b", *["dualpipe"] * (virtual == 2 and pipeline % 2 == 0)]
    kind = draw(st.sampled_from(several if virtual > 1 else ["1f1b", "gpipe", "zb_h1", "zb_h2"]))
    split = kind != "dualpipe"
    parallel: dict[str, Any] = {
        "tensor": tensor,
        "context": context,
        "pipeline": pipeline,
        "virtual": virtual if split else 1,
        "expert": draw(divisors(gcd(ranks // pipeline, experts))) if mixture else 1,
        "zero": draw(st.integers(0, 3)),
        "micro_batch": micro_batch,
        "sequence_parallel": tensor > 1 and draw(st.booleans()),
        "dispatcher": draw(st.sampled_from(DISPATCHERS)) if mixture else "alltoall",
        "overlap_tensor": draw(st.sampled_from(["none", "bulk"])),
        "overlap_param_gather": draw(st.booleans()),
        "overlap_grad_reduce": draw(st.booleans()),
        "schedule": {"kind": kind} | draw(_settings(kind)),
        "collectives": draw(st.sampled_from(["ring", "ring", "auto", "switches"])),
    }
    if draw(st.booleans()):
        parallel["context_heads"] = draw(divisors(context))
        parallel["context_ring"] = draw(st.booleans())
        parallel["shard_copies"] = draw(divisors(data))
        parallel["reshard_after_forward"] = parallel["zero"] < 3 or draw(st.booleans())
    names = [one for one in POLICIES if mixture or "moe" not in one if latent or "mla" not in one]
    memory: dict[str, Any] = {
        "recompute": draw(st.just([]) | st.sampled_from(names).map(lambda one: [one])),
        "offload": draw(
            st.just([])
            | st.sampled_from([one for one in OFFLOADS if mixture or "moe" not in one]).map(
                lambda one: [one]
            )
        ),
    }
    train = {
        "tokens": "10B",
        "global_batch": f"{data * micro_batch * rounds}seq",
        "sequence": draw(st.sampled_from(["512tok", "2048tok", "8192tok"])),
        "optimizer": draw(st.sampled_from(["adamw", "muon"])),
        "precision": draw(st.sampled_from(["bf16", "bf16", "fp8", *["nvfp4"] * ("b200" in node)])),
    }
    if train["precision"] == "fp8" and node.startswith("a100"):
        train["precision"] = "bf16"
    cluster = {"node": node, "nodes": nodes, "fabric": draw(st.sampled_from(FABRICS))}
    sections: dict[str, Any] = {"model": model, "cluster": cluster, "parallel": parallel}
    sections |= {"memory": memory, "train": train}
    if draw(st.booleans()):
        for path, value in draw(_rare(model)):
            section, *above, key = path.split(".")
            below = sections.setdefault(section, {})
            for name in above:
                below = below[name]
            below[key] = value
        if "recipe" in train:
            del train["precision"]
    return Written(sections)


_ENCODER: Final = {
    "hidden": 512,
    "heads": 8,
    "ffn": "gelu",
    "width": 2048,
    "values": 588,
    "merge": 4,
}
_IMAGES: Final = {"patches": 1024, "image": 256, "fullest": 1.5}
RARE: Final[tuple[tuple[str, Sequence[Any]], ...]] = (
    ("train.recipe", ("te-nvfp4", "te-mxfp8", "bridge-current", "quartet-mxfp4", "nvfp4-12b")),
    ("train.routing", ("random", {"kind": "zipf", "s": 0.8})),
    ("train.cross_entropy", ("eager", "eager_held")),
    ("train.attention_kernel", ("unfused",)),
    ("train.gradients", ("bf16",)),
    ("train.gradients_sent", ("bf16", "fp8")),
    ("train.lora", ({"rank": 16}, {"rank": 8, "adapters": 3})),
    ("memory.by_stage", ("auto",)),
    ("memory.fully_shard", (True,)),
    ("memory.optimizer_update", ("host",)),
    ("memory.fp8_store", (["swiglu_input"],)),
    ("model.norms_behind", (True,)),
    ("model.attention.gated", (True,)),
    ("model.attention.indexer", ({"heads": 8, "head_dim": 64, "top_k": 256},)),
    ("model.learned_positions", (8192,)),
    ("model.tied_embeddings", (True,)),
    ("model.moe.zero_experts", (4,)),
    ("model.moe.latent", (256,)),
    ("train.expert_capacity", (1.0, 1.5)),
    ("train.expert_weights", ("outputs",)),
    ("cluster.jitter", ({"spread": 0.02, "kernel_spread": 0.01},)),
    ("cluster.degraded", ([{"gpus": [1], "compute": 0.7, "nic": 0.5}],)),
    ("cluster.fabric", tuple({"extends": name, "nodes_per_leaf": 1} for name in LEAVES)),
    ("parallel.overlap_tensor", ("pieces",)),
    ("parallel.bucket_size", (10**6,)),
    ("parallel.order", (["tensor", "context", "pipeline", "expert", "data"],)),
    (
        "software.extends",
        ("megatron-core", "megatron-core-replayed", "torchtitan", "megatron-deepspeed"),
    ),
)
"""Fields that few scenarios write, with values."""


@st.composite
def _rare(draw: st.DrawFn, model: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """One to three of these; for an encoder also its images."""
    latent = model["attention"]["kind"] == "mla"
    other = {"model.attention.gated" if latent else "model.attention.indexer"}
    other |= set() if "moe" in model else {path for path, _ in RARE if ".moe." in path}
    of = {path: values for path, values in RARE if path not in other}
    paths = draw(st.lists(st.sampled_from(sorted(of)), min_size=1, max_size=3, unique=True))
    found = [(path, draw(st.sampled_from(of[path]))) for path in paths]
    if draw(st.integers(0, 3)) == 0:
        tensor = draw(st.sampled_from(["cut", "whole", "shared"]))
        again = {"frozen": draw(st.booleans()), "recompute": draw(st.booleans())}
        encoder = _ENCODER | {"layers": draw(st.integers(1, 8))}
        found += [("model.vision", encoder), ("train.images", _IMAGES | again | {"tensor": tensor})]
    return found


MIXERS: Final[tuple[dict[str, Any], ...]] = (
    {"kind": "mamba2", "num_heads": 16, "head_dim": 64, "groups": 8, "state_dim": 128},
    {"kind": "mamba2", "num_heads": 8, "head_dim": 24, "groups": 8, "state_dim": 7, "chunk": 3},
    {"kind": "gated_delta", "key_heads": 8, "value_heads": 16, "key_dim": 128, "value_dim": 128},
    {"kind": "gated_delta", "key_heads": 8, "value_heads": 8, "key_dim": 1, "value_dim": 5},
    {"kind": "kda", "num_heads": 16, "head_dim": 128},
    {"kind": "kda", "num_heads": 8, "head_dim": 3, "conv": 1},
)
"""Of usual sizes, and of odd ones."""


@st.composite
def _hybrid(draw: st.DrawFn, model: dict[str, Any]) -> None:
    """Blocks in a pattern, some of a mixer, some within a window, and modules that predict on."""
    mixer = model["mixer"] = draw(st.sampled_from(MIXERS))
    mixing, feeding = ["attention", mixer["kind"]], ["dense", *["moe"] * ("moe" in model)]
    if model["attention"]["kind"] == "gqa":
        model["attention"]["window"] = draw(st.sampled_from([1, 100, 4096, 1 << 20]))
        mixing.append("window")
    both = [f"{one}+{feed}" for one in mixing for feed in feeding]
    every = st.sampled_from([*both * 2, *mixing, *feeding])
    model["pattern"] = draw(st.lists(every, min_size=1, max_size=6))
    model["mtp_layers"] = draw(st.sampled_from([0, 0, 1, 2]))
    if "moe" in model:
        model["moe"]["first_dense_layers"] = 0


def _settings(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    if kind != "interleaved_1f1b":
        return st.just({})
    pairs = {"extra_warmup": 1, "overlap_all_to_all": True}
    return st.sampled_from([{}, pairs, {"extra_warmup": 1}])


_SMALL = """
model: {layers: 12, moe: {experts: 64}}
cluster: {nodes: 8}
parallel: {pipeline: 4, virtual: 2, expert: 8}
train: {global_batch: 128seq}
"""
KINDS = {
    "gpt-175b-64xa100-full": "",
    "kimi-k2-256xh800": _SMALL,
    "kimi-k2-2048xh800-goodput": _SMALL,
    "kimi-k2-whole-run-256xh800": _SMALL,
    "kimi-k2-rollout-256xh800": _SMALL + "rl: {rollout: {requests: 200, iterations: 2}}\n",
    "kimi-k2-rephrasing-256xh800": _SMALL + "data: {nodes: 8}\n",
    "kimi-k2-rl-256xh800-disaggregated": _SMALL
    + "rl: {rollout: {requests: 100}, iteration: {rollout_nodes: 4}}\n",
    "kimi-k2-weight-update-16xh20": "",
    "kimi-k2-256xh800+hybrid": """
model: {layers: 12, moe: {experts: 64, first_dense_layers: 0, zero_experts: 8, latent: 1024},
  mixer: {kind: kda, num_heads: 32, head_dim: 128}, mtp_layers: 1, mtp_pattern: [kda+moe],
  pattern: [kda+moe, kda+dense, attention+moe]}
cluster: {nodes: 8, fabric: two-sites-400g}
parallel: {pipeline: 4, virtual: 2, expert: 8, context: 2, context_heads: 2, shard_copies: 2}
train: {global_batch: 128seq, recipe: deepseek-v3}
""",
}
"""A shipped scenario of every kind, with every optional section in one of them, and what makes it
small, or other."""
QUICK = (("check",), ("resolve",))
VERBS = (
    *QUICK * 4,
    ("run", "--no-cache"),
    ("run", "--no-cache", "--json"),
    ("explain", "mfu"),
    ("explain", "links"),
    ("explain", "hidden-expert"),
    ("explain", "serving"),
    ("sweep", "--grid", "train.global_batch=64seq,128seq", "--no-cache", "-j", "1"),
    ("export", "--format", "bridge", "--no-cache", "--force", "-o"),
    ("export", "--format", "torchtitan", "--no-cache", "--force", "-o"),
    ("compare", "--no-cache"),
    ("export", "--format", "csv", "--no-cache", "--force", "-o"),
)
"""What is asked of a spoiled scenario."""
BAD = ("-1", "0", "null", "[]", "{}", '""', "x", "1e308", "1e400", ".nan", ".inf", "-1tok", "true")
ODD = ("1", "3", "7", "16000", "999999999999", "1e-30", "[1, 2]", "{kind: x}", "0B/s", "2tok", "é")
FACTORS = (0.5, 2, 3, 4, 16, 1e-3, 1e3, 1e6)


@dataclass(frozen=True, slots=True)
class Command:
    """A command line of `twin` on a shipped scenario with spoiled values."""

    verb: tuple[str, ...]
    scenario: str
    values: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The command line, the same in every run."""
        return " ".join(self.words).replace(f"{_FOLDER.name}/", "")

    @property
    def words(self) -> list[str]:
        """As `main` takes them."""
        head, *rest = self.verb
        if head == "compare":
            rest = [small(self.scenario), *rest]
        file = [str(Path(_FOLDER.name, "out"))] if rest[-1:] == ["-o"] else []
        sets = [word for path, value in self.values for word in ("--set", f"{path}={value}")]
        return [head, small(self.scenario), *rest, *file, *sets]


PARTS: Final = tuple(
    f"cluster.node.{part}"
    for part in (
        *("nvlink.bandwidth", "nic.bandwidth", "host.pcie.bandwidth"),
        *("gpu.memory_bandwidth", "gpu.bf16_dense", "gpu.fp8_dense"),
    )
)
"""Rates of which more is never slower."""


@dataclass(frozen=True, slots=True)
class Quicker:
    """A shipped scenario of any kind with a number that is another, and a part that is faster."""

    scenario: str
    edits: tuple[str, ...]
    part: str

    @property
    def text(self) -> str:
        """What is compared."""
        return f"{self.scenario} {' '.join(self.edits)}: {self.part}"


@st.composite
def quicker(draw: st.DrawFn) -> Quicker:
    """One number is half or twice of what it was, and one part half as fast again."""
    name = draw(st.sampled_from(sorted(KINDS)))
    leaves = _leaves(name)
    other = draw(st.sampled_from(sorted(key for key, value in leaves.items() if len(value) < 20)))
    edit = f"{other}={scaled(leaves[other], draw(st.sampled_from([0.5, 2])))}"
    part = draw(st.sampled_from([path for path in PARTS if leaves.get(path, "null") != "null"]))
    return Quicker(name, (edit,), f"{part}={scaled(leaves[part], 1.5)}")


@cache
def small(name: str) -> str:
    """A file with the small form of a shipped scenario."""
    file = Path(_FOLDER.name, f"{name}.yaml")
    base = name.partition("+")[0]
    file.write_text(f"schema: 1\nextends: {base}\n{KINDS[name]}", encoding="utf-8")
    return str(file)


def spoiled(verbs: Sequence[tuple[str, ...]] = VERBS) -> st.SearchStrategy[Command]:
    """A verb on a shipped scenario of which one or two values are others: of another type, out of
    range, odd, another of its values, or much larger or smaller."""
    return st.sampled_from(sorted(KINDS)).flatmap(lambda name: _spoiled(name, verbs))


def _spoiled(name: str, verbs: Sequence[tuple[str, ...]]) -> st.SearchStrategy[Command]:
    leaves = _leaves(name)
    paths = st.sampled_from(sorted(leaves))
    bad = st.sampled_from(BAD) | st.sampled_from(ODD) | paths.map(leaves.__getitem__)
    edits = st.tuples(paths, bad) | st.tuples(paths, st.sampled_from(FACTORS)).map(
        lambda one: (one[0], scaled(leaves[one[0]], one[1]))
    )
    some = st.lists(edits, min_size=1, max_size=2, unique_by=lambda one: one[0])
    return st.builds(Command, st.sampled_from(verbs), st.just(name), some.map(tuple))


def scaled(value: str, factor: float) -> str:
    """A value with its first number times a factor; whole numbers stay whole."""
    found = re.search(r"\d+(\.\d+)?(e[+-]?\d+)?", value)
    if found is None:
        return value
    number = float(found[0]) * factor
    whole = found[0].isdigit() and number >= 1
    text = str(round(number)) if whole else repr(number)
    return value[: found.start()] + text + value[found.end() :]


@cache
def _leaves(name: str) -> dict[str, str]:
    """Every section and value of a scenario as `--set` takes it, by path."""
    found: dict[str, str] = {}

    def walk(value: Any, path: str) -> None:
        if path:
            found[path] = json.dumps(value)
        if isinstance(value, dict):
            for key, below in cast("dict[str, Any]", value).items():
                walk(below, f"{path}.{key}" if path else key)

    walk(load(small(name)).model_dump(mode="json", by_alias=True, exclude_none=False), "")
    return found
