"""Megatron-Bridge's verification cards (examples/model_verification_cards/*/card.yaml): a recipe by
name and the step time that it had, of one or more GPUs.

Beside the recipes (in a checkout of Megatron-Bridge) the recipe's own Python is read, without
running it; else the layout is what the card says in words, and the rest is told as unsaid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Final, cast

from twin.errors import Problem, UsageError
from twin.interop.importing.bridge import read as read_recipe
from twin.interop.importing.bridge import yaml_tree
from twin.interop.importing.dialect import launch_of
from twin.interop.importing.launch import Launch, Measured, Source
from twin.interop.importing.megatron.launch_file import Argument, arguments_of
from twin.interop.importing.megatron.model import layout_of
from twin.interop.importing.named_models import model_called
from twin.interop.importing.python_recipe import RECIPE
from twin.interop.importing.torchtitan import layers_of_chunks
from twin.loading import load_part
from twin.loading.files import display, read_text
from twin.loading.tree import find, plain

_ITEM: Final = "pretrain_performance"
_TOLD: Final = ("precision", "command", "expected_result")
_STEP: Final = "last_10_steps_step_time_ms_avg"
_RATE: Final = "last_10_steps_model_tflops_per_gpu_avg"
_RECIPES: Final = "src/megatron/bridge/perf_recipes"
_DEGREES: Final = {
    "TP": "tensor-model-parallel-size",
    "PP": "pipeline-model-parallel-size",
    "VP": "num-virtual-stages-per-pipeline-rank",
    "VPP": "num-virtual-stages-per-pipeline-rank",
    "CP": "context-parallel-size",
    "EP": "expert-model-parallel-size",
    "ETP": "expert-tensor-parallel-size",
    "GBS": "global-batch-size",
    "MBS": "micro-batch-size",
}
"""Of the layout in words, such as `TP2/PP8/VP4/CP1/EP64/ETP1 and GBS/MBS 16384/1`."""
_DEGREE: Final = re.compile(r"\b(TP|PP|VPP|VP|CP|EP|ETP|MBS|GBS)=?(\d{1,7})\b")
_BATCH: Final = re.compile(r"GBS/MBS (\d{1,7})/(\d{1,7})\b")
_PRECISIONS: Final = {
    "bf16": "",
    "fp8_mx": "--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather",
    "fp8_cs": "--fp8-format hybrid --fp8-recipe tensorwise --fp8-param-gather",
    "fp8_sc": "--fp8-format hybrid --fp8-recipe blockwise",
    "fp8_ds": "--fp8-format hybrid --fp8-recipe delayed --fp8-param-gather",
    "nvfp4": "--fp4-format e2m1 --fp4-param-gather",
}
_NODES: Final = {
    "H100": "h100-8gpu",
    "H200": "h200-8gpu",
    "B200": "b200-8gpu",
    "B300": "b300-8gpu",
    "GB200": "gb200-nvl72",
    "GB300": "gb300-nvl72",
}
"""Their GPUs as nodes of the catalog."""
_USUAL: Final = (
    "--bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
    "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
    "--grad-reduce-in-bf16 --manual-gc --manual-gc-interval 100"
)
"""Of Megatron-Bridge's performance recipes (perf_recipes/_common.py)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a card measured on one GPU."""

    gpu: str
    precision: str
    command: str
    words: str
    measured: Measured


def entries(source: Source) -> tuple[Entry, ...]:
    """What a card measured: every GPU of its performance recipe that has a step time."""
    tree = yaml_tree(source)
    items = find(tree, ("items",))
    return tuple(_entries(_mapping(plain(items.node)))) if items else ()


def _mapping(value: Any) -> dict[str, Any]:
    """A value that should be a mapping; empty where it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _entries(items: dict[str, Any]) -> Iterator[Entry]:
    for gpu, value in _mapping(items.get(_ITEM)).items():
        one = _mapping(value)
        metrics = _mapping(one.get("metrics"))
        step, rate = (_positive(metrics.get(key)) for key in (_STEP, _RATE))
        if step is not None:
            precision, command, words = (str(one.get(key) or "") for key in _TOLD)
            found = Measured(gpu, step / 1e3, rate, _NODES.get(gpu))
            yield Entry(gpu, precision, command, words, found)


def _positive(value: Any) -> float | None:
    """A number above 0; None for anything else."""
    return value if isinstance(value, int | float) and 0 < value < inf else None


def read(source: Source) -> Launch:
    """The launch of a card, of the GPU that `GPU` names or of the only one. Raises `UsageError`
    with everything that is wrong."""
    found = entries(source)
    wanted = source.defined.get("GPU")
    fitting = [one for one in found if wanted in (None, one.gpu)]
    if len(fitting) != 1:
        gpus = ", ".join(one.gpu for one in found)
        message = "the card measured several GPUs" if fitting else "the card measured no such run"
        raise UsageError([Problem("TW011", "--define", message, f"--define GPU=... of: {gpus}")])
    return launch_of_entry(fitting[0], source)


def launch_of_entry(entry: Entry, source: Source) -> Launch:
    """The launch of one entry."""
    words = _options(entry.command)
    recipe = words.get("recipe", "")
    file = _file_of(recipe, source.folder) if recipe else None
    name = f"{recipe or source.name}"
    if file is not None:
        own = replace(
            source,
            text=read_text(file),
            file=display(file),
            folder=file.parent,
            more=(*_keys(entry), *source.more),
        )
        launch = read_recipe(replace(own, defined={**source.defined, RECIPE: recipe}))
    else:
        launch = _in_words(entry, source)
    nodes, gpus = (_count(words, key) for key in ("nodes", "gpus-per-node"))
    if nodes and gpus and entry.measured.node:
        nodes, gpus = _domains(nodes * gpus, load_part("nodes", entry.measured.node).spec.gpus)
    return replace(launch, name=name, nodes=nodes, gpus_per_node=gpus, measured=entry.measured)


def _count(words: Mapping[str, str], key: str) -> int | None:
    """A count that a command names. Raises `UsageError` where it is no number."""
    text = words.get(key)
    if text is not None and not re.fullmatch(r"[0-9]{1,7}", text):
        message = f"`--{key} {text}` is no count"
        raise UsageError([Problem("TW014", "command", message, "write a whole number")])
    return None if text is None else int(text)


def _domains(gpus: int, most: int) -> tuple[int, int]:
    """NVLink domains of equal size, and their GPUs: as large as the node has them, so that they
    divide; a rack of 72 that runs 256 GPUs has 64 of them at work."""
    each = next(size for size in range(min(gpus, most), 0, -1) if gpus % size == 0)
    return gpus // each, each


def _options(command: str) -> dict[str, str]:
    """Options of a command."""
    found, _ = arguments_of((word, None) for word in command.split())
    return {one.name.replace("_", "-"): one.values[0] for one in found if one.values}


def _keys(entry: Entry) -> tuple[str, ...]:
    """Keys that the command sets over the recipe, and the options that mean some."""
    said = [word for word in entry.command.split() if re.match(r"[a-z_]+\.[\w.]+=", word)]
    length = _options(entry.command).get("seq-length")
    return (*said, *((f"model.seq_length={length}",) if length else ()))


def _file_of(recipe: str, folder: Path | None) -> Path | None:
    """The file of a recipe in the checkout around a folder."""
    for root in (folder, *folder.parents) if folder else ():
        recipes = root / _RECIPES
        if recipes.is_dir():
            files = sorted(recipes.rglob("*.py"))
            return next((one for one in files if f"def {recipe}(" in one.read_text()), None)
    return None


def _in_words(entry: Entry, source: Source) -> Launch:
    """The launch of the words in which a card tells the layout."""
    tree = yaml_tree(source)
    named = find(tree, ("model", "hf_id"))
    model = source.model or (model_called(str(plain(named.node))) if named else None)
    if model is None:
        name = plain(named.node) if named else "?"
        message = f"the catalog has no model of the name `{name}`"
        raise UsageError([Problem("TW011", "--architecture", message, "--architecture NAME")])
    if entry.precision not in _PRECISIONS:
        message = f"products in `{entry.precision}` cannot be expressed: bf16, FP8 and NVFP4 can"
        raise UsageError([Problem("TW042", "precision", message, "")])
    said = dict(_DEGREE.findall(entry.words))
    if batch := _BATCH.search(entry.words):
        said |= {"GBS": batch[1], "MBS": batch[2]}
    missing = [one for one in ("TP", "PP", "GBS", "MBS") if one not in said]
    if missing:
        message = f"the card does not say {', '.join(missing)} in words"
        fix = "import it where it lies in a checkout of Megatron-Bridge"
        raise UsageError([Problem("TW011", entry.gpu, message, fix)])
    length = _options(entry.command).get("seq-length", "4096")
    fixed = f"{_USUAL} {_PRECISIONS[entry.precision]} --train-iters 50 --seq-length {length}"
    usual, _ = arguments_of((word, None) for word in fixed.split())
    if said["TP"] != "1":
        usual.append(Argument("sequence-parallel"))
    split = _split(model.layers, said)
    own = [Argument(_DEGREES[key], (value,)) for key, value in said.items() if value != "0"]
    if split:
        own = [*(one for one in own if one.name != _DEGREES["VP"]), Argument(_LAYOUT, (split,))]
    more, _ = arguments_of((word, None) for one in source.more for word in one.split())
    told = (
        "What the card does not say is as in Megatron-Bridge's performance recipes: HybridEP, "
        "gradients in bf16, states sharded over data ranks; nothing is computed again, and no "
        "all-to-all runs beside passes. Layers that do not divide are cut as if embedding and head "
        "were one each."
    )
    return launch_of((*usual, *own, *more), source, model, (told,))


_LAYOUT: Final = "pipeline-model-parallel-layout"


def _split(layers: int, said: Mapping[str, str]) -> str | None:
    """How layers are cut where they do not divide: embedding and head count as one each."""
    chunks = (int(said["PP"]) or 1) * (int(said.get("VP") or said.get("VPP") or 1) or 1)
    if layers % chunks == 0 or chunks > layers:
        return None
    return layout_of(layers_of_chunks(layers, chunks, 1, 1))
