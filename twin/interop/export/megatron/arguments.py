"""A plan's model, layout, memory policy and training as Megatron-LM's arguments.

Names are those of NVIDIA/Megatron-LM: megatron/training/arguments.py at 000c4ac2 (late 2025), and
what later versions make options of the fields of `TransformerConfig`
(megatron/core/transformer/transformer_config.py at 002526d8, 2026): `--qk-clip`,
`--fine-grained-activation-offloading`, `--moe-flex-dispatcher-backend`. Fields without an argument
are left out; `twin.interop.export.megatron.arguments` finds them by reading the arguments back.

What of a scenario Megatron-LM's arguments do not say: found by reading them back, and comparing
field by field. So nothing is lost in silence, whatever fields a scenario gets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path

from twin.interop.importing.megatron import understood
from twin.interop.importing.megatron.launch_file import Argument
from twin.interop.importing.megatron.model import layout_of
from twin.interop.importing.megatron.run import (
    OF_EXPERTS,
    OFFLOADED,
    PIPELINE_BEFORE_DATA,
    RECOMPUTED,
    SCALING,
    SHARDING,
)
from twin.interop.losses import Loss, losses_of
from twin.interop.model_arguments import Options, arguments, model_options
from twin.loading.files import read_data
from twin.optimizers.adamw import AdamW
from twin.optimizers.base import Optimizer
from twin.planning.experts import MERGING
from twin.planning.types import Plan
from twin.scenario import ParallelSpec, Scenario, TrainSpec
from twin.schedules.interleaved import Interleaved
from twin.spec.model import LatentAttention, Moe


def grouped(plan: Plan) -> Mapping[str, tuple[Argument, ...]]:
    """The arguments by heading, in the order in which people write them."""
    scenario = plan.scenario
    parallel, train, moe = scenario.parallel, scenario.train, scenario.model.moe
    groups: dict[str, Options] = {
        "Model": model_options(scenario.model, train.sequence),
        "Layout": _layout(plan),
        "Experts on ranks": _experts_on_ranks(parallel, moe) if moe else {},
        "Memory": _memory(scenario),
        "Training": _training(scenario),
        "Numbers and kernels": _numbers(train),
    }
    return {heading: tuple(arguments(options)) for heading, options in groups.items()}


def _layout(plan: Plan) -> Options:
    scenario = plan.scenario
    parallel, schedule = scenario.parallel, scenario.parallel.schedule
    late = isinstance(schedule, Interleaved) and schedule.defer_weight_grad
    return {
        "tensor-model-parallel-size": parallel.tensor,
        "pipeline-model-parallel-size": parallel.pipeline,
        **_context(parallel),
        **_split(layers_per_chunk(plan), parallel.pipeline, scenario.model.mtp_layers),
        "sequence-parallel": parallel.sequence_parallel,
        "tp-comm-overlap": parallel.overlap_tensor == "pieces",
        "use-tp-pp-dp-mapping": parallel.order == PIPELINE_BEFORE_DATA,
        **_sharding(scenario),
        "overlap-moe-expert-parallel-comm": _pairs(parallel),
        "delay-wgrad-compute": _pairs(parallel) and late,
    }


def _context(parallel: ParallelSpec) -> Options:
    """Context ranks, and how they exchange."""
    ranks, heads = parallel.context, parallel.context_heads
    if ranks == 1:
        return {}
    kind = "a2a" if heads == ranks else "a2a+p2p" if heads > 1 else "all_gather"
    return {
        "context-parallel-size": ranks,
        "cp-comm-type": "p2p" if parallel.context_ring and heads == 1 else kind,
        "hierarchical-context-parallel-sizes": f"{heads} {ranks // heads}" if "+" in kind else None,
    }


def _pairs(parallel: ParallelSpec) -> bool:
    """Whether forwards are paired with backwards in a way that an argument asks for."""
    schedule = parallel.schedule
    return isinstance(schedule, Interleaved) and schedule.overlap_all_to_all


def layers_per_chunk(plan: Plan) -> tuple[int, ...]:
    """Transformer layers of each part of the model, as the plan cuts it; parts that a schedule
    holds twice count once."""
    parallel = plan.scenario.parallel
    parts = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).part_of
    first = {parts[chunk.index]: chunk.first_layer for chunk in plan.chunks}
    starts = [*(first[part] for part in sorted(first)), plan.scenario.model.layers]
    return tuple(after - before for before, after in pairwise(starts))


def _split(layers: Sequence[int], stages: int, modules: int) -> Options:
    """How layers are cut: by the shortest arguments that say it."""
    virtual, middle = len(layers) // stages, layers[1:-1]
    even = len(set(layers)) == 1
    if len(layers) == 1 or (even and virtual == 1):
        return {}
    if even:
        return {"num-layers-per-virtual-pipeline-stage": layers[0]}
    if virtual == 1 and len(set(middle)) == 1 and min(layers) > 0:
        first, last = (None if own == middle[0] else own for own in (layers[0], layers[-1]))
        return {
            "decoder-first-pipeline-num-layers": first,
            "decoder-last-pipeline-num-layers": last,
        }
    return {"pipeline-model-parallel-layout": layout_of(layers, modules)}


def _sharding(scenario: Scenario) -> Options:
    parallel = scenario.parallel
    fsdp, sharded = scenario.memory.fully_shard, parallel.zero > 1
    megatron = sharded and not fsdp
    gathers = parallel.overlap_param_gather and parallel.zero in (1, 2)
    reduces = parallel.overlap_grad_reduce or gathers
    return {
        "use-torch-fsdp2": fsdp,
        "torch-fsdp2-no-reshard-after-forward": fsdp and not parallel.reshard_after_forward,
        "use-megatron-fsdp": megatron,
        "data-parallel-sharding-strategy": next(
            (name for name, zero in SHARDING.items() if megatron and zero == parallel.zero), None
        ),
        "ckpt-format": "fsdp_dtensor" if megatron else None,
        "use-distributed-optimizer": parallel.zero == 1 and not fsdp,
        # Megatron-LM gathers so only where it reduces so.
        "overlap-grad-reduce": reduces,
        "overlap-param-gather": gathers,
        "ddp-bucket-size": parallel.bucket_size,
        "num-distributed-optimizer-instances": parallel.shard_copies
        if parallel.shard_copies > 1
        else None,
    }


def _experts_on_ranks(parallel: ParallelSpec, moe: Moe) -> Options:
    merges = parallel.dispatcher in MERGING
    plain = "allgather" if parallel.dispatcher == "allgather" else "alltoall"
    # Megatron-LM refuses this beside --overlap-moe-expert-parallel-comm.
    beside = bool(moe.shared_experts) and parallel.overlap_shared_experts and not _pairs(parallel)
    return {
        "expert-model-parallel-size": parallel.expert,
        "expert-tensor-parallel-size": parallel.expert_tensor,
        "moe-token-dispatcher-type": "flex" if merges else plain,
        "moe-flex-dispatcher-backend": parallel.dispatcher if merges else None,
        "moe-shared-expert-overlap": beside,
        "moe-grouped-gemm": True,
        "moe-router-dtype": "fp32",
    }


def _memory(scenario: Scenario) -> Options:
    memory, model = scenario.memory, scenario.model
    found: Options = {}
    absent = {
        "moe_act": model.moe is None,
        "moe": model.moe is None,
        "mla_up_proj": not isinstance(model.attention, LatentAttention),
    }
    named = tuple(
        module
        for module, policy in RECOMPUTED.items()
        if policy in memory.recompute and not absent.get(module)
    )
    if "full" in memory.recompute:
        found |= {"recompute-granularity": "full", "recompute-method": "uniform"}
        found["recompute-num-layers"] = 1
    elif named:
        found |= {"recompute-granularity": "selective", "recompute-modules": named}
    sent = memory.activations_on_host
    modules = tuple(
        module
        for module, policy in OFFLOADED.items()
        if {policy, "activations"} & {*sent} and (model.moe or module not in OF_EXPERTS)
    )
    if modules:
        found |= {"fine-grained-activation-offloading": True, "offload-modules": modules}
    whole = len(memory.states_on_host) == 2  # of dense weights, and of experts
    on_host = memory.optimizer_update == "host"
    return found | {
        "optimizer-cpu-offload": whole and on_host,
        "offload-optimizer-states": whole and not on_host,
    }


def of_stages(plan: Plan) -> tuple[str, ...]:
    """The memory flags of stages that differ, or of chunks, which one process cannot tell apart."""
    own = plan.by_stage
    if own is None:
        return ()
    unit = "stage" if len(own) == plan.mesh.pipeline else "chunk"
    said: list[str] = []
    for policy in own:
        memory = plan.scenario.memory.as_everywhere.as_stage(policy)
        options = _memory(plan.scenario.model_copy(update={"memory": memory}))
        said.append(" ".join(word for one in arguments(options) for word in one.words))
    found: list[str] = []
    first = 0
    for flags, same in groupby(said):
        last = first + len(list(same)) - 1
        where = f"{unit} {first}" if first == last else f"{unit}s {first} to {last}"
        found.append(f"{where}: {flags or 'none'}")
        first = last + 1
    return tuple(found)


def _training(scenario: Scenario) -> Options:
    train = scenario.train
    optimizer = train.optimizer
    first, second = _moments(optimizer)
    short = (first, second) != ("fp32", "fp32")
    on_host = bool(_memory(scenario)["optimizer-cpu-offload"])
    return {
        "seq-length": train.sequence,
        "micro-batch-size": scenario.parallel.micro_batch,
        "global-batch-size": train.global_batch_sequences,
        "moe-router-force-load-balancing": train.routing.kind == "random",
        "moe-expert-capacity-factor": train.expert_capacity,
        "moe-pad-expert-input-to-capacity": train.expert_capacity is not None,
        "train-samples": max(1, round(train.tokens / train.sequence)),
        "optimizer": "adam" if isinstance(optimizer, AdamW) else "muon",
        "qk-clip": optimizer.kind == "muonclip",
        "use-precision-aware-optimizer": short or on_host,
        "exp-avg-dtype": None if first == "fp32" else first,
        "exp-avg-sq-dtype": None if second == "fp32" else second,
        "manual-gc": scenario.gc_interval is not None,
        "manual-gc-interval": scenario.gc_interval,
    }


def _moments(optimizer: Optimizer) -> tuple[str, str]:
    """Numbers of both moments, as Megatron-LM has them: 8 bits are FP8."""
    if not isinstance(optimizer, AdamW):
        return "fp32", "fp32"
    both = optimizer.moments, optimizer.variance or optimizer.moments
    first, second = ("fp8" if one == "int8" else one for one in both)
    return first, second


def _numbers(train: TrainSpec) -> Options:
    fp8, short = train.precision == "fp8", train.gradients == "bf16"
    recipe = next((name for name, own in SCALING.items() if own == train.fp8_scaling), "")
    # Transformer Engine's usual formats: E5M2 for gradients where a tensor has one scale.
    form = "hybrid" if recipe in ("delayed", "tensorwise") else "e4m3"
    return {
        "bf16": True,
        "fp8-format": form if fp8 else None,
        "fp8-recipe": recipe if fp8 and recipe else None,
        "fp8-param-gather": fp8 and train.fp8_param_gather,
        **_recipe(train),
        "grad-reduce-in-bf16": short,
        "accumulate-allreduce-grads-in-fp32": not short,
        "attention-backend": train.attention_kernel,
        "cross-entropy-loss-fusion": train.cross_entropy == "fused",
        "transformer-impl": "transformer_engine",
    }


def _recipe(train: TrainSpec) -> Options:
    """What a recipe says beside FP8."""
    recipe, fp4 = train.recipe, train.precision in ("nvfp4", "mxfp4")
    ends = (recipe.bf16_first, recipe.bf16_last) if recipe else (0, 0)
    return {
        "fp4-format": "e2m1" if fp4 else None,
        "fp4-recipe": "nvfp4" if fp4 else None,
        "fp4-param-gather": fp4 and recipe is not None and recipe.fp4_param_gather,
        "first-last-layers-bf16": ends != (0, 0),
        "num-layers-at-start-in-bf16": ends[0] if ends != (0, 0) else None,
        "num-layers-at-end-in-bf16": ends[1] if ends != (0, 0) else None,
    }


@cache
def reasons() -> Mapping[str, str]:
    """Why a field is not expressed, by its path or that of a section around it."""
    return read_data(Path(__file__).with_name("losses.yaml"))


def losses(scenario: Scenario, arguments: Sequence[Argument]) -> tuple[Loss, ...]:
    """Every field of a scenario that reading its arguments back would not give."""
    return losses_of(scenario, understood(arguments, scenario.name), reasons())
