"""A plan's model, layout, memory policy and training as Megatron-LM's arguments.

Names are those of NVIDIA/Megatron-LM: megatron/training/arguments.py at 000c4ac2 (late 2025), and
what later versions make options of the fields of `TransformerConfig`
(megatron/core/transformer/transformer_config.py at 002526d8, 2026): `--qk-clip`,
`--fine-grained-activation-offloading`, `--moe-flex-dispatcher-backend`. What has no argument is
left out here; `twin.interop.export.megatron.losses` finds that by reading the arguments back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from twin.interop.export.megatron.model_arguments import model_arguments
from twin.interop.importing.megatron import Argument
from twin.interop.importing.megatron.patterns import layout_of
from twin.interop.importing.megatron.run import PIPELINE_BEFORE_DATA, RECOMPUTED, SCALING, SHARDING
from twin.optimizers.adamw import AdamW
from twin.planning.types import Plan
from twin.scenario import Scenario
from twin.schedules.interleaved import Interleaved
from twin.spec.model import LatentAttention

_OFFLOADED = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm")
_OF_EXPERTS = ("expert_fc1", "moe_act")
"""Modules of `--offload-modules` that every model has, and those of experts."""


@dataclass(slots=True)
class Group:
    """Arguments under one heading."""

    arguments: list[Argument] = field(default_factory=list[Argument])

    def say(self, name: str, *values: object) -> None:
        """Add an option with its values."""
        self.arguments.append(Argument(name, tuple(str(value) for value in values)))

    def switch(self, name: str, on: bool) -> None:
        """Add a switch that is on."""
        if on:
            self.say(name)


def grouped(plan: Plan) -> Mapping[str, tuple[Argument, ...]]:
    """The arguments by heading, in the order in which people write them."""
    scenario = plan.scenario
    return {
        "Model": model_arguments(scenario.model, scenario.train.sequence),
        "Layout": tuple(_layout(plan).arguments),
        "Experts on ranks": tuple(_experts(scenario).arguments),
        "Memory": tuple(_memory(scenario).arguments),
        "Training": tuple(_training(scenario).arguments),
        "Numbers and kernels": tuple(_numbers(scenario).arguments),
    }


def _layout(plan: Plan) -> Group:
    group, scenario = Group(), plan.scenario
    parallel = scenario.parallel
    group.say("tensor-model-parallel-size", parallel.tensor)
    group.say("pipeline-model-parallel-size", parallel.pipeline)
    if parallel.context > 1:
        group.say("context-parallel-size", parallel.context)
    _split(group, layers_per_chunk(plan), parallel.pipeline, scenario.model.mtp_layers)
    group.switch("sequence-parallel", parallel.sequence_parallel)
    group.switch("tp-comm-overlap", parallel.overlap_tensor == "pieces")
    group.switch("use-tp-pp-dp-mapping", parallel.order == PIPELINE_BEFORE_DATA)
    _sharding(group, scenario)
    schedule = parallel.schedule
    if _pairs(scenario):
        group.say("overlap-moe-expert-parallel-comm")
        late = isinstance(schedule, Interleaved) and schedule.defer_weight_grad
        group.switch("delay-wgrad-compute", late)
    return group


def _pairs(scenario: Scenario) -> bool:
    """Whether forwards are paired with backwards in a way that an argument asks for."""
    schedule = scenario.parallel.schedule
    return isinstance(schedule, Interleaved) and schedule.overlap_all_to_all


def layers_per_chunk(plan: Plan) -> tuple[int, ...]:
    """Transformer layers of each part of the model, as the plan cuts it; parts that a schedule
    holds twice are told once."""
    parallel = plan.scenario.parallel
    parts = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).part_of
    first = {parts[chunk.index]: chunk.first_layer for chunk in plan.chunks}
    starts = [*(first[part] for part in sorted(first)), plan.scenario.model.layers]
    return tuple(after - before for before, after in pairwise(starts))


def _split(group: Group, layers: Sequence[int], stages: int, modules: int) -> None:
    """How layers are cut: by the shortest arguments that say it."""
    virtual, middle = len(layers) // stages, layers[1:-1]
    even = len(set(layers)) == 1
    if len(layers) == 1 or (even and virtual == 1):
        return
    if even:
        group.say("num-layers-per-virtual-pipeline-stage", layers[0])
    elif virtual == 1 and len(set(middle)) == 1 and min(layers) > 0:
        if layers[0] != middle[0]:
            group.say("decoder-first-pipeline-num-layers", layers[0])
        if layers[-1] != middle[0]:
            group.say("decoder-last-pipeline-num-layers", layers[-1])
    else:
        group.say("pipeline-model-parallel-layout", layout_of(layers, modules))


def _sharding(group: Group, scenario: Scenario) -> None:
    parallel = scenario.parallel
    if scenario.memory.fully_shard:
        group.say("use-torch-fsdp2")
        group.switch("torch-fsdp2-no-reshard-after-forward", not parallel.reshard_after_forward)
    elif parallel.zero > 1:
        strategy = next(name for name, zero in SHARDING.items() if zero == parallel.zero)
        group.say("use-megatron-fsdp")
        group.say("data-parallel-sharding-strategy", strategy)
        group.say("ckpt-format", "fsdp_dtensor")
    elif parallel.zero == 1:
        group.say("use-distributed-optimizer")
    if parallel.overlap_param_gather and parallel.zero in (1, 2):
        # Megatron-LM takes the one only with the other.
        group.say("overlap-grad-reduce")
        group.say("overlap-param-gather")


def _experts(scenario: Scenario) -> Group:
    group, parallel, moe = Group(), scenario.parallel, scenario.model.moe
    if moe is None:
        return group
    group.say("expert-model-parallel-size", parallel.expert)
    group.say("expert-tensor-parallel-size", parallel.expert_tensor)
    if parallel.dispatcher == "deepep":
        group.say("moe-token-dispatcher-type", "flex")
        group.say("moe-flex-dispatcher-backend", "deepep")
    else:
        group.say("moe-token-dispatcher-type", "alltoall")
    # Megatron-LM refuses this beside --overlap-moe-expert-parallel-comm.
    beside = bool(moe.shared_experts) and parallel.overlap_shared_experts
    group.switch("moe-shared-expert-overlap", beside and not _pairs(scenario))
    group.say("moe-grouped-gemm")
    group.say("moe-router-dtype", "fp32")
    return group


def _memory(scenario: Scenario) -> Group:
    group, memory, model = Group(), scenario.memory, scenario.model
    if "full" in memory.recompute:
        group.say("recompute-granularity", "full")
        group.say("recompute-method", "uniform")
        group.say("recompute-num-layers", 1)
    else:
        absent = {
            "moe_act": model.moe is None,
            "mla_up_proj": not isinstance(model.attention, LatentAttention),
        }
        named = [
            module
            for module, policy in RECOMPUTED.items()
            if policy in memory.recompute and not absent.get(module)
        ]
        if named:
            group.say("recompute-granularity", "selective")
            group.say("recompute-modules", *named)
    if "activations" in memory.offload:
        group.say("fine-grained-activation-offloading")
        group.say("offload-modules", *_OFFLOADED, *(_OF_EXPERTS if model.moe else ()))
    if len(memory.states_on_host) == 2:  # of dense weights, and of experts
        on_host = memory.optimizer_update == "host"
        group.say("optimizer-cpu-offload" if on_host else "offload-optimizer-states")
    return group


def _training(scenario: Scenario) -> Group:
    group, train = Group(), scenario.train
    group.say("seq-length", train.sequence)
    group.say("micro-batch-size", scenario.parallel.micro_batch)
    group.say("global-batch-size", train.global_batch_sequences)
    group.say("train-samples", max(1, round(train.tokens / train.sequence)))
    optimizer = train.optimizer
    group.say("optimizer", "adam" if isinstance(optimizer, AdamW) else "muon")
    group.switch("qk-clip", optimizer.kind == "muonclip")
    short = isinstance(optimizer, AdamW) and optimizer.moments == "bf16"
    on_host = any(one.name == "optimizer-cpu-offload" for one in _memory(scenario).arguments)
    group.switch("use-precision-aware-optimizer", short or on_host)
    if short:
        group.say("exp-avg-dtype", "bf16")
        group.say("exp-avg-sq-dtype", "bf16")
    return group


def _numbers(scenario: Scenario) -> Group:
    group, train = Group(), scenario.train
    group.say("bf16")
    if train.precision == "fp8":
        recipe = next(name for name, scaling in SCALING.items() if scaling == train.fp8_scaling)
        # Transformer Engine's usual formats: E5M2 for gradients where a tensor has one scale.
        group.say("fp8-format", "hybrid" if recipe in ("delayed", "tensorwise") else "e4m3")
        group.say("fp8-recipe", recipe)
    short = train.gradients == "bf16"
    group.say("grad-reduce-in-bf16" if short else "accumulate-allreduce-grads-in-fp32")
    group.say("attention-backend", train.attention_kernel)
    group.switch("cross-entropy-loss-fusion", train.cross_entropy == "fused")
    group.say("transformer-impl", "transformer_engine")
    return group
