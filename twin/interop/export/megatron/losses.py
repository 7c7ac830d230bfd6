"""What of a scenario Megatron-LM's arguments do not say: found by reading them back, and comparing
field by field. So nothing is lost in silence, whatever fields a scenario gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

from twin.interop.importing.megatron import Argument, Launch, understood
from twin.scenario import Scenario
from twin.spec.cluster import ClusterSpec

SECTIONS = ("model", "parallel", "memory", "train")
"""Sections that the arguments can say."""
_SETS = ("memory.recompute", "memory.fp8_store", "memory.offload")
"""Lists whose order means nothing."""

REASONS: Mapping[str, str] = {
    "cluster": "the arguments know neither GPUs nor networks; torchrun says how many there are",
    "calibration": "how fast kernels run is the hardware's and the software's to show",
    "cost": "the arguments know no prices",
    "goodput": "the arguments know no failures",
    "phases": "the arguments are of one job; each phase is a job of its own",
    "start": "the arguments know no calendar",
    "data": "data sets are named where a job is launched",
    "rl": "the arguments are of a training job; rollouts are another program's",
    "expect": "what must hold of the run is judged by `twin check` and `twin run`",
    "model.attention.bias": "one switch is for the biases of all linear layers, experts among them",
    "model.attention.qkv_bias": "where all linear layers have biases, these have them anyway",
    "model.embedding_norm": "no norm follows the embedding",
    "model.ffn.bias": "one switch is for the biases of all linear layers",
    "model.left_out": "the arguments say what there is",
    "model.moe": "a gate, a bias or weights of experts that its router does not have",
    "model.moe.bias": "one switch is for the biases of all linear layers, experts among them",
    "model.moe.every": "the same layers have experts, told in other words",
    "model.moe.first_dense_layers": "the same layers have experts, told in other words",
    "model.moe.groups": "one group is no groups",
    "model.moe.normalize_weights": "sigmoids of the chosen experts are always divided by their sum",
    "model.moe.shared_experts": "the width of all shared experts together is said, not how many",
    "model.moe.shared_width": "the width of all shared experts together is said, not how many",
    "model.name": "the arguments name no model",
    "model.rope": "learned positions do not rotate; the base is a whole number",
    "model.rope.yarn": "only latent attention takes YaRN from arguments",
    "model.rope.yarn.beta_fast": "no argument sets YaRN's betas: they are 32 and 1",
    "model.rope.yarn.beta_slow": "no argument sets YaRN's betas: they are 32 and 1",
    "model.rope.yarn.original_context": "no argument sets YaRN's original context: it is 4096tok",
    "model.rotary": "learned positions do not rotate, whatever this says",
    "memory.fp8_store": "no argument keeps these in FP8 until the backward pass",
    "memory.fully_shard": "parameters are sharded by --use-torch-fsdp2 only",
    "memory.offload": "optimizer states go to the host whole or not at all",
    "memory.optimizer_update": "no optimizer states are on the host",
    "memory.recompute": "what has no module of its own is kept; `full` holds all others",
    "parallel.collectives": "NCCL chooses; NCCL_ALGO in the environment says otherwise",
    "parallel.dispatcher": "there are no experts",
    "parallel.expert": "there are no experts",
    "parallel.expert_tensor": "there are no experts",
    "parallel.layers": "the split that the twin found by time is written out",
    "parallel.order": "ranks go by tensor, context, expert, data, pipeline, or with data last",
    "parallel.overlap_param_gather": "there is nothing to gather, or no argument for it",
    "parallel.overlap_shared_experts": "--moe-shared-expert-overlap is refused beside "
    "--overlap-moe-expert-parallel-comm, and has no effect without shared experts",
    "parallel.overlap_tensor": "gradients of inputs are always summed beside those of weights",
    "parallel.reshard_after_forward": "only --use-torch-fsdp2 can keep gathered parameters",
    "parallel.schedule": "Megatron-LM has 1F1B and interleaved 1F1B, and no other schedule",
    "parallel.schedule.defer_weight_grad": "--delay-wgrad-compute needs "
    "--overlap-moe-expert-parallel-comm",
    "parallel.schedule.extra_warmup": "one more forward comes with "
    "--overlap-moe-expert-parallel-comm only",
    "parallel.sequence_copies": "sequences come before batches, and nothing is copied",
    "parallel.virtual": "chunks of one stage are one",
    "parallel.zero": "parameters are sharded by --use-torch-fsdp2 whole",
    "train.cross_entropy": "the loss is fused",
    "train.expert_weights": "routing weights multiply inside of experts",
    "train.fp8_scaling": "nothing is in FP8",
    "train.lora": "adapters are Megatron-Bridge's, not Megatron-LM's",
    "train.optimizer.newton_schulz": "under its distributed optimizer one rank owns each matrix, "
    "and orthogonalises it alone; without, all do",
    "train.routing": "how tokens spread is the router's to learn",
    "train.tokens": "a run is whole sequences",
}
"""Why a field is not said, by its path or that of a section around it."""
_ANY = "the arguments say nothing of it"


@dataclass(frozen=True, slots=True)
class Loss:
    """A field that the arguments do not say: its value, what it is when they are read back (both as
    text), and why."""

    path: str
    value: str
    read_back: str
    reason: str

    def __str__(self) -> str:
        became = f"becomes {self.read_back}" if self.read_back else "is not said"
        return f"{self.path}: {self.value} {became}; {self.reason}."


def losses(scenario: Scenario, arguments: Sequence[Argument]) -> tuple[Loss, ...]:
    """Every field of a scenario that reading its arguments back would not give."""
    launch = understood(arguments, scenario.name)
    return (*_unsaid(scenario, launch), *_changed(scenario, launch))


def _unsaid(scenario: Scenario, launch: Launch) -> Iterator[Loss]:
    """Sections that no argument is about."""
    if launch.name != scenario.name:
        yield Loss("name", scenario.name, launch.name, _ANY)
    for key, spec in type(scenario).model_fields.items():
        value = getattr(scenario, key)
        if key in (*SECTIONS, "name", "schema_version") or value == spec.default:
            continue
        yield Loss(key, _called(value), "", _reason(key))


def _called(value: Any) -> str:
    """What people call a section."""
    if isinstance(value, ClusterSpec):
        return f"{value.nodes} nodes {value.node.name} on {value.fabric.name}"
    return str(getattr(value, "name", "it"))


def _changed(scenario: Scenario, launch: Launch) -> Iterator[Loss]:
    """Fields that are other than they were."""
    for key in SECTIONS:
        before, after = getattr(scenario, key), getattr(launch, key)
        written, read = before.model_dump(mode="json"), after.model_dump(mode="json")
        for path, old, new in differing(written, read, key):
            yield Loss(path, _shown(old), _shown(new), _reason(path))


def differing(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Where two sections differ: path, and both values. Choices of different kinds differ whole."""
    if isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
        if before.get("kind") == after.get("kind"):
            for key in before | after:
                yield from differing(before.get(key), after.get(key), f"{path}.{key}")
            return
    if path in _SETS and sorted(cast("list[str]", old)) == sorted(cast("list[str]", new)):
        return
    if old != new:
        yield path, old, new


def _reason(path: str) -> str:
    """The reason of the nearest section that has one."""
    while path:
        if path in REASONS:
            return REASONS[path]
        path = path.rpartition(".")[0]
    return _ANY


def _shown(value: Any) -> str:
    """A value as people write it; of a choice its kind."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return str(fields.get("kind") or "what it says")
    if isinstance(value, list):
        runs = [(one, len(list(same))) for one, same in groupby(cast("list[object]", value))]
        return f"[{', '.join(f'{one}' if n == 1 else f'{n} x {one}' for one, n in runs)}]"
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value) or "nothing"
