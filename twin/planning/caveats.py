"""What a reader must know before trusting a plan's numbers: assumptions that the layout or the
inputs bring in, as data.

Each rule looks at one assumption and returns its warnings; `caveats` asks them all. A rule says
what is assumed and in which direction the truth lies.

What a reader must know before trusting a plan's memory: policies that change nothing, and what
host memory is also needed for. Each rule looks at one assumption, as in `twin.planning.caveats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import gcd
from pathlib import Path
from typing import Final

from twin.arch.fp8 import stored
from twin.arch.ops import Layer
from twin.arch.recompute import RECOMPUTED
from twin.hardware.roofline import has_fp4
from twin.loading.catalog import catalog_parts, stacks_of
from twin.loading.files import read_tree
from twin.loading.tree import plain
from twin.planning.experts import expert_load
from twin.planning.feasibility import microbatches
from twin.planning.footprint import sent_by_op
from twin.planning.mesh import REPLICAS, STRADDLING, in_pods, members_per_node, neighbours_share
from twin.planning.scans import scan_range
from twin.planning.types import Chunk, Memory, Mesh, Warning
from twin.scenario import Scenario
from twin.spec.memory import MemorySpec

_NAMED: Final = 3
"""Names of assumed numbers that a warning tells; `twin resolve` has all with their sources."""


def memory_caveats(
    scenario: Scenario, chunks: Sequence[Chunk], memory: Memory
) -> tuple[Warning, ...]:
    """Every warning of the memory policy."""
    layers = tuple({id(one): one for chunk in chunks for one in chunk.layers}.values())
    policy = _all_named(scenario.memory, tuple(dict.fromkeys(one.policy for one in layers)))
    return (
        *idle_recompute(policy, layers),
        *recompute_for_nothing(policy, layers),
        *idle_fp8_store(policy, layers),
        *idle_offload(policy, layers, memory),
        *idle_states(scenario),
        *idle_update(scenario.memory),
        *shared_host(memory),
        *updated_on_host(scenario.memory),
    )


def _all_named(memory: MemorySpec, policies: Sequence[MemorySpec]) -> MemorySpec:
    """All that some stage does; `full` where every stage does it."""
    if len(policies) == 1:
        return memory

    def named(field: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for one in policies for name in getattr(one, field)))

    again = tuple(one for one in named("recompute") if one != "full")
    whole = ("full",) * all("full" in one.recompute for one in policies)
    return memory.model_copy(
        update={
            "recompute": (*whole, *again),
            "fp8_store": named("fp8_store"),
            "offload": named("offload"),
        }
    )


def idle_recompute(policy: MemorySpec, layers: Sequence[Layer]) -> list[Warning]:
    """Names of `recompute` that are on no layer, or that `full` covers."""
    named = [one for one in dict.fromkeys(policy.recompute) if one != "full"]
    if "full" in policy.recompute:
        text = "recompute full runs whole layers again: {} beside it changes nothing."
        return [_idle(text.format(", ".join(named)))] if named else []
    present = {item.name for layer in layers for item in layer.items}
    idle = [one for one in named if one in RECOMPUTED and not RECOMPUTED[one] & present]
    if "moe" in named and "router" not in present:
        idle.append("moe")
    text = "recompute {} changes nothing: no layer of this model has it."
    return [_idle(text.format(", ".join(idle)))] if idle else []


def recompute_for_nothing(policy: MemorySpec, layers: Sequence[Layer]) -> list[Warning]:
    """Ops that run again although nothing needs their output."""
    if "moe_down" not in policy.recompute or "full" in policy.recompute:
        return []
    if not any(layer.kind in ("moe", "mtp") for layer in layers):
        return []
    return [_warning("recompute-frees-nothing")]


def idle_fp8_store(policy: MemorySpec, layers: Sequence[Layer]) -> list[Warning]:
    """Names of `fp8_store` for which no layer packs anything."""
    alone = {one: policy.model_copy(update={"fp8_store": (one,)}) for one in policy.fp8_store}
    idle = [
        name for name, only in alone.items() if not any(stored(layer, only) for layer in layers)
    ]
    text = "fp8_store {} changes nothing: no layer keeps it in bf16."
    return [_idle(text.format(", ".join(idle)))] if idle else []


def idle_offload(policy: MemorySpec, layers: Sequence[Layer], memory: Memory) -> list[Warning]:
    """Activations that no layer keeps, and those whose backward comes too soon for a trip to the
    host."""
    named = policy.activations_on_host
    alone = {name: policy.model_copy(update={"offload": (name,)}) for name in named}
    idle = [
        name for name, only in alone.items() if not any(sent_by_op(one, only) for one in layers)
    ]
    absent = f"offload {', '.join(idle)} changes nothing: no layer keeps it."
    late = (
        f"offload {', '.join(named)} changes nothing: every backward pass follows its forward too "
        "soon for a copy out and back."
    )
    if len(idle) == len(named) or any("activations" in stage.host for stage in memory.stages):
        return [_idle(absent)] if idle else []
    return [_idle(late)]


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
    return [_warning("host-memory-of-others")]


def updated_on_host(policy: MemorySpec) -> list[Warning]:
    """The host's cores may be slower than its memory."""
    if policy.optimizer_update == "device" or not policy.states_on_host:
        return []
    return [_warning("update-at-memory-speed")]


def _idle(text: str) -> Warning:
    return Warning("idle-memory-policy", text)


def some(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are: `a, b, c and 4 more`."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _warning(code: str, **values: object) -> Warning:
    """The warning of this code, its text in `caveats.yaml` filled in."""
    return Warning(code, _texts()[code].format(**values))


@cache
def _texts() -> dict[str, str]:
    tree, _ = read_tree(Path(__file__).with_name("caveats.yaml"))  # it is kept, as data is not
    return plain(tree) if tree else {}


def caveats(scenario: Scenario, mesh: Mesh, chunks: Sequence[Chunk]) -> tuple[Warning, ...]:
    """Every warning of the plan."""
    return (
        *phases_by_themselves(scenario),
        *routing(scenario),
        *expert_exchange(scenario),
        *calibration(scenario),
        *software(scenario),
        *unmeasured_precision(scenario),
        *assumed_numbers(scenario),
        *assumed_scans(scenario, chunks),
        *experts_on_tensor_ranks(scenario),
        *tensor_across_nodes(mesh),
        *uneven_groups(scenario, mesh),
        *mixed_neighbours(mesh),
        *mixed_pods(scenario, mesh),
        *balance(scenario),
        *empty_chunks(chunks),
        *left_out(scenario),
        *idle_sequence_parallel(scenario),
        *idle_reshard(scenario),
        *idle_gather(scenario),
        *idle_buckets(scenario),
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
    return [_warning("phases-left-out", phases=len(scenario.phases))]


def routing(scenario: Scenario) -> list[Warning]:
    """Balanced routing is the fast and small end; any other is taken to be alike everywhere."""
    moe, chosen, ranks = scenario.model.moe, scenario.train.routing, scenario.parallel.expert
    if moe is None:
        return (
            []
            if chosen.kind == "balanced"
            else [_warning("idle-routing", model=scenario.model.name)]
        )
    if chosen.kind != "balanced":
        fullest = expert_load(scenario)
        return [_warning("fullest-expert-rank", kind=chosen.kind, ranks=ranks, fullest=fullest)]
    return [_warning("balanced-routing", experts=moe.experts)]


def expert_exchange(scenario: Scenario) -> list[Warning]:
    """A plain all-to-all, one that nothing hides, or one that takes nothing from the kernels beside
    it."""
    if scenario.model.moe is None or scenario.parallel.expert == 1:
        return []
    found: list[Warning] = []
    if scenario.parallel.dispatcher in ("alltoall", "padded", "loop"):
        found.append(_warning("plain-all-to-all"))
    if not scenario.parallel.schedule.pairs:
        found.append(_warning("exposed-all-to-all"))
    elif scenario.calibration.expert_sms == 0:
        found.append(_warning("free-overlap", calibration=scenario.calibration.name))
    return [*found, *idle_rates(scenario)]


def idle_rates(scenario: Scenario) -> list[Warning]:
    """Nobody has measured what the all-to-all loses beside kernels, but for one stack."""
    profile = scenario.calibration
    if not scenario.parallel.schedule.pairs or profile.expert_contention or profile.expert_wait:
        return []
    return [_warning("all-to-all-as-alone")]


def calibration(scenario: Scenario) -> list[Warning]:
    """Efficiencies were measured on some GPU, with some software."""
    profile, gpu = scenario.calibration, scenario.cluster.node.gpu.name
    if profile.gpu == gpu:
        return []
    return [
        _warning("calibration-of-another-gpu", profile=profile.name, measured=profile.gpu, gpu=gpu)
    ]


def software(scenario: Scenario) -> list[Warning]:
    """A stack that nobody chose, or none. Of a GPU that the catalog lacks, such as a CPU of the
    reference, no stack is known."""
    gpu, stack = scenario.cluster.node.gpu.name, scenario.software
    if stack is not None and not scenario.software_assumed:
        return []
    stacks = stacks_of(gpu)
    if stack is None:
        known = bool(stacks) or gpu.casefold() in catalog_parts("gpus")
        dispatch = f"{1e6 * scenario.calibration.dispatch:g} us"
        return [_warning("bare-kernels", dispatch=dispatch)] if known else []
    known = f"{len(stacks)} stacks have a calibration for {gpu}."
    if not stacks:
        known = f"No stack of the catalog has a calibration for {gpu}; each takes the GPU's own."
    return [_warning("software-assumed", name=stack.name, stacks=known)]


def unmeasured_precision(scenario: Scenario) -> list[Warning]:
    """Without measured FP8 products, those of bf16 stand for them; without FP4, those in FP8."""
    profile, precision = scenario.calibration, scenario.train.precision
    if precision in ("nvfp4", "mxfp4") and not has_fp4(profile):
        return [_warning("calibration-without-fp4", profile=profile.name)]
    measured = profile.matmuls is not None and profile.matmuls.fp8 is not None
    if precision != "fp8" or measured:
        return []
    return [_warning("calibration-without-fp8", profile=profile.name)]


_OF_FP4: Final = ("calibration.matmuls.fp4.",)
"""Numbers that only products in FP4 have."""


def assumed_numbers(scenario: Scenario) -> list[Warning]:
    """Some numbers of the hardware and its calibration have no source but our judgement."""
    assumed = sorted(path for path, number in scenario.ledger.items() if number.kind == "assumed")
    unused = () if scenario.train.precision in ("nvfp4", "mxfp4") else _OF_FP4
    efficiencies = [
        path for path in assumed if path.startswith("calibration.") and not path.startswith(unused)
    ]
    # Of failures and of rollouts the rooms that play them say it (`twin.goodput`,
    # `twin.kinds.weight_update`).
    others = [
        path
        for path in assumed
        if not path.startswith(("calibration.", "goodput.", "rl.", "software."))
    ]
    of_the_stack = sum(path.startswith("software.") for path in assumed)
    others += [f"software ({of_the_stack} numbers)"] if of_the_stack else []
    found: list[Warning] = []
    if efficiencies:
        found.append(_warning("assumed-calibration", names=some(efficiencies)))
    if others:
        found.append(_warning("assumed-hardware", paths=some(others)))
    return found


def assumed_scans(scenario: Scenario, chunks: Sequence[Chunk]) -> list[Warning]:
    """No profile was measured on linear attention or state-space blocks."""
    found = scan_range(scenario, chunks)
    if found is None:
        return []
    kind = scenario.model.mixer.kind if scenario.model.mixer else ""
    return [_warning("assumed-scans", mixer=kind, slow=found.slow, fast=found.fast)]


def experts_on_tensor_ranks(scenario: Scenario) -> list[Warning]:
    """Tensor ranks repeat the expert part of a layer when the sequence is not cut."""
    parallel = scenario.parallel
    if scenario.model.moe is None or parallel.tensor == 1 or parallel.sequence_parallel:
        return []
    return [_warning("experts-repeated-on-tensor-ranks", tensor=parallel.tensor)]


def tensor_across_nodes(mesh: Mesh) -> list[Warning]:
    """Tensor parallelism over the network is possible and rarely wanted."""
    degrees = {"tensor": mesh.tensor, "expert_tensor": mesh.expert_tensor}
    return [
        _warning("tensor-across-nodes", axis=axis, degree=degree, gpus=mesh.gpus_per_node)
        for axis, degree in degrees.items()
        if degree > mesh.gpus_per_node
    ]


def uneven_groups(scenario: Scenario, mesh: Mesh) -> list[Warning]:
    """Groups that have more members on one node than on another."""
    found = {group: members_per_node(mesh, group) for group in STRADDLING}
    if scenario.model.moe is None:
        del found["expert_data"], found["expert"]
    uneven = [(group, counts) for group, counts in found.items() if len(counts) > 1]
    return [
        _warning(
            "uneven-replicas" if group in REPLICAS else "straddling-groups",
            group=group,
            counts=" or ".join(str(count) for count in counts),
            gpus=mesh.gpus_per_node,
            each=gcd(*counts),
        )
        for group, counts in uneven
    ]


def mixed_neighbours(mesh: Mesh) -> list[Warning]:
    """Some stage boundaries lie inside a node, others between nodes; one placement stands for
    both."""
    shared = neighbours_share(mesh)
    if all(shared) or not any(shared):
        return []
    return [_warning("mixed-pipeline-neighbours", inside=sum(shared), boundaries=len(shared))]


def mixed_pods(scenario: Scenario, mesh: Mesh) -> list[Warning]:
    """Some stage boundaries lie under one leaf, others cross oversubscribed spines."""
    fabric = scenario.cluster.fabric
    if fabric.oversubscription == 1 or fabric.distance or any(neighbours_share(mesh)):
        return []
    shared = neighbours_share(in_pods(mesh, fabric.nodes_per_leaf))
    if all(shared) or not any(shared):
        return []
    return [
        _warning(
            "mixed-pipeline-pods",
            inside=sum(shared),
            boundaries=len(shared),
            oversubscription=fabric.oversubscription,
        )
    ]


def balance(scenario: Scenario) -> list[Warning]:
    """Automatic splits are the best of a few."""
    if scenario.parallel.layers is not None or scenario.parallel.pipeline == 1:
        return []
    return [_warning("balanced-by-kernels")]


def empty_chunks(chunks: Sequence[Chunk]) -> list[Warning]:
    """A chunk without layers only passes messages on."""
    empty = [str(chunk.index) for chunk in chunks if not chunk.layers]
    if not empty:
        return []
    return [_warning("empty-chunks", count=len(empty), chunks=len(chunks), empty=", ".join(empty))]


def left_out(scenario: Scenario) -> list[Warning]:
    """The model's entry says what it simplifies."""
    model = scenario.model
    if not model.left_out:
        return []
    return [_warning("model-simplified", model=model.name, left_out=model.left_out)]


def idle_sequence_parallel(scenario: Scenario) -> list[Warning]:
    """Sequence parallelism works on the tensor ranks."""
    if not scenario.parallel.sequence_parallel or scenario.parallel.tensor > 1:
        return []
    return [_warning("idle-sequence-parallel")]


def idle_reshard(scenario: Scenario) -> list[Warning]:
    """Only sharded parameters are gathered and freed."""
    if scenario.parallel.reshard_after_forward or scenario.parallel.zero == 3:
        return []
    return [_warning("idle-reshard-after-forward", zero=scenario.parallel.zero)]


def idle_gather(scenario: Scenario) -> list[Warning]:
    """New weights are gathered once per step where states are sharded and weights are not."""
    parallel = scenario.parallel
    if not parallel.overlap_param_gather or parallel.zero in (1, 2):
        return []
    why = "no weights are gathered" if parallel.zero == 0 else "weights are gathered in every pass"
    return [_warning("idle-overlap-param-gather", zero=parallel.zero, why=why)]


def idle_buckets(scenario: Scenario) -> list[Warning]:
    """Only a first stage of one chunk has buckets."""
    parallel = scenario.parallel
    reduces = parallel.overlap_grad_reduce and parallel.zero < 2
    gathers = parallel.overlap_param_gather and parallel.zero in (1, 2)
    chunks = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).stage_of
    one = chunks.count(0) == 1
    if parallel.bucket_size is None or (one and (reduces or gathers)):
        return []
    return [_warning("idle-bucket-size")]


def idle_pieces(scenario: Scenario) -> list[Warning]:
    """Tensor ranks have the collectives that could go in pieces."""
    parallel = scenario.parallel
    if parallel.overlap_tensor == "none" or parallel.tensor > 1:
        return []
    return [_warning("idle-overlap-tensor", overlap_tensor=parallel.overlap_tensor)]


def idle_copies(scenario: Scenario) -> list[Warning]:
    """Sequences are gathered and summed under sequence parallelism only."""
    parallel = scenario.parallel
    if not parallel.sequence_copies or (parallel.sequence_parallel and parallel.tensor > 1):
        return []
    return [_warning("idle-sequence-copies")]


def idle_dispatcher(scenario: Scenario) -> list[Warning]:
    """A dispatcher moves tokens between expert ranks."""
    parallel = scenario.parallel
    if parallel.dispatcher not in ("deepep", "hybridep", "allgather") or parallel.expert > 1:
        return []
    return [_warning("idle-dispatcher", dispatcher=parallel.dispatcher)]


def exposed_context(scenario: Scenario) -> list[Warning]:
    """Keys and values are gathered in line."""
    parallel = scenario.parallel
    if parallel.context == parallel.context_heads or parallel.context_ring:
        return []
    latents = (
        " Latent attention sends keys and values of every head, not the latents."
        if scenario.model.attention.kind == "mla"
        else ""
    )
    return [_warning("exposed-context-exchange", latents=latents)]


def sharded_per_microbatch(scenario: Scenario, mesh: Mesh) -> list[Warning]:
    """Sharded gradients and parameters travel for every micro-batch."""
    zero = scenario.parallel.zero
    if zero < 2 or max(mesh.dense_replicas, mesh.expert_replicas) == 1:
        return []
    if microbatches(scenario) == 1:
        return []
    moved = "gradients are reduced" if zero == 2 else "parameters are gathered, gradients reduced,"
    return [
        _warning(
            "sharded-per-micro-batch", zero=zero, moved=moved, microbatches=microbatches(scenario)
        )
    ]
