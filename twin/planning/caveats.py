"""What a reader must know before trusting a plan's numbers: assumptions that the layout or the
inputs bring in, as data.

Each rule looks at one assumption and returns its warnings; `caveats` asks them all. A rule says
what is assumed and in which direction the truth lies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from math import gcd
from pathlib import Path
from typing import Final

from twin.arch.ops import Op
from twin.hardware import matmul
from twin.hardware.roofline import has_fp4
from twin.loading.catalog import catalog_parts, stacks_of
from twin.loading.files import read_tree
from twin.loading.tree import plain
from twin.planning.experts import expert_load
from twin.planning.feasibility import microbatches
from twin.planning.layer_times import priced_for, walked, work_of
from twin.planning.mesh import REPLICAS, STRADDLING, in_pods, members_per_node, neighbours_share
from twin.planning.scans import scan_range
from twin.planning.types import Chunk, Mesh, Warning
from twin.scenario import Scenario
from twin.spec.calibration import Span

UNMEASURED: Final = 0.1
"""Part of the kernels' time from which on products of unmeasured shapes are told of: OURS; below it
they would have to be missed by half to move a step by 5 %."""
_NAMED: Final = 3
"""Names of assumed numbers that a warning tells; `twin resolve` has all with their sources."""


def some(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are: `a, b, c and 4 more`."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def warning(code: str, **values: object) -> Warning:
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
        *unmeasured_shapes(scenario, chunks),
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
    return [warning("phases-left-out", phases=len(scenario.phases))]


def routing(scenario: Scenario) -> list[Warning]:
    """Balanced routing is the fast and small end; any other is taken to be alike everywhere."""
    moe, chosen, ranks = scenario.model.moe, scenario.train.routing, scenario.parallel.expert
    if moe is None:
        return (
            []
            if chosen.kind == "balanced"
            else [warning("idle-routing", model=scenario.model.name)]
        )
    if chosen.kind != "balanced":
        fullest = expert_load(scenario)
        return [warning("fullest-expert-rank", kind=chosen.kind, ranks=ranks, fullest=fullest)]
    return [warning("balanced-routing", experts=moe.experts)]


def expert_exchange(scenario: Scenario) -> list[Warning]:
    """A plain all-to-all, one that nothing hides, or one that takes nothing from the kernels beside
    it."""
    if scenario.model.moe is None or scenario.parallel.expert == 1:
        return []
    found: list[Warning] = []
    if scenario.parallel.dispatcher in ("alltoall", "padded", "loop"):
        found.append(warning("plain-all-to-all"))
    if not scenario.parallel.schedule.pairs:
        found.append(warning("exposed-all-to-all"))
    elif scenario.calibration.expert_sms == 0:
        found.append(warning("free-overlap", calibration=scenario.calibration.name))
    return [*found, *idle_rates(scenario)]


def idle_rates(scenario: Scenario) -> list[Warning]:
    """Nobody has measured what the all-to-all loses beside kernels, but for one stack."""
    profile = scenario.calibration
    if not scenario.parallel.schedule.pairs or profile.expert_contention or profile.expert_wait:
        return []
    return [warning("all-to-all-as-alone")]


def calibration(scenario: Scenario) -> list[Warning]:
    """Efficiencies were measured on some GPU, with some software."""
    profile, gpu = scenario.calibration, scenario.cluster.node.gpu.name
    if profile.gpu == gpu:
        return []
    return [
        warning("calibration-of-another-gpu", profile=profile.name, measured=profile.gpu, gpu=gpu)
    ]


def unmeasured_shapes(scenario: Scenario, chunks: Sequence[Chunk]) -> list[Warning]:
    """A law of products is fitted on sides and inner sums between two ends."""
    count = Counter(id(layer) for chunk in chunks for layer in chunk.layers)
    layers = {id(layer): layer for chunk in chunks for layer in chunk.layers}
    profile, priced, total = scenario.calibration, priced_for(scenario), 0.0
    beyond, laws = Counter[str](), set[tuple[Span, Span]]()
    for key, layer in layers.items():
        for op, way in (*walked(layer, "F"), *walked(layer, "B")):
            if not isinstance(op, Op):
                continue
            work = work_of(op, way)
            seconds = count[key] * priced(op.kind, work, way != "forward").seconds
            law = matmul.law(work.product, profile) if work.product else None
            total += seconds
            if work.product and law is not None and not matmul.measured(work.product, law):
                beyond[op.name] += seconds  # pyright: ignore[reportArgumentType]
                laws.add((law.sides, law.inner))
    if beyond.total() <= UNMEASURED * total:
        return []
    names = some([name for name, _ in beyond.most_common()])
    sides, inner = (" or ".join(sorted({_ends(one[at]) for one in laws})) for at in (0, 1))
    share = 100 * beyond.total() / total
    return [
        warning(
            "unmeasured-shapes",
            share=share,
            profile=profile.name,
            names=names,
            sides=sides,
            inner=inner,
        )
    ]


def _ends(span: Span) -> str:
    return f"{span[0]:,} to {span[1]:,}"


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
        return [warning("bare-kernels", dispatch=dispatch)] if known else []
    known = f"{len(stacks)} stacks have a calibration for {gpu}."
    if not stacks:
        known = f"No stack of the catalog has a calibration for {gpu}; each takes the GPU's own."
    return [warning("software-assumed", name=stack.name, stacks=known)]


def unmeasured_precision(scenario: Scenario) -> list[Warning]:
    """Without measured FP8 products, those of bf16 stand for them; without FP4, those in FP8."""
    profile, precision = scenario.calibration, scenario.train.precision
    if precision in ("nvfp4", "mxfp4") and not has_fp4(profile):
        return [warning("calibration-without-fp4", profile=profile.name)]
    measured = profile.matmuls is not None and profile.matmuls.fp8 is not None
    if precision != "fp8" or measured:
        return []
    return [warning("calibration-without-fp8", profile=profile.name)]


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
        found.append(warning("assumed-calibration", names=some(efficiencies)))
    if others:
        found.append(warning("assumed-hardware", paths=some(others)))
    return found


def assumed_scans(scenario: Scenario, chunks: Sequence[Chunk]) -> list[Warning]:
    """Few profiles were measured on linear attention or state-space blocks."""
    found = scan_range(scenario, chunks)
    if found is None:
        return []
    kind = scenario.model.mixer.kind if scenario.model.mixer else ""
    return [warning("assumed-scans", mixer=kind, **asdict(found))]


def experts_on_tensor_ranks(scenario: Scenario) -> list[Warning]:
    """Tensor ranks repeat the expert part of a layer when the sequence is not cut."""
    parallel = scenario.parallel
    if scenario.model.moe is None or parallel.tensor == 1 or parallel.sequence_parallel:
        return []
    return [warning("experts-repeated-on-tensor-ranks", tensor=parallel.tensor)]


def tensor_across_nodes(mesh: Mesh) -> list[Warning]:
    """Tensor parallelism over the network is possible and rarely wanted."""
    degrees = {"tensor": mesh.tensor, "expert_tensor": mesh.expert_tensor}
    return [
        warning("tensor-across-nodes", axis=axis, degree=degree, gpus=mesh.gpus_per_node)
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
        warning(
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
    return [warning("mixed-pipeline-neighbours", inside=sum(shared), boundaries=len(shared))]


def mixed_pods(scenario: Scenario, mesh: Mesh) -> list[Warning]:
    """Some stage boundaries lie under one leaf, others cross oversubscribed spines."""
    fabric = scenario.cluster.fabric
    if fabric.oversubscription == 1 or fabric.distance or any(neighbours_share(mesh)):
        return []
    shared = neighbours_share(in_pods(mesh, fabric.nodes_per_leaf))
    if all(shared) or not any(shared):
        return []
    return [
        warning(
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
    return [warning("balanced-by-kernels")]


def empty_chunks(chunks: Sequence[Chunk]) -> list[Warning]:
    """A chunk without layers only passes messages on."""
    empty = [str(chunk.index) for chunk in chunks if not chunk.layers]
    if not empty:
        return []
    return [warning("empty-chunks", count=len(empty), chunks=len(chunks), empty=", ".join(empty))]


def left_out(scenario: Scenario) -> list[Warning]:
    """The model's entry says what it simplifies."""
    model = scenario.model
    if not model.left_out:
        return []
    return [warning("model-simplified", model=model.name, left_out=model.left_out)]


def idle_sequence_parallel(scenario: Scenario) -> list[Warning]:
    """Sequence parallelism works on the tensor ranks."""
    if not scenario.parallel.sequence_parallel or scenario.parallel.tensor > 1:
        return []
    return [warning("idle-sequence-parallel")]


def idle_reshard(scenario: Scenario) -> list[Warning]:
    """Only sharded parameters are gathered and freed."""
    if scenario.parallel.reshard_after_forward or scenario.parallel.zero == 3:
        return []
    return [warning("idle-reshard-after-forward", zero=scenario.parallel.zero)]


def idle_gather(scenario: Scenario) -> list[Warning]:
    """New weights are gathered once per step where states are sharded and weights are not."""
    parallel = scenario.parallel
    if not parallel.overlap_param_gather or parallel.zero in (1, 2):
        return []
    why = "no weights are gathered" if parallel.zero == 0 else "weights are gathered in every pass"
    return [warning("idle-overlap-param-gather", zero=parallel.zero, why=why)]


def idle_buckets(scenario: Scenario) -> list[Warning]:
    """Only a first stage of one chunk has buckets."""
    parallel = scenario.parallel
    reduces = parallel.overlap_grad_reduce and parallel.zero < 2
    gathers = parallel.overlap_param_gather and parallel.zero in (1, 2)
    chunks = parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).stage_of
    one = chunks.count(0) == 1
    if parallel.bucket_size is None or (one and (reduces or gathers)):
        return []
    return [warning("idle-bucket-size")]


def idle_pieces(scenario: Scenario) -> list[Warning]:
    """Tensor ranks have the collectives that could go in pieces."""
    parallel = scenario.parallel
    if parallel.overlap_tensor == "none" or parallel.tensor > 1:
        return []
    return [warning("idle-overlap-tensor", overlap_tensor=parallel.overlap_tensor)]


def idle_copies(scenario: Scenario) -> list[Warning]:
    """Sequences are gathered and summed under sequence parallelism only."""
    parallel = scenario.parallel
    if not parallel.sequence_copies or (parallel.sequence_parallel and parallel.tensor > 1):
        return []
    return [warning("idle-sequence-copies")]


def idle_dispatcher(scenario: Scenario) -> list[Warning]:
    """A dispatcher moves tokens between expert ranks."""
    parallel = scenario.parallel
    if parallel.dispatcher not in ("deepep", "hybridep", "allgather") or parallel.expert > 1:
        return []
    return [warning("idle-dispatcher", dispatcher=parallel.dispatcher)]


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
    return [warning("exposed-context-exchange", latents=latents)]


def sharded_per_microbatch(scenario: Scenario, mesh: Mesh) -> list[Warning]:
    """Sharded gradients and parameters travel for every micro-batch."""
    zero = scenario.parallel.zero
    if zero < 2 or max(mesh.dense_replicas, mesh.expert_replicas) == 1:
        return []
    if microbatches(scenario) == 1:
        return []
    moved = "gradients are reduced" if zero == 2 else "parameters are gathered, gradients reduced,"
    return [
        warning(
            "sharded-per-micro-batch", zero=zero, moved=moved, microbatches=microbatches(scenario)
        )
    ]
