"""What a reader must know before trusting a plan's numbers: assumptions that the layout or the
inputs bring in, as data.

Each rule looks at one assumption and returns its warnings; `caveats` asks them all. A rule says
what is assumed and in which direction the truth lies.

What a reader must know before trusting a plan's memory: policies that change nothing, and what
host memory is also needed for. Each rule looks at one assumption, as in `twin.planning.caveats`.
"""

from __future__ import annotations

from collections.abc import Sequence

from twin.arch.fp8 import stored
from twin.arch.ops import Layer
from twin.arch.recompute import RECOMPUTED
from twin.planning.feasibility import microbatches
from twin.planning.mesh import in_pods, neighbours_share
from twin.planning.types import Chunk, Memory, Mesh, Warning
from twin.routing import load
from twin.scenario import Scenario
from twin.spec.memory import MemorySpec


def memory_caveats(
    scenario: Scenario, chunks: Sequence[Chunk], memory: Memory
) -> tuple[Warning, ...]:
    """Every warning of the memory policy."""
    layers = tuple({id(one): one for chunk in chunks for one in chunk.layers}.values())
    return (
        *idle_recompute(scenario.memory, layers),
        *recompute_for_nothing(scenario.memory, layers),
        *idle_fp8_store(scenario.memory, layers),
        *idle_offload(scenario.memory, memory),
        *idle_states(scenario),
        *idle_update(scenario.memory),
        *shared_host(memory),
        *updated_on_host(scenario.memory),
    )


def idle_recompute(policy: MemorySpec, layers: Sequence[Layer]) -> list[Warning]:
    """Names of `recompute` that are on no layer, or that `full` covers."""
    named = [one for one in dict.fromkeys(policy.recompute) if one != "full"]
    if "full" in policy.recompute:
        text = "recompute full runs whole layers again: {} beside it changes nothing."
        return [_idle(text.format(", ".join(named)))] if named else []
    present = {item.name for layer in layers for item in layer.items}
    idle = [one for one in named if one in RECOMPUTED and not RECOMPUTED[one] & present]
    text = "recompute {} changes nothing: no layer of this model has it."
    return [_idle(text.format(", ".join(idle)))] if idle else []


def recompute_for_nothing(policy: MemorySpec, layers: Sequence[Layer]) -> list[Warning]:
    """Ops that run again although nothing needs their output."""
    if "moe_down" not in policy.recompute or "full" in policy.recompute:
        return []
    if not any(layer.kind in ("moe", "mtp") for layer in layers):
        return []
    text = (
        "recompute moe_down costs the experts' down-projection a second time and frees nothing "
        "here: routing weights enter before it, so no backward pass needs its output. Kimi K2's "
        "report calls it optional, a guard against imbalanced experts early in training."
    )
    return [Warning("recompute-frees-nothing", text)]


def idle_fp8_store(policy: MemorySpec, layers: Sequence[Layer]) -> list[Warning]:
    """Names of `fp8_store` for which no layer packs anything."""
    alone = {one: policy.model_copy(update={"fp8_store": (one,)}) for one in policy.fp8_store}
    idle = [
        name for name, only in alone.items() if not any(stored(layer, only) for layer in layers)
    ]
    text = "fp8_store {} changes nothing: no layer keeps it in bf16."
    return [_idle(text.format(", ".join(idle)))] if idle else []


def idle_offload(policy: MemorySpec, memory: Memory) -> list[Warning]:
    """Activations whose backward comes too soon for a trip to the host."""
    if "activations" not in policy.offload:
        return []
    if any("activations" in stage.host for stage in memory.stages):
        return []
    text = (
        "offload activations changes nothing: every backward pass follows its forward too soon "
        "for a copy out and back."
    )
    return [_idle(text)]


def idle_states(scenario: Scenario) -> list[Warning]:
    """States of experts are those of a model that has some."""
    if "optimizer_expert" not in scenario.memory.offload or scenario.model.moe is not None:
        return []
    text = f"offload optimizer_expert changes nothing: {scenario.model.name} has no experts."
    return [_idle(text)]


def idle_update(policy: MemorySpec) -> list[Warning]:
    """Where states are updated is a question only for those on the host."""
    if policy.optimizer_update == "device" or policy.states_on_host:
        return []
    return [_idle("optimizer_update host changes nothing: no optimizer state is offloaded.")]


def shared_host(memory: Memory) -> list[Warning]:
    """Others want host memory, too."""
    if not memory.host:
        return []
    text = (
        "Host memory is judged by what training keeps there, pinned. Data loading, staged "
        "checkpoints and the system are left out: leave them room."
    )
    return [Warning("host-memory-of-others", text)]


def updated_on_host(policy: MemorySpec) -> list[Warning]:
    """The host's cores may be slower than its memory."""
    if policy.optimizer_update == "device" or not policy.states_on_host:
        return []
    text = (
        "The host updates states as fast as its memory is read and written; with few cores or "
        "without vector instructions it is slower."
    )
    return [Warning("update-at-memory-speed", text)]


def _idle(text: str) -> Warning:
    return Warning("idle-memory-policy", text)


def caveats(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk]) -> tuple[Warning, ...]:
    """Every warning of the plan."""
    return (
        *phases_by_themselves(scenario),
        *routing(scenario),
        *expert_exchange(scenario),
        *calibration(scenario),
        *unmeasured_precision(scenario),
        *assumed_numbers(scenario),
        *experts_on_tensor_ranks(scenario),
        *tensor_across_nodes(mesh),
        *mixed_neighbours(mesh),
        *mixed_pods(scenario, mesh),
        *balance(scenario),
        *empty_chunks(chunks),
        *left_out(scenario),
        *idle_sequence_parallel(scenario),
        *idle_reshard(scenario),
        *idle_gather(scenario),
        *idle_pieces(scenario),
        *idle_copies(scenario),
        *idle_dispatcher(scenario),
        *exposed_context(scenario),
        *sharded_per_microbatch(scenario, mesh),
    )


def phases_by_themselves(scenario: Scenario) -> list[Warning]:
    """A plan is of one step; phases have plans of their own."""
    if not scenario.phases:
        return []
    text = (
        f"The scenario has {len(scenario.phases)} phases, and this is its own step, for all of its "
        "tokens: `twin run` and `twin check` answer the phases."
    )
    return [Warning("phases-left-out", text)]


def routing(scenario: Scenario) -> list[Warning]:
    """Balanced routing is the fast and small end; any other is taken to be alike everywhere."""
    moe, chosen, ranks = scenario.model.moe, scenario.train.routing, scenario.parallel.expert
    if moe is None:
        return [] if chosen.kind == "balanced" else [_idle_routing(scenario)]
    if chosen.kind != "balanced":
        fullest = load(chosen, moe.experts, ranks, moe.top_k)
        text = (
            f"Routing {chosen.kind}: the fullest of {ranks} expert ranks gets "
            f"{fullest:.3g} times the mean rank's tokens. It is the rank "
            "shown, in every layer and micro-batch, since a layer ends with its fullest rank; what "
            "it keeps is that of a rank which is the fullest over all its layers. "
            "Chance among finite tokens is left out (about 1 % more)."
        )
        return [Warning("fullest-expert-rank", text)]
    text = (
        f"Routing is assumed balanced: each of {moe.experts} experts gets the same tokens. Real "
        "routers do not; the fullest expert rank would be slower and hold more activations."
    )
    return [Warning("balanced-routing", text)]


def _idle_routing(scenario: Scenario) -> Warning:
    text = f"train.routing changes nothing: {scenario.model.name} has no experts."
    return Warning("idle-routing", text)


def expert_exchange(scenario: Scenario) -> list[Warning]:
    """A plain all-to-all, one that nothing hides, or one that takes nothing from the kernels beside
    it."""
    if scenario.model.moe is None or scenario.parallel.expert == 1:
        return []
    found: list[Warning] = []
    if scenario.parallel.dispatcher == "alltoall":
        plain = (
            "Expert all-to-all is plain: each token travels once per chosen expert. Systems like "
            "DeepEP send once per node (parallel.dispatcher=deepep), so its row of the breakdown "
            "is an upper bound for them."
        )
        found.append(Warning("plain-all-to-all", plain))
    if not scenario.parallel.schedule.pairs:
        bare = (
            "No other micro-batch runs beside the expert all-to-all; overlap_all_to_all, as in "
            "Kimi K2's schedule, hides a part of it."
        )
        found.append(Warning("exposed-all-to-all", bare))
    elif scenario.calibration.expert_sms == 0:
        free = (
            "Expert all-to-all runs under kernels without slowing them: the profile "
            f"{scenario.calibration.name} says of no SMs that it holds (calibration.expert_sms; "
            "20 of 132 in DeepSeek-V3, arXiv:2412.19437, section 3.2.2), so compute is a lower "
            "bound while they overlap."
        )
        found.append(Warning("free-overlap", free))
    return [*found, *idle_rates(scenario)]


def idle_rates(scenario: Scenario) -> list[Warning]:
    """Nobody has measured what the all-to-all loses beside kernels, but for one stack."""
    profile = scenario.calibration
    if not scenario.parallel.schedule.pairs or profile.expert_contention or profile.expert_wait:
        return []
    text = (
        "Expert all-to-all is taken to be as fast beside kernels as alone, and no rank to wait for "
        "another (calibration.expert_contention, calibration.expert_wait): the fast end. "
        "DeepSeek's stack on H800 loses 31 % of its rate and 2 ms per exchange; with calibration "
        "h800-deepseek-2025 more of the exchange shows."
    )
    return [Warning("all-to-all-as-alone", text)]


def calibration(scenario: Scenario) -> list[Warning]:
    """Efficiencies were measured on some GPU, with some software."""
    profile, gpu = scenario.calibration, scenario.cluster.node.gpu.name
    if profile.gpu == gpu:
        return []
    text = (
        f"Calibration {profile.name} was measured on {profile.gpu}, not on {gpu}: compute times "
        "are extrapolated."
    )
    return [Warning("calibration-of-another-gpu", text)]


def unmeasured_precision(scenario: Scenario) -> list[Warning]:
    """Without measured FP8 products, those of bf16 stand for them."""
    profile = scenario.calibration
    measured = profile.matmuls is not None and profile.matmuls.fp8 is not None
    if scenario.train.precision != "fp8" or measured:
        return []
    text = (
        f"Calibration {profile.name} has no FP8 products: they are taken to reach the shares "
        "`gemm` and `grouped_gemm` of the FP8 peak, as bf16 ones do of theirs. Block-scaled "
        "kernels reach less, so compute is a lower bound."
    )
    return [Warning("calibration-without-fp8", text)]


def assumed_numbers(scenario: Scenario) -> list[Warning]:
    """Some numbers of the hardware and its calibration have no source but our judgement."""
    assumed = sorted(path for path, number in scenario.ledger.items() if number.kind == "assumed")
    efficiencies = [path for path in assumed if path.startswith("calibration.")]
    # Of failures and of rollouts the rooms that play them say it (`twin.goodput`,
    # `twin.kinds.weight_update`).
    others = [
        path
        for path in assumed
        if path not in efficiencies and not path.startswith(("goodput.", "rl."))
    ]
    found: list[Warning] = []
    if efficiencies:
        names = ", ".join(efficiencies)
        text = f"Assumed, neither measured nor fitted: {names}. Times move with them."
        found.append(Warning("assumed-calibration", text))
    if others:
        text = f"Assumed, without a published source: {', '.join(others)}."
        found.append(Warning("assumed-hardware", text))
    return found


def experts_on_tensor_ranks(scenario: Scenario) -> list[Warning]:
    """Tensor ranks repeat the expert part of a layer when the sequence is not cut."""
    parallel = scenario.parallel
    if scenario.model.moe is None or parallel.tensor == 1 or parallel.sequence_parallel:
        return []
    text = (
        f"Without sequence_parallel all {parallel.tensor} tensor ranks route and compute the same "
        "tokens in expert layers; set sequence_parallel to cut them."
    )
    return [Warning("experts-repeated-on-tensor-ranks", text)]


def tensor_across_nodes(mesh: Mesh) -> list[Warning]:
    """Tensor parallelism over the network is possible and rarely wanted."""
    degrees = {"tensor": mesh.tensor, "expert_tensor": mesh.expert_tensor}
    return [
        Warning(
            "tensor-across-nodes",
            f"{axis}={degree} is more than the {mesh.gpus_per_node} GPUs of a node: the "
            "collectives of every layer cross the network.",
        )
        for axis, degree in degrees.items()
        if degree > mesh.gpus_per_node
    ]


def mixed_neighbours(mesh: Mesh) -> list[Warning]:
    """Some stage boundaries lie inside a node, others between nodes; one placement stands for
    both."""
    shared = neighbours_share(mesh)
    if all(shared) or not any(shared):
        return []
    text = (
        f"{sum(shared)} of {len(shared)} stage boundaries lie inside a node; all are costed as if "
        "they crossed the network, so pipeline messages are slower here than in truth."
    )
    return [Warning("mixed-pipeline-neighbours", text)]


def mixed_pods(scenario: Scenario, mesh: Mesh) -> list[Warning]:
    """Some stage boundaries lie under one leaf, others cross oversubscribed spines."""
    fabric = scenario.cluster.fabric
    if fabric.oversubscription == 1 or any(neighbours_share(mesh)):
        return []
    shared = neighbours_share(in_pods(mesh, fabric.nodes_per_leaf))
    if all(shared) or not any(shared):
        return []
    text = (
        f"{sum(shared)} of {len(shared)} stage boundaries lie inside a pod; all are costed as if "
        f"they crossed spines oversubscribed by {fabric.oversubscription:g}, so pipeline messages "
        "are slower here than in truth."
    )
    return [Warning("mixed-pipeline-pods", text)]


def balance(scenario: Scenario) -> list[Warning]:
    """Automatic splits look at kernels only."""
    if scenario.parallel.layers is not None or scenario.parallel.pipeline == 1:
        return []
    text = (
        "Layers are balanced over chunks by the time of their kernels, communication left out; "
        "write parallel.layers to choose another split."
    )
    return [Warning("balanced-by-kernels", text)]


def empty_chunks(chunks: Sequence[Chunk]) -> list[Warning]:
    """A chunk without layers only passes messages on."""
    empty = [str(chunk.index) for chunk in chunks if not chunk.layers]
    if not empty:
        return []
    text = (
        f"{len(empty)} of {len(chunks)} chunks hold no layer and only pass messages on: "
        f"{', '.join(empty)}."
    )
    return [Warning("empty-chunks", text)]


def left_out(scenario: Scenario) -> list[Warning]:
    """The model's entry says what it simplifies."""
    model = scenario.model
    if not model.left_out:
        return []
    return [Warning("model-simplified", f"{model.name} is simplified: {model.left_out}.")]


def idle_sequence_parallel(scenario: Scenario) -> list[Warning]:
    """Sequence parallelism works on the tensor ranks."""
    if not scenario.parallel.sequence_parallel or scenario.parallel.tensor > 1:
        return []
    return [Warning("idle-sequence-parallel", "sequence_parallel changes nothing with tensor=1.")]


def idle_reshard(scenario: Scenario) -> list[Warning]:
    """Only sharded parameters are gathered and freed."""
    if scenario.parallel.reshard_after_forward or scenario.parallel.zero == 3:
        return []
    text = f"reshard_after_forward changes nothing with zero={scenario.parallel.zero}."
    return [Warning("idle-reshard-after-forward", text)]


def idle_gather(scenario: Scenario) -> list[Warning]:
    """New weights are gathered once per step where states are sharded and weights are not."""
    parallel = scenario.parallel
    if not parallel.overlap_param_gather or parallel.zero in (1, 2):
        return []
    why = "no weights are gathered" if parallel.zero == 0 else "weights are gathered in every pass"
    text = f"overlap_param_gather changes nothing with zero={parallel.zero}: {why}."
    return [Warning("idle-overlap-param-gather", text)]


def idle_pieces(scenario: Scenario) -> list[Warning]:
    """Tensor ranks have the collectives that could go in pieces."""
    parallel = scenario.parallel
    if parallel.overlap_tensor == "none" or parallel.tensor > 1:
        return []
    text = f"overlap_tensor={parallel.overlap_tensor} changes nothing with tensor=1."
    return [Warning("idle-overlap-tensor", text)]


def idle_copies(scenario: Scenario) -> list[Warning]:
    """Sequences are gathered and summed under sequence parallelism only."""
    parallel = scenario.parallel
    if not parallel.sequence_copies or (parallel.sequence_parallel and parallel.tensor > 1):
        return []
    text = "sequence_copies changes nothing without sequence_parallel over tensor ranks."
    return [Warning("idle-sequence-copies", text)]


def idle_dispatcher(scenario: Scenario) -> list[Warning]:
    """A dispatcher moves tokens between expert ranks."""
    parallel = scenario.parallel
    if parallel.dispatcher == "alltoall" or parallel.expert > 1:
        return []
    text = f"dispatcher={parallel.dispatcher} changes nothing with expert=1."
    return [Warning("idle-dispatcher", text)]


def exposed_context(scenario: Scenario) -> list[Warning]:
    """Keys and values are gathered in line."""
    if scenario.parallel.context == 1:
        return []
    text = (
        "Context ranks all-gather keys and values before attention, as Llama 3 does, and nothing "
        "hides it: its row of the breakdown is an upper bound for rings that pass them on under "
        "the kernels (Megatron-LM's p2p)."
    )
    if scenario.model.attention.kind == "mla":
        text += " Latent attention sends keys and values of every head, not the latents."
    return [Warning("exposed-context-exchange", text)]


def sharded_per_microbatch(scenario: Scenario, mesh: Mesh) -> list[Warning]:
    """Sharded gradients and parameters travel for every micro-batch."""
    zero = scenario.parallel.zero
    if zero < 2 or max(mesh.dense_replicas, mesh.expert_replicas) == 1:
        return []
    if microbatches(scenario) == 1:
        return []
    moved = "gradients are reduced" if zero == 2 else "parameters are gathered, gradients reduced,"
    text = (
        f"zero={zero}: {moved} once per micro-batch, as DeepSpeed does, and FSDP without no_sync; "
        f"{microbatches(scenario)} micro-batches multiply that traffic. zero=1 sends once per step."
    )
    return [Warning("sharded-per-micro-batch", text)]
