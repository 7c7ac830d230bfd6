"""torchtitan's TOML to a launch. Defaults are those of torchtitan/config/job_config.py at 658f94cb9
(January 2026); older keys are read as what they became (`torchtitan.yaml`).

How it runs: layers are sharded by FSDP2, batch before sequence, and tensor ranks always split
sequences (torchtitan/distributed, torchtitan/models/*/infra/parallelize.py); stages are cut so that
embedding and head count as layers (`generate_llm_fqn_per_model_part`,
torchtitan/distributed/pipeline_parallel.py).
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from twin.errors import Origin, Problem, UsageError
from twin.interop.importing.keys import Keys
from twin.interop.importing.launch import Launch, Source, sections_of
from twin.interop.importing.named_models import model_called
from twin.interop.importing.python_recipe import RECIPE, Call, Made, flat_of, recipe_of
from twin.interop.importing.scripts import asked, words_of
from twin.interop.tables import Fields, ask, choice, finished, overrides, table_of
from twin.loading.files import display, read_text
from twin.loading.tree import Branch, Child, Items, Leaf, Node, plain
from twin.spec.model import ModelSpec

TABLE: Final = table_of(Path(__file__).with_name("torchtitan.yaml"))
SCHEDULES: Final[Mapping[str, str]] = {
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved_1f1b",
}
"""Their schedules that have ours."""
_NEAREST: Final[Mapping[str, str]] = {
    "InterleavedZeroBubble": "interleaved_1f1b",
    "LoopedBFS": "gpipe",
    "ZBVZeroBubble": "zb_h1",
    "DualPipeV": "dualpipe",
}
_TWO_CHUNKS: Final = frozenset({"Interleaved1F1B", "InterleavedZeroBubble", "LoopedBFS"})
FLOAT8: Final = {"tensorwise": "current", "rowwise": "row", "rowwise_with_gw_hp": "row"}
"""`recipe_name` of float8 as `train.fp8_scaling`."""
_GATHERS: Final = {"default": None, "always": True, "never": False}


def read(source: Source) -> Launch:
    """The launch that a TOML describes, or a script that names one beside it. Raises `UsageError`
    with everything that is wrong."""
    if source.language == "shell":
        return _of_script(source)
    if source.language == "python":
        return _of_registry(source)
    return _of_tree(read_toml(source.text, source.file), source)


def _of_tree(tree: Branch, source: Source) -> Launch:
    """The launch of a tree of keys."""
    keys = TABLE.keys_of(tree, overrides(source.more))
    model = _model(keys, source)
    fields = TABLE.read(keys)
    fields.setdefault("memory", {})
    fields["parallel"] |= _stages(keys, model)
    data = _data_ranks(keys, fields, source)
    _batch(keys, fields, data)
    fields["memory"]["recompute"] = _recomputed(keys)
    _numbers(keys, fields)
    software = _software(keys, fields)
    _layers_alike(fields, model)
    name = keys.get("job.description") or source.name
    keys.taken.add("job.description")
    tally = keys.finish()
    finished(keys)
    assert model is not None
    return Launch(
        name=str(name),
        model=model,
        **sections_of(fields),
        nodes=None,
        remarks=tuple(keys.warnings),
        software=software,
        tally=tally,
    )


_CALLS: Final[Mapping[str, Call]] = {
    "model_registry": lambda args, named: Made(
        "", {"flavor": args[0], "converters": named.get("converters", [])}
    ),
}
"""Calls of a registry whose worth is known."""
_CONVERTERS: Final = {
    "Float8LinearConverter": "quantize.linear.float8",
    "MXFP8LinearConverter": "quantize.linear.mx",
}
_CHECKPOINTING: Final = {
    "FullAC": "full",
    "SelectiveAC": "selective",
    "MemoryBudgetAC": "memory_budget",
}


def _of_registry(source: Source) -> Launch:
    """The launch of a function of a `config_registry.py`, which torchtitan has instead of TOML
    since 2026. Its keys are those of the TOML but for model, converters and checkpointing."""
    made, unknown = recipe_of(source, _CALLS, "")
    keys = dict(flat_of(made, source.file))
    top = Origin(source.file, 1, 1, "", 1)

    def put(key: str, value: Any) -> None:
        keys[key] = Child(top, Leaf(value, top))

    family = (source.folder or Path()).name
    put("model.name", family)
    if flavor := keys.pop("model_spec.flavor", None):
        keys["model.flavor"] = flavor
    converters = keys.pop("model_spec.converters", None)
    named = [str(one) for one in plain(converters.node)] if converters else list[str]()
    known = [_CONVERTERS.get(one.partition(".")[0], one) for one in named]
    keys["model.converters"] = Child(top, Items(tuple(Leaf(one, top) for one in known), top))
    kind = keys.pop("activation_checkpoint._class", None)
    mode = str(plain(kind.node)).partition(".")[0] if kind else ""
    put("activation_checkpoint.mode", _CHECKPOINTING.get(mode, "none"))
    put("activation_checkpoint.selective_ac_option", "op")
    if beside := keys.pop("compile.enable_async_tensor_parallel", None):
        keys["parallelism.enable_async_tensor_parallel"] = beside
    launch = _of_tree(Branch(keys, top), source)
    name = source.defined.get(RECIPE, launch.name)
    return replace(launch, name=name, remarks=(*launch.remarks, *unknown))


def _of_script(source: Source) -> Launch:
    """The launch of a script: the TOML that it names, and what its command line sets."""
    words = words_of(source, r"torchtitan|run_train|train\.py")
    named = words.option("job.config-file", "job.config_file") or words.values.get("CONFIG_FILE")
    path = source.beside(named, ".toml")
    slurm = asked(source.text)
    per_node = words.option("nproc-per-node") or words.values.get("NGPU") or ""
    gpus = int(per_node) if per_node.isdecimal() else slurm.gpus_per_node
    nodes = words.option("nnodes") or ""
    count = int(nodes) if nodes.isdecimal() else slurm.nodes
    world = source.gpus or (count * gpus if count and gpus else None)
    text, more = read_text(path), (" ".join(_with_values(words.texts)), *source.more)
    launch = read(replace(source, text=text, file=display(path), more=more, gpus=world))
    return replace(launch, nodes=count, gpus_per_node=gpus)


def _sets_a_key(text: str) -> bool:
    return text.startswith("--") and "." in text and not text.startswith("--job.config")


def _with_values(texts: Sequence[str]) -> Iterator[str]:
    """The words that set keys: options with a point in their names, and their values."""
    taking = False
    for text in texts:
        taking = _sets_a_key(text) if text.startswith("--") else taking
        if taking:
            yield shlex.quote(text)
            taking = text.startswith("--") and "=" not in text


def _model(keys: Keys, source: Source) -> ModelSpec | None:
    """The model of `name` and `flavor`, or the one that is known beside."""
    name, flavor = keys.get("model.name", "llama3"), keys.get("model.flavor", "debugmodel")
    found = source.model or model_called(f"{name}/{flavor}")
    if found is None:
        message = f"the catalog has no `{name}` of the flavor `{flavor}`"
        ask(keys, "model.flavor", message, "--architecture NAME or its config.json")
    return found


def _data_ranks(keys: Keys, fields: Fields, source: Source) -> int:
    """Data ranks; sets how states are sharded over them. A shard degree of -1 is all that
    replicas, pipeline, context and tensor ranks leave of the cluster."""
    parallel = fields["parallel"]
    replicas = keys.count("parallelism.data_parallel_replicate_degree", 1)
    shards = keys.get("parallelism.data_parallel_shard_degree", -1)
    others = replicas * parallel["tensor"] * parallel["pipeline"] * parallel["context"]
    if shards == -1:
        if source.gpus is None:
            message = "all other GPUs share parameters, and nobody says how many there are"
            ask(keys, "parallelism.data_parallel_shard_degree", message, "--nodes NUMBER")
        shards = max(1, (source.gpus or others) // others)
    sharded = shards * parallel["context"] > 1 or replicas == 1
    parallel["zero"] = 3 if sharded else 0
    fields["memory"]["fully_shard"] = sharded
    gathers = choice(keys, "parallelism.fsdp_reshard_after_forward", _GATHERS, "default")
    keeps = parallel["pipeline"] > 1 if gathers is None else not gathers
    if sharded:
        parallel["shard_copies"] = replicas
        parallel["reshard_after_forward"] = not keeps
    return int(shards) * replicas


def _batch(keys: Keys, fields: Fields, data: int) -> None:
    """Sequences of a pass and of a step, and tokens of the run."""
    parallel, train = fields["parallel"], fields["train"]
    sequence = int(train["sequence"].removesuffix("tok"))
    tokens = keys.get("training.num_tokens_per_microbatch_per_dp_rank")
    parts = keys.count("parallelism.num_pp_microbatches", 1)
    local = keys.count("training.local_batch_size", 8)
    if isinstance(tokens, int):
        local = max(1, tokens // sequence) * parts
    whole = keys.get("training.global_batch_size", -1)
    told = keys.get("training.num_tokens_per_train_step", -1)
    if isinstance(told, int) and told > 0:
        whole = told // sequence
    batch = local * data if whole in (-1, None) else int(whole)
    if batch % (local * data):
        message = f"{batch} sequences do not fall to {data} data ranks of {local} evenly"
        keys.refuse("training.global_batch_size", message)
    parallel["micro_batch"] = local
    if parallel["pipeline"] > 1:
        older = keys.get("parallelism.pipeline_parallel_microbatches")
        own = keys.count("parallelism.pipeline_parallel_microbatch_size", 1)
        parts = older or (parts if isinstance(tokens, int) else None)
        parallel["micro_batch"] = max(1, local // parts) if parts else own
        if batch > local * data:
            keys.warnings.append(
                "The pipeline empties once for each pass of the whole local batch; here it stays "
                "full until the step ends."
            )
    train["global_batch"] = f"{batch}seq"
    train["tokens"] = f"{keys.count('training.steps', 10_000) * batch * sequence}tok"


def _stages(keys: Keys, model: ModelSpec | None) -> dict[str, Any]:
    """Schedule, chunks per stage, and layers of each chunk."""
    stages = keys.count("parallelism.pipeline_parallel_degree", 1)
    theirs = str(keys.get("parallelism.pipeline_parallel_schedule", "1F1B"))
    first = keys.count("parallelism.pipeline_parallel_first_stage_less_layers", 1, least=0)
    last = keys.count("parallelism.pipeline_parallel_last_stage_less_layers", 1, least=0)
    each = keys.get("parallelism.pipeline_parallel_layers_per_stage")
    written = keys.get("parallelism.module_fqns_per_model_part")
    if stages == 1:
        return {"schedule": {"kind": "1f1b"}}
    kind = SCHEDULES.get(theirs) or choice(keys, _SCHEDULE, {**SCHEDULES, **_NEAREST}, "1F1B")
    if theirs in _NEAREST:
        keys.warnings.append(f"`{theirs}` is counted as `{kind}`, the nearest schedule here.")
    layers = model.layers if model else stages
    chunks = stages * (2 if theirs in _TWO_CHUNKS else 1)
    if isinstance(each, int) and each > 0:
        chunks = -(-(layers + first + last) // each)
    split = _written(written) if written else layers_of_chunks(layers, chunks, first, last)
    if sum(split) != layers or len(split) % stages:
        message = f"{len(split)} parts of {sum(split)} layers are not {layers} layers in stages"
        keys.refuse("parallelism.module_fqns_per_model_part", message)
    return {
        "schedule": {"kind": kind},
        "virtual": max(1, len(split) // stages),
        "layers": split,
    }


_SCHEDULE: Final = "parallelism.pipeline_parallel_schedule"


def _written(parts: Any) -> tuple[int, ...]:
    """Layers of each part of `module_fqns_per_model_part`."""
    return tuple(sum(str(name).startswith("layers.") for name in part) for part in parts)


def layers_of_chunks(layers: int, chunks: int, first: int, last: int) -> tuple[int, ...]:
    """Layers of each chunk where the embedding counts as `first` layers, and the head as `last`.

    >>> layers_of_chunks(32, 4, 1, 1)
    (8, 9, 8, 7)
    """
    each, more = divmod(layers + first + last, chunks)
    found = [each + (chunk < more) for chunk in range(chunks)]
    found[0] -= first
    found[-1] -= last
    return tuple(found)


def _recomputed(keys: Keys) -> tuple[str, ...]:
    mode = choice(keys, "activation_checkpoint.mode", {one: one for one in _MODES}, "selective")
    option = str(keys.get("activation_checkpoint.selective_ac_option", "2"))
    keys.get("activation_checkpoint.memory_budget")
    if mode == "full" or (mode == "selective" and option == "1"):
        return ("full",)
    if mode == "none":
        return ()
    if mode == "memory_budget" or option != "op":
        keys.warnings.append(
            f"Checkpointing `{mode}` with `{option}` is counted as `selective` with `op`: all but "
            "attention and every second product is computed again."
        )
    return ("alternate_products",)


_MODES: Final = ("selective", "full", "memory_budget", "none")


def _numbers(keys: Keys, fields: Fields) -> None:
    """Numbers of products, kernels of the loss, and what is on the host."""
    train, parallel = fields["train"], fields["parallel"]
    converters = {str(one).rpartition(".")[2] for one in keys.texts("model.converters")}
    if keys.flag("float8.enable_float8_linear"):
        converters.add("float8")
    recipe = choice(keys, "quantize.linear.float8.recipe_name", FLOAT8, "tensorwise")
    gathers = keys.flag("quantize.linear.float8.enable_fsdp_float8_all_gather")
    if converters & {"float8", "mx"}:
        train["precision"] = "fp8"
        train["fp8_scaling"] = recipe if "float8" in converters else "mx"
        train["fp8_param_gather"] = gathers
    if str(keys.get("training.dtype", "float32")) != "float32":
        keys.warnings.append("`training.dtype`: weights and states of the optimizer are fp32 here.")
    optimizer = str(keys.get("optimizer.name", "AdamW"))
    train["optimizer"] = {"kind": "muon" if optimizer == "Muon" else "adamw"}
    if optimizer not in ("Adam", "AdamW", "Muon"):
        keys.warnings.append(f"The optimizer `{optimizer}` is counted as AdamW.")
    if keys.flag("training.enable_cpu_offload"):
        fields["memory"] |= {"offload": ("optimizer",), "optimizer_update": "host"}
        keys.warnings.append("`training.enable_cpu_offload`: parameters stay on the device here.")
    parallel["sequence_copies"] = True
    splits = keys.flag("parallelism.enable_sequence_parallel", default=True)
    parallel["sequence_parallel"] = parallel["tensor"] > 1 and splits
    if keys.flag("parallelism.enable_async_tensor_parallel") and parallel["tensor"] > 1:
        parallel["overlap_tensor"] = "pieces"


def _software(keys: Keys, fields: Fields) -> str:
    """What runs it: blocks that are compiled, or eager ones; and how the loss is."""
    compiled = keys.flag("compile.enable")
    parts = keys.texts("compile.components") or {"model", "loss"}
    fields["train"]["cross_entropy"] = "compiled" if compiled and "loss" in parts else "eager"
    return "torchtitan" if compiled and "model" in parts else "fsdp2"


def _layers_alike(fields: Fields, model: ModelSpec | None) -> None:
    """Leave out what only mixtures of experts have; theirs multiply weights outside."""
    if model is not None and model.moe is not None:
        fields["train"]["expert_weights"] = "outputs"
        return
    for name in ("expert", "expert_tensor", "dispatcher"):
        fields["parallel"].pop(name, None)


_MOST: Final = 250_000
"""Characters of a text, as of YAML."""
_DEEPEST: Final = 100
_HEADER: Final = re.compile(r"\s*\[\[?([^\]]+)\]\]?\s*(#.*)?$")
_KEY: Final = re.compile(r"(\s*)([\w.\"'-]+)\s*=")


def read_toml(text: str, name: str) -> Branch:
    """The tree of a text, which problems call `name`. Raises `UsageError` where it is no TOML."""
    top = Origin(name, 1, 1, text[:1] and text.split("\n", 1)[0][:200], 1)
    try:
        if len(text) > _MOST:
            message = f"more than {_MOST:,} characters"
            raise UsageError([Problem("TW002", "", message, "", top)])
        values = tomllib.loads(text)
        return cast("Branch", _node(values, "", _places(text, name), top))
    except tomllib.TOMLDecodeError as error:
        raise UsageError([Problem("TW002", "", f"not TOML: {error}", "", top)]) from None
    except RecursionError:
        message = f"deeper than {_DEEPEST} levels"
        raise UsageError([Problem("TW002", "", message, "", top)]) from None


def _places(text: str, name: str) -> dict[str, Origin]:
    """Where each key stands, by dotted path; of equal ones the last."""
    found: dict[str, Origin] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), start=1):
        header, key = _HEADER.match(line), _KEY.match(line)
        if header:
            section = re.sub(r"[\s\"']", "", header[1])
            found[section] = Origin(name, number, 1, line, len(line))
        elif key:
            path = ".".join(filter(None, (section, re.sub(r"[\"']", "", key[2]))))
            found[path] = Origin(name, number, len(key[1]) + 1, line, len(key[2]))
    return found


def _node(value: Any, path: str, places: dict[str, Origin], around: Origin) -> Node:
    if path.count(".") > _DEEPEST:
        raise RecursionError
    here = places.get(path, around)
    if isinstance(value, dict):
        children = {
            key: Child(below.origin, below)
            for key, held in cast("dict[str, Any]", value).items()
            for below in [_node(held, f"{path}.{key}" if path else key, places, here)]
        }
        return Branch(children, here)
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return Items(
            tuple(_node(one, f"{path}.{i}", places, here) for i, one in enumerate(items)), here
        )
    return Leaf(value if isinstance(value, str | int | float | bool) else str(value), here)
