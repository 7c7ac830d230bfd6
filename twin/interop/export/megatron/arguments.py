"""A plan's model, layout, memory policy and training as Megatron-LM's arguments.

Names are those of NVIDIA/Megatron-LM: megatron/training/arguments.py at 000c4ac2 (late 2025), and
what later versions make options of the fields of `TransformerConfig`
(megatron/core/transformer/transformer_config.py at 002526d8, 2026): `--qk-clip`,
`--fine-grained-activation-offloading`, `--moe-flex-dispatcher-backend`. Fields without an argument
are left out; `twin.interop.export.megatron.losses` finds them by reading the arguments back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from twin.interop.importing.megatron.arguments import Argument
from twin.interop.importing.megatron.layer_split import layout_of, pattern_of
from twin.interop.importing.megatron.run import PIPELINE_BEFORE_DATA, RECOMPUTED, SCALING, SHARDING
from twin.optimizers.adamw import AdamW
from twin.planning.types import Plan
from twin.scenario import Scenario
from twin.schedules.interleaved import Interleaved
from twin.spec.model import GroupedAttention, LatentAttention, ModelSpec, Moe

_DROPOUT = "0.1"
"""Megatron-LM's default probability."""


def model_arguments(model: ModelSpec, sequence: int) -> tuple[Argument, ...]:
    """The arguments of the architecture; positions reach at least over a sequence."""
    return (
        *_sizes(model),
        *_attention(model),
        *_positions(model, sequence),
        *(_expert_arguments(model.moe, model.layers) if model.moe else ()),
    )


def _sizes(model: ModelSpec) -> Iterator[Argument]:
    yield _say("num-layers", model.layers)
    yield _say("hidden-size", model.hidden)
    yield _say("ffn-hidden-size", model.ffn.width)
    if model.ffn.kind != "gelu":
        yield _say("squared-relu" if model.ffn.kind == "squared_relu" else "swiglu")
    yield _say("padded-vocab-size", model.vocab)
    if not model.tied_embeddings:
        yield _say("untie-embeddings-and-output-weights")
    yield _say("normalization", "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm")
    yield _say("norm-epsilon", repr(model.norm_eps))
    if not _biased(model):
        yield _say("disable-bias-linear")
    for where in ("attention", "hidden"):
        yield _say(f"{where}-dropout", _DROPOUT if model.dropout else "0.0")
    if model.mtp_layers:
        yield _say("mtp-num-layers", model.mtp_layers)


def _biased(model: ModelSpec) -> bool:
    """Whether all linear layers have biases: Megatron-LM has one switch for them."""
    attention = model.attention
    whole = isinstance(attention, GroupedAttention) and attention.bias and model.ffn.bias
    return whole and (model.moe is None or model.moe.bias)


def _attention(model: ModelSpec) -> Iterator[Argument]:
    attention = model.attention
    yield _say("num-attention-heads", attention.heads)
    if isinstance(attention, LatentAttention):
        yield from _latent(attention)
        return
    if attention.kv_heads != attention.heads:
        yield _say("group-query-attention")
        yield _say("num-query-groups", attention.kv_heads)
    yield _say("kv-channels", attention.head_dim)
    if attention.qkv_bias and not _biased(model):
        yield _say("add-qkv-bias")
    if attention.qk_norm:
        yield _say("qk-layernorm")
    if attention.sinks:
        yield _say("softmax-type", "learnable")


def _latent(attention: LatentAttention) -> Iterator[Argument]:
    yield _say("multi-latent-attention")
    if attention.q_lora_rank is not None:
        yield _say("q-lora-rank", attention.q_lora_rank)
    yield _say("kv-lora-rank", attention.kv_lora_rank)
    yield _say("qk-head-dim", attention.qk_nope_head_dim)
    yield _say("qk-pos-emb-head-dim", attention.qk_rope_head_dim)
    yield _say("v-head-dim", attention.v_head_dim)
    yield _say("kv-channels", attention.qk_nope_head_dim)
    yield _say("qk-layernorm")  # compressed queries and keys are normed


def _positions(model: ModelSpec, sequence: int) -> Iterator[Argument]:
    if model.learned_positions:
        yield _say("position-embedding-type", "learned_absolute")
        yield _say("max-position-embeddings", model.learned_positions)
        return
    yield _say("position-embedding-type", "rope" if model.rotary else "none")
    yield _say("max-position-embeddings", sequence)
    yield _say("rotary-base", round(model.rope.theta))
    if not isinstance(model.attention, LatentAttention):
        return
    yarn = model.rope.yarn
    yield _say("rope-type", "rope" if yarn is None else "yarn")
    if yarn is not None:
        yield _say("rotary-scaling-factor", repr(yarn.factor))
        yield _say("mscale", repr(yarn.mscale))
        yield _say("mscale-all-dim", repr(yarn.mscale_all_dim))


def _expert_arguments(moe: Moe, layers: int) -> Iterator[Argument]:
    yield _say("num-experts", moe.experts)
    yield _say("moe-ffn-hidden-size", moe.width)
    yield _say("moe-router-topk", moe.top_k)
    pattern = pattern_of(moe.first_dense_layers, moe.every, layers)
    if pattern is not None:
        yield _say("moe-layer-freq", pattern)
    if moe.groups > 1:
        yield _say("moe-router-num-groups", moe.groups)
        yield _say("moe-router-group-topk", moe.top_groups)
    if moe.shared_experts:
        width = moe.shared_width or moe.shared_experts * moe.width
        yield _say("moe-shared-expert-intermediate-size", width)
    if moe.shared_gate:
        yield _say("moe-shared-expert-gate")
    yield from _router(moe)


def _router(moe: Moe) -> Iterator[Argument]:
    yield _say("moe-router-score-function", moe.scores)
    if moe.scores == "softmax" and not moe.normalize_weights:
        # The softmax of all logits, of which the chosen do not add up to 1.
        yield _say("moe-router-pre-softmax")
    if moe.correction_bias:
        yield _say("moe-router-enable-expert-bias")
    if moe.routed_scale != 1:
        yield _say("moe-router-topk-scaling-factor", repr(moe.routed_scale))


def _say(name: str, *values: object) -> Argument:
    return Argument(name, tuple(str(value) for value in values))


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
