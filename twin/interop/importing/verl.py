"""verl's configuration, as YAML or as what a command line sets, to an iteration of reinforcement
learning.

What no such file says is that of the shipped rows of verl (`published/recipes/verl.yaml`, with its
sources), but for lengths: an answer takes a fourth of the longest on average unless `MEAN_RESPONSE`
is defined (OURS), and prompts have the recipe's. Defaults are those of verl at b178a3cd5.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from twin.errors import Problem, UsageError
from twin.interop.importing.bridge import yaml_tree
from twin.interop.importing.dialect import argument, launch_of
from twin.interop.importing.keys import Keys
from twin.interop.importing.launch import Launch, Source, sections_of
from twin.interop.importing.megatron.launch_file import Argument
from twin.interop.importing.named_models import model_named_at
from twin.interop.importing.scripts import asked, words_of
from twin.interop.tables import finished, overrides, table_of
from twin.loading.files import read_data, shipped_folder
from twin.loading.tree import Branch, Child
from twin.spec.model import ModelSpec

TABLE: Final = table_of(Path(__file__).with_name("verl.yaml"))
_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_MEGATRON: Final = f"{_ACTOR}.megatron"
_OVERRIDES: Final = f"{_MEGATRON}.override_transformer_config."
_OPTIMIZER: Final = f"{_ACTOR}.optim.override_optimizer_config."
_DEGREES: Final = {
    "tensor_model_parallel_size": "tensor-model-parallel-size",
    "pipeline_model_parallel_size": "pipeline-model-parallel-size",
    "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "expert_model_parallel_size": "expert-model-parallel-size",
    "expert_tensor_parallel_size": "expert-tensor-parallel-size",
    "context_parallel_size": "context-parallel-size",
    "sequence_parallel": "sequence-parallel",
}
_RENAMED: Final = {
    "num-layers-in-first-pipeline-stage": "decoder-first-pipeline-num-layers",
    "num-layers-in-last-pipeline-stage": "decoder-last-pipeline-num-layers",
}
_ENGINES: Final = {"vllm": "vllm-v1", "sglang": "sglang"}
_SHARE: Final = 4
"""The longest answer over the mean one, where nobody says (OURS)."""
_PADS: Final = ("bias_", "apply_rope", "masked_", "gradient_accumulation", "moe_permute", "persist")
"""Switches of kernels, whose absence Megatron-LM's arguments say."""


def read(source: Source) -> Launch:
    """The launch of a YAML or a script. Raises `UsageError` with everything that is wrong."""
    keys, remarks = _keys(source)
    model = source.model or model_named_at(keys, "actor_rollout_ref.model.path")
    if model is None:
        raise UsageError(keys.problems)
    nodes, gpus = _placed(keys, source)
    launch = _trainer(keys, source, model, (nodes or 1) * (gpus or 8))
    engine = _section(keys, source)
    tally = keys.finish()
    finished(keys)
    told = (*remarks, *launch.remarks, *keys.warnings)
    counted = replace(tally, read=tally.read + launch.tally.read - len(_DEGREES))
    return replace(
        launch,
        nodes=nodes,
        gpus_per_node=gpus,
        remarks=tuple(dict.fromkeys(told)),
        rl=engine,
        tally=counted,
    )


def _keys(source: Source) -> tuple[Keys, tuple[str, ...]]:
    if source.language != "shell":
        return TABLE.keys_of(yaml_tree(source), overrides(source.more)), ()
    words = words_of(source, r"verl\.|recipe\.")
    said = [text for text in words.texts if "=" in text and "." in text.partition("=")[0]]
    if not said:
        message = f"`{source.file}` sets no keys of verl"
        raise UsageError([Problem("TW041", "", message, "such as `trainer.nnodes=2`")])
    places = dict(words.words)
    found = {
        key: Child(places[text], child.node)
        for text in said
        for key, child in overrides([shlex.quote(text)]).items()
    }
    top = next(iter(places.values()))
    return TABLE.keys_of(Branch({}, top), {**found, **overrides(source.more)}), words.remarks


def _placed(keys: Keys, source: Source) -> tuple[int | None, int | None]:
    slurm = asked(source.text)
    nodes, gpus = keys.get("trainer.nnodes", 1), keys.get("trainer.n_gpus_per_node", 8)
    rolls = keys.get("rollout.nnodes", 0) or keys.get(f"{_ROLLOUT}.nnodes", 0)

    def number(value: Any) -> int | None:
        return value if isinstance(value, int) else None

    own = number(nodes)
    return (own + (number(rolls) or 0) if own else slurm.nodes), number(gpus)


def _lengths(keys: Keys) -> tuple[int, int]:
    """Tokens of the longest prompt and of the longest answer."""
    prompt = keys.count("data.max_prompt_length", 512)
    return prompt, keys.count("data.max_response_length", 512)


def _trainer(keys: Keys, source: Source, model: ModelSpec, gpus: int) -> Launch:
    """How the actor is trained: by Megatron-Core or by FSDP."""
    prompt, answer = _lengths(keys)
    packed = keys.flag(f"{_ACTOR}.use_dynamic_bsz")
    most = keys.count(f"{_ACTOR}.ppo_max_token_len_per_gpu", 16_384)
    megatron = any(key.startswith(f"{_MEGATRON}.") for key in keys.tree.children)
    kind = str(keys.get(f"{_ACTOR}.strategy", "megatron" if megatron else "fsdp"))
    context = keys.count(f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size", 1)
    if kind == "megatron":
        context = keys.count(f"{_MEGATRON}.context_parallel_size", 1)
    tensor = keys.count(f"{_MEGATRON}.tensor_model_parallel_size", 1) if megatron else 1
    tokens = max(prompt + answer, most * context if packed else 0)
    part = 2 * context * tensor
    sequence = -(-tokens // part) * part
    whole = {"seq-length": sequence, "global-batch-size": 48 * gpus}
    if kind == "megatron":
        said = (*_arguments(keys), *_plain(whole))
        launch = launch_of(said, source, model)
        keys.taken.add("actor_rollout_ref.model.enable_gradient_checkpointing")
        return replace(launch, name=_name(keys, source))
    return _sharded(keys, source, model, context, whole)


def _plain(values: Mapping[str, int]) -> Iterator[Argument]:
    fixed = {"micro-batch-size": 1, "train-iters": 1000, "bf16": True}
    fixed |= {"use-distributed-optimizer": True, "overlap-grad-reduce": True}
    for name, value in {**fixed, **values}.items():
        if one := argument(name, value):
            yield one


def _arguments(keys: Keys) -> Iterator[Argument]:
    """Degrees, and what goes over the model's and the optimizer's settings."""
    for name, option in _DEGREES.items():
        if one := argument(option, keys.get(f"{_MEGATRON}.{name}")):
            yield one
    if keys.count(f"{_MEGATRON}.tensor_model_parallel_size", 1) > 1:
        yield Argument("sequence-parallel")
    for key in list(keys.tree.children):
        for prefix in (_OVERRIDES, _OPTIMIZER):
            name = key.removeprefix(prefix)
            if name == key or name.startswith(_PADS):
                continue
            option = name.replace("_", "-")
            if one := argument(_RENAMED.get(option, option), keys.get(key)):
                yield one
    keys.taken |= {key for key in keys.tree.children if key.startswith((_OVERRIDES, _OPTIMIZER))}


def _sharded(
    keys: Keys, source: Source, model: ModelSpec, context: int, whole: Mapping[str, int]
) -> Launch:
    """By FSDP: parameters over all ranks, eager modules."""
    again = keys.flag("actor_rollout_ref.model.enable_gradient_checkpointing", default=True)
    gathers = keys.flag(f"{_ACTOR}.fsdp_config.reshard_after_forward", default=True)
    offloads = keys.flag(f"{_ACTOR}.fsdp_config.offload_policy")
    for name in ("param_offload", "optimizer_offload"):
        keys.flag(f"{_ACTOR}.fsdp_config.{name}")
    parallel: dict[str, Any] = {
        "context": context,
        "context_heads": context,
        "zero": 3,
        "reshard_after_forward": gathers,
        "schedule": {"kind": "1f1b"},
    }
    if model.moe is not None:
        parallel["dispatcher"] = "loop"
    memory: dict[str, Any] = {"recompute": ("full",) if again else (), "fully_shard": True}
    if offloads:
        memory |= {"offload": ("optimizer",), "optimizer_update": "host"}
    sequence, batch = whole["seq-length"], whole["global-batch-size"]
    train = {
        "tokens": f"{1000 * batch * sequence}tok",
        "sequence": f"{sequence}tok",
        "global_batch": f"{batch}seq",
        "optimizer": {"kind": "adamw"},
    }
    fields = {"parallel": parallel, "memory": memory, "train": train}
    name = _name(keys, source)
    return Launch(name, model, **sections_of(fields), software="fsdp2")


def _name(keys: Keys, source: Source) -> str:
    name = keys.get("trainer.experiment_name")
    return str(name) if name and "$" not in str(name) else source.name


def _section(keys: Keys, source: Source) -> dict[str, Any]:
    """The section `rl`."""
    recipe = cast("dict[str, Any]", read_data(shipped_folder() / "published/recipes/verl.yaml"))
    prompt, longest = _lengths(keys)
    batch, many = keys.count("data.train_batch_size", 1024), keys.count(f"{_ROLLOUT}.n", 1)
    mini = keys.count(f"{_ACTOR}.ppo_mini_batch_size", 256)
    tensor = keys.count(f"{_ROLLOUT}.tensor_model_parallel_size", 2)
    name = str(keys.get(f"{_ROLLOUT}.name", "vllm"))
    if name not in _ENGINES:
        keys.warnings.append(f"Engines of `{name}` are counted as vLLM's.")
    reference = keys.flag(f"{_ACTOR}.use_kl_loss") or keys.flag("algorithm.use_kl_in_reward")
    balanced = keys.flag("trainer.balance_batch", default=True)
    keys.get(f"{_ROLLOUT}.data_parallel_size")
    engine = {
        "gpus": tensor,
        "tensor": tensor,
        "precision": "bf16",
        "experts": "cut",
        "eager": keys.flag(f"{_ROLLOUT}.enforce_eager"),
        "memory": keys.number(f"{_ROLLOUT}.gpu_memory_utilization", 0.5),
        "software": _ENGINES.get(name, "vllm-v1"),
        "two_batches": False,
        "batch": keys.count(f"{_ROLLOUT}.max_num_seqs", 256 if name == "vllm" else 1024),
        "chunk": f"{keys.count(f'{_ROLLOUT}.max_num_batched_tokens', 8192)}tok",
    }
    keys.warnings += [f"Assumed: {one}." for one in recipe["assumed"][2:4]]
    rollout = {
        "engine": engine,
        "requests": batch * many,
        "prompt": {"kind": "constant", "each": float(min(recipe["prompt"], prompt))},
        "written": _written(keys, source, recipe, longest),
    }
    iteration: dict[str, Any] = {
        "optimizer_steps": max(1, batch // mini),
        "scores": 1 + reference,
        "balance": "iteration" if balanced else "steps",
        "prepare": recipe["prepare"],
        "backup": recipe["backup"],
        "update": {
            "precision": "bf16",
            "replica": {"gpus": tensor},
            "free_memory": "8GiB",
            **recipe["update"],
        },
    }
    return {"rollout": rollout, "iteration": _mode(keys) | iteration}


def _mode(keys: Keys) -> dict[str, Any]:
    nodes = keys.get("rollout.nnodes") or keys.get(f"{_ROLLOUT}.nnodes")
    keys.get("rollout.n_gpus_per_node")
    if isinstance(nodes, int) and nodes > 0:
        return {"mode": "one_step_off", "rollout_nodes": nodes}
    return {"mode": "colocated"}


def _written(keys: Keys, source: Source, recipe: Mapping[str, Any], longest: int) -> dict[str, Any]:
    """How long answers are."""
    said = source.defined.get("MEAN_RESPONSE", "")
    mean = float(said) if said.replace(".", "", 1).isdigit() else longest / _SHARE
    if not said:
        keys.warnings.append(
            f"Nothing says how long answers are: {mean:,.0f} tokens on average are assumed, "
            f"with a spread of sigma {recipe['sigma']}; `--define MEAN_RESPONSE=...` says it."
        )
    return {
        "kind": "log_normal",
        "mean": mean,
        "sigma": recipe["sigma"],
        "longest": float(longest),
    }
