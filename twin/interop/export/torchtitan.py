"""A plan as torchtitan's TOML.

    twin export SCENARIO --format torchtitan -o run.toml

The table of the importer (`importing/torchtitan.yaml`) serves both ways; comments list the fields
that are other when the file is read back (`twin import`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twin.answers import Run
from twin.errors import printable
from twin.interop.export.base import Stamp
from twin.interop.export.megatron.arguments import layers_per_chunk
from twin.interop.importing.launch import Source
from twin.interop.importing.named_models import flavor_of
from twin.interop.importing.torchtitan import FLOAT8, SCHEDULES, TABLE, read
from twin.interop.losses import Loss, losses_of
from twin.loading.files import read_data
from twin.planning.types import Plan
from twin.scenario import Scenario

SUFFIX = ".toml"
PARTS = ("",)
_COMPILED = "torchtitan"
"""Software of the catalog whose blocks are compiled."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A plan as torchtitan sees it: its keys, and what they lose."""

    arguments: tuple[tuple[str, Any], ...]
    losses: tuple[Loss, ...]
    caveats: tuple[str, ...]


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """The TOML."""
    return {"": written(exported(run.plan), stamp, SUFFIX).encode()}


def exported(plan: Plan) -> Exported:
    """The keys of a plan."""
    scenario = plan.scenario
    said = tuple(_keys(plan).items())
    gpus = scenario.cluster.gpus
    back = read(Source(toml(said), "back.toml", model=scenario.model, gpus=gpus))
    known = ("software",) if back.software == _software(scenario) else ()
    reasons = read_data(Path(__file__).with_suffix(".yaml"))
    lost = losses_of(scenario, back, reasons, known)
    return Exported(said, lost, tuple(_caveats(scenario)))


def _software(scenario: Scenario) -> str:
    return scenario.software.name if scenario.software else ""


def _caveats(scenario: Scenario) -> Iterator[str]:
    if flavor_of(scenario.model) is None:
        yield f"torchtitan has no flavor of {printable(scenario.model.name)}; add its model there."


def _keys(plan: Plan) -> dict[str, Any]:
    """Keys by dotted path."""
    scenario = plan.scenario
    parallel, train, memory = scenario.parallel, scenario.train, scenario.memory
    name, _, flavor = (flavor_of(scenario.model) or "").partition("/")
    named = {"model.name": name, "model.flavor": flavor} if name else {}
    float8 = train.precision == "fp8" and train.fp8_scaling in FLOAT8.values()
    mx = train.precision == "fp8" and not float8
    converters = ["quantize.linear.float8"] * float8 + ["quantize.linear.mx"] * mx
    recipe = next((one for one, own in FLOAT8.items() if own == train.fp8_scaling), None)
    on_host = "optimizer" in memory.offload and memory.optimizer_update == "host"
    moe = scenario.model.moe is not None
    own = {key: value for key, value in TABLE.write(scenario).items() if moe or "expert" not in key}
    return {
        "job.description": scenario.name,
        **named,
        "model.converters": converters,
        "optimizer.name": "AdamW" if train.optimizer.kind == "adamw" else "Muon",
        "training.enable_cpu_offload": on_host,
        **own,
        **_batch(plan),
        **_ranks(plan),
        **_stages(plan),
        "parallelism.enable_async_tensor_parallel": parallel.overlap_tensor == "pieces",
        **_checkpointing(memory.recompute),
        **_compiled(scenario),
        **({"quantize.linear.float8.recipe_name": recipe} if float8 else {}),
        **({_GATHERS: train.fp8_param_gather} if float8 else {}),
    }


_GATHERS = "quantize.linear.float8.enable_fsdp_float8_all_gather"


def _batch(plan: Plan) -> dict[str, Any]:
    scenario = plan.scenario
    batch, micro = scenario.train.global_batch_sequences, scenario.parallel.micro_batch
    local = micro if scenario.parallel.pipeline == 1 else max(1, batch // _data(scenario))
    return {
        "training.local_batch_size": local,
        "training.global_batch_size": batch,
        "training.steps": max(1, round(scenario.train.tokens / scenario.train.global_batch)),
    }


def _data(scenario: Scenario) -> int:
    parallel = scenario.parallel
    return scenario.cluster.gpus // (parallel.tensor * parallel.context * parallel.pipeline)


def _ranks(plan: Plan) -> dict[str, Any]:
    """Replicas and shards of data ranks."""
    scenario = plan.scenario
    data, whole = _data(scenario), scenario.parallel.zero == 0
    copies = data if whole else scenario.parallel.shard_copies
    found: dict[str, Any] = {
        "parallelism.data_parallel_replicate_degree": copies,
        "parallelism.data_parallel_shard_degree": max(1, data // copies),
    }
    keeps = not scenario.parallel.reshard_after_forward
    found["parallelism.fsdp_reshard_after_forward"] = "never" if keeps else "always"
    return found


def _stages(plan: Plan) -> dict[str, Any]:
    """Schedule, and which modules each part of the model has."""
    parallel = plan.scenario.parallel
    if parallel.pipeline == 1:
        return {}
    names = {own: theirs for theirs, own in SCHEDULES.items()}
    parts: list[list[str]] = []
    first = 0
    for count in layers_per_chunk(plan):
        parts.append([f"layers.{layer}" for layer in range(first, first + count)])
        first += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    kind = parallel.schedule.kind
    usual = "Interleaved1F1B" if parallel.virtual > 1 else "1F1B"
    return {
        "parallelism.pipeline_parallel_schedule": names.get(kind, usual),
        "parallelism.pipeline_parallel_microbatch_size": parallel.micro_batch,
        "parallelism.module_fqns_per_model_part": parts,
    }


def _checkpointing(recompute: tuple[str, ...]) -> dict[str, Any]:
    if "full" in recompute:
        return {"activation_checkpoint.mode": "full"}
    mode = "selective" if "alternate_products" in recompute else "none"
    return {"activation_checkpoint.mode": mode, "activation_checkpoint.selective_ac_option": "op"}


def _compiled(scenario: Scenario) -> dict[str, Any]:
    model = _software(scenario) == _COMPILED
    loss = scenario.train.cross_entropy == "compiled"
    parts = ["model"] * model + ["loss"] * loss
    return {"compile.enable": bool(parts), "compile.components": parts}


def written(found: Exported, stamp: Stamp, suffix: str) -> str:  # noqa: ARG001  one form only
    """The text of the file."""
    lines = [f"# {printable(stamp.scenario)}, for torchtitan"]
    lines += [f"# {name}: {printable(text)}" for name, text in asdict(stamp).items()]
    lines += ["#", "# Yours to add: data, tokenizer, learning rate, checkpoints, logs."]
    for title, told in (("Not said by this file", found.losses), ("Beside it", found.caveats)):
        if told:
            lines += ["#", f"# {title}:", *(f"# - {printable(str(one))}" for one in told)]
    return "\n".join(lines) + "\n\n" + toml(found.arguments)


def toml(keys: tuple[tuple[str, Any], ...]) -> str:
    """Keys by dotted path as TOML, a section for each path around them."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in keys:
        section, _, name = key.rpartition(".")
        sections.setdefault(section, {})[name] = value
    parts = ("\n".join([f"[{section}]", *_lines(own)]) for section, own in sections.items())
    return "\n\n".join(parts) + "\n"


def _lines(own: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{name} = {json.dumps(value)}" for name, value in own.items())
