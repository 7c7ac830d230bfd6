"""DeepSpeed's JSON, and the command that is launched with it, to a launch.

The JSON says how states are sharded and in which numbers; model, sequence, and what a trainer
fills in for `auto`, are arguments of the script (`--with '--max_seq_length 4096'` beside a JSON
alone). Defaults are those of deepspeed/runtime/config.py and runtime/zero/config.py (0.18, 2026).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from twin.interop.importing.keys import Keys, keys_of
from twin.interop.importing.launch import Launch, Source, sections_of
from twin.interop.importing.named_models import model_named_at
from twin.interop.importing.scripts import Words, asked, words_of
from twin.interop.tables import Fields, ask, finished, flat, overrides, table_of
from twin.loading.files import display, read_text
from twin.loading.tree import Branch, Child
from twin.spec.model import ModelSpec

TABLE: Final = table_of(Path(__file__).with_name("deepspeed.yaml"))
_SOFTWARE: Final = {3: "deepspeed-zero3"}
"""Its stack where parameters are sharded; of other stages `deepspeed`."""
_ARGUMENTS: Final = "arguments"
_STEPS: Final = 1000
"""Of a run that nothing gives a length: the rate of a step does not depend on it (OURS)."""
_BUCKET: Final = 500_000_000
"""`reduce_bucket_size` by default."""
_TRUE: Final = frozenset({"true", "True", "1", "yes"})


def read(source: Source) -> Launch:
    """The launch of a JSON, or of a script that names one beside it. Raises `UsageError` with
    everything that is wrong."""
    words = words_of(source, r"--deepspeed|deepspeed") if source.language == "shell" else None
    text, name = _json_of(source, words) if words else (source.text, source.file)
    tree = keys_of(text, name).tree
    given = {f"{_ARGUMENTS}.{key}": child for key, child in _arguments(words, source.more).items()}
    own = {key: child for key, child in flat(tree) if _said(child)}
    keys = TABLE.keys_of(Branch(own, tree.origin), given)
    model = source.model or model_named_at(keys, "arguments.model_name_or_path")
    fields = TABLE.read(keys)
    if "sequence" not in fields.get("train", {}):
        ask(keys, "arguments.max_seq_length", _NO_SEQUENCE, "--with '--max_seq_length NUMBER'")
        fields.setdefault("train", {})["sequence"] = "1tok"
    nodes, gpus = _placed(source, words)
    world = source.gpus or (nodes * gpus if nodes and gpus else None)
    fields |= {"parallel": _sharding(keys), "memory": _memory(keys)}
    _batch(keys, fields, world)
    _numbers(keys, fields, model)
    tally = keys.finish()
    finished(keys)
    assert model is not None
    return Launch(
        name=source.name,
        model=model,
        **sections_of(fields),
        nodes=nodes,
        gpus_per_node=gpus,
        remarks=(*(words.remarks if words else ()), *keys.warnings),
        software=_SOFTWARE.get(fields["parallel"]["zero"], "deepspeed"),
        tally=tally,
    )


_NO_SEQUENCE: Final = "the file does not say how long sequences are"


def _json_of(source: Source, words: Words) -> tuple[str, str]:
    """The JSON that a command names, beside the script."""
    path = source.beside(words.option("deepspeed", "deepspeed-config"), ".json")
    return read_text(path), display(path)


def _arguments(words: Words | None, more: Iterable[str]) -> dict[str, Child]:
    """Arguments of the script, by name; those of `more` win."""
    found: dict[str, Child] = {}
    own = [text for text, _ in words.words] if words else []
    start = next((place for place, one in enumerate(own) if one.endswith(".py")), -1)
    found |= overrides(tuple(_quoted(own[start + 1 :])))
    found |= overrides(tuple(more))
    return {key.lower(): child for key, child in found.items()}


def _quoted(words: Iterable[str]) -> Iterable[str]:
    return map(shlex.quote, words)


def _said(child: Child) -> bool:
    """Whether a value is one: `auto` is the trainer's."""
    return getattr(child.node, "value", None) != "auto"


def _placed(source: Source, words: Words | None) -> tuple[int | None, int | None]:
    """Nodes and GPUs of each, as scheduler or launcher say."""
    slurm = asked(source.text)
    if words is None:
        return None, None

    def number(*names: str) -> int | None:
        said = words.option(*names)
        return int(said) if said and said.isdecimal() else None

    nodes = number("nnodes", "num-nodes", "num-machines") or slurm.nodes
    gpus = number("num-gpus", "nproc-per-node") or slurm.gpus_per_node
    return nodes or (1 if gpus else None), gpus


def _sharding(keys: Keys) -> dict[str, Any]:
    stage = keys.count("zero_optimization.stage", 0, least=0)
    keys.taken.add("pipeline.stages")
    beside = keys.flag("zero_optimization.overlap_comm", default=stage == 3)
    bucket = keys.get("zero_optimization.reduce_bucket_size", _BUCKET)
    tensor = keys.count("tensor_parallel.autotp_size", 1, least=0) or 1
    context = keys.count("arguments.sequence_parallel_size", 1)
    found: dict[str, Any] = {"schedule": {"kind": "1f1b"}, "zero": min(stage, 3)}
    found |= {"tensor": tensor, "context": context, "overlap_grad_reduce": beside}
    found["context_heads"] = context
    if stage < 3:
        found["bucket_size"] = max(1, round(float(bucket)))
    return found


def _memory(keys: Keys) -> dict[str, Any]:
    again = str(keys.get("arguments.gradient_checkpointing", "")) in _TRUE
    device = str(keys.get("zero_optimization.offload_optimizer.device", "none"))
    host = device in ("cpu", "nvme") or keys.flag("zero_optimization.cpu_offload")
    if device == "nvme":
        keys.warnings.append("States of the optimizer are on drives; here they are in host memory.")
    found: dict[str, Any] = {"recompute": ("full",) if again else ()}
    return found | ({"offload": ("optimizer",), "optimizer_update": "host"} if host else {})


def _batch(keys: Keys, fields: Fields, world: int | None) -> None:
    """Sequences of a pass and of a step; two of batch, passes and ranks give the third."""
    parallel, train = fields["parallel"], fields["train"]
    micro = _count(keys, "train_micro_batch_size_per_gpu", "arguments.per_device_train_batch_size")
    passes = _count(keys, "gradient_accumulation_steps", "arguments.gradient_accumulation_steps")
    batch = _count(keys, "train_batch_size", "arguments.train_batch_size")
    data = world // (parallel["tensor"] * parallel["context"]) if world else None
    if batch and data and not micro:
        micro = max(1, batch // (data * (passes or 1)))
    if not micro:
        option = "--with '--per_device_train_batch_size NUMBER'"
        ask(keys, "train_micro_batch_size_per_gpu", "nothing says the sequences of a pass", option)
        micro = 1
    if not batch and data is None:
        message = "the batch depends on the number of GPUs, which nobody says"
        ask(keys, "train_batch_size", message, "--nodes NUMBER")
    whole = batch or micro * (passes or 1) * (data or 1)
    if passes and data and whole != micro * passes * data:
        product = f"{micro} sequences x {passes} passes x {data} ranks"
        keys.refuse("train_batch_size", f"the batch of {whole} is not {product}")
    parallel["micro_batch"] = micro
    steps = _count(keys, "arguments.max_steps")
    if not steps:
        keys.warnings.append(f"Nothing says how long the run is: {_STEPS:,} steps are assumed.")
    sequence = int(train["sequence"].removesuffix("tok"))
    train["global_batch"] = f"{whole}seq"
    train["tokens"] = f"{(steps or _STEPS) * whole * sequence}tok"


def _count(keys: Keys, *names: str) -> int | None:
    """The first of these numbers that is written and above nothing."""
    for name in names:
        value = keys.get(name)
        if isinstance(value, int) and value > 0:
            keys.taken.update(names)
            return value
    return None


def _numbers(keys: Keys, fields: Fields, model: ModelSpec | None) -> None:
    train = fields["train"]
    if keys.flag("fp16.enabled"):
        keys.warnings.append("fp16 is counted as bf16: as many bytes, and as fast.")
    elif not (keys.flag("bf16.enabled") or str(keys.get("arguments.bf16")) in _TRUE):
        keys.warnings.append("Neither bf16 nor fp16: products are counted in bf16 all the same.")
    exact = str(keys.get("data_types.grad_accum_dtype", "")) in ("fp32", "float32")
    train["gradients"] = "fp32" if exact else "bf16"
    kind = str(keys.get("optimizer.type", "AdamW"))
    train["optimizer"] = {"kind": "muon" if kind == "Muon" else "adamw"}
    if kind not in ("Adam", "AdamW", "Muon", "FusedAdam", "DeepSpeedCPUAdam"):
        keys.warnings.append(f"The optimizer `{kind}` is counted as AdamW.")
    eager = str(keys.get("arguments.attn_implementation", "")) == "eager"
    train["attention_kernel"] = "unfused" if eager else "flash"
    train["cross_entropy"] = "eager"
    if model is not None and model.moe is not None:
        fields["parallel"]["dispatcher"] = "loop"
