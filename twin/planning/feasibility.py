"""Which layouts are possible: small named rules, each with the nearest fix.

A rule looks at one question and returns every problem it finds, or nothing when another rule has to
be satisfied first (a micro-batch count needs degrees that divide). `problems` asks them all, so
that a planner sees every error at once. What is possible but deserves a word is a warning of the
plan, not a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import gcd, lcm, prod
from typing import Final

from twin.errors import Problem
from twin.planning import stages
from twin.planning.mesh import (
    GROUPS,
    STRADDLING,
    divisors,
    lay_out,
    members_per_node,
    nearest_even,
    of_language,
    stages_agree,
)
from twin.planning.model_rules import (
    adapters_have_no_prediction_modules,
    communication_leaves_sms,
    context_ranks_have_heads,
    copies_of_shards_divide_replicas,
    dense_layers_are_layers,
    every_second_product_is_known,
    expert_divides_experts,
    expert_tensor_divides_widths,
    experts_need_a_mixture,
    experts_take_each_token_once,
    fully_shard_shards_parameters,
    images_have_an_encoder,
    loads_name_every_expert,
    measured_power_is_above_idle,
    multiples,
    nearest,
    pieces_need_cut_sequences,
    places_need_their_dispatcher,
    positions_cover_the_sequence,
    problem,
    products_need_their_tensor_cores,
    query_heads_share_keys_evenly,
    ranks_divide_the_sequence,
    switches_help_only_where_they_can,
    tensor_divides_heads,
    tensor_divides_vocabulary,
    tensor_divides_widths,
    tokens_choose_existing_experts,
)
from twin.scenario import Scenario

Rule = Callable[[Scenario], list[Problem]]

CODES: Final = {
    "TW101": "groups straddle nodes unevenly",
    "TW102": "tensor x context x pipeline does not divide the GPUs",
    "TW103": "expert parallelism on a model without experts",
    "TW104": "the expert degree does not divide the experts",
    "TW105": "the ranks of an expert grid do not divide the ranks of a stage",
    "TW106": "the tensor degree does not divide the attention heads",
    "TW107": "the tensor degree does not divide the feed-forward width",
    "TW108": "the tensor degree does not divide the vocabulary",
    "TW109": "the sequence does not divide over its ranks",
    "TW110": "key-value heads do not divide the heads",
    "TW111": "a token chooses more experts than there are",
    "TW112": "more leading dense layers than layers",
    "TW113": "the sequence is longer than the learned positions",
    "TW114": "the schedule cannot run this shape",
    "TW115": "the global batch does not divide into micro-batches",
    "TW116": "the run is shorter than one step",
    "TW117": "more pipeline stages than layers",
    "TW118": "more virtual stages than layers can fill",
    "TW119": "parallel.layers does not name every chunk",
    "TW120": "parallel.layers has a negative entry",
    "TW121": "parallel.layers does not add up to the model",
    "TW122": "too many micro-batches to simulate",
    "TW123": "the kernels of a micro-batch take too little time to count",
    "TW124": "the expert-tensor degree does not divide the experts' width",
    "TW125": "expert-tensor parallelism without sequence parallelism",
    "TW126": "the rank order puts a rank on two stages",
    "TW127": "parameters stay gathered for several micro-batches in flight",
    "TW128": "gradients sharded pass by pass over stages that run at different times",
    "TW129": "policies by stage that are not one per stage or chunk",
    "TW130": "collectives by switches that do not add up",
    "TW131": "copies of shards that do not divide the replicas",
    "TW132": "context ranks that cannot share heads, or pass keys and values on",
    "TW133": "images without an encoder, or an encoder that its GPUs cannot run",
    "TW135": "FP8 or FP4 on a GPU without such tensor cores",
    "TW136": "loads of experts that do not name every expert, or every layer",
    "TW137": "a power limit that is not above the idle power",
    "TW166": "a histogram in which an expert would get a token twice",
    "TW167": "communication that holds every SM",
    "TW374": "tensor collectives in pieces without sequence parallelism",
    "TW375": "alternate_products on a model with an unknown order of GEMMs",
    "TW376": "fully_shard without sharded parameters",
    "TW377": "adapters on modules that predict further tokens",
    "TW378": "places for experts with a dispatcher that pads nothing",
}
"""Stable codes of the rules of layouts, with what each means."""

MOST_PLAYED: Final = 2048
"""Micro-batches that an order which never repeats may have. They are all played, at about 10 ms and
0.4 MB each for 48 layers."""
MOST_ORDERED: Final = 1_000_000
"""Micro-batches of an order that repeats. It is played in part, but written out whole, at about
5 us for each."""


def problems(scenario: Scenario) -> list[Problem]:
    """Every problem of the layout, in the order of `RULES`."""
    return [found for rule in RULES for found in rule(scenario)]


def gpus_fill_the_grid(scenario: Scenario) -> list[Problem]:
    """Tensor x context x pipeline divides the GPUs."""
    parallel, cluster = scenario.parallel, scenario.cluster
    if _grid_is_whole(scenario) or of_language(scenario)[0] < cluster.gpus:
        return []  # what images have of it is told with them
    axes = _grid_axes(scenario)
    grid = prod(getattr(parallel, axis) for axis in axes)
    product = " x ".join(f"{axis}={getattr(parallel, axis)}" for axis in axes)
    message = f"{product} = {grid} does not divide {cluster.gpus} GPUs"
    step = lcm(grid, cluster.node.gpus) // cluster.node.gpus
    nodes = nearest("nodes", cluster.nodes, multiples(cluster.nodes, step))
    whole = nodes.removeprefix("nearest ")
    others = {axis: grid // getattr(parallel, axis) for axis in axes}
    axis = next((axis for axis in reversed(axes) if cluster.gpus % others[axis] == 0), None)
    if axis is None:
        hint = f"change {'two of' if len(axes) > 2 else 'both'} {_listed(axes)}, or {whole}"
        return [problem("TW102", "parallel.tensor", message, hint)]
    fits = divisors(cluster.gpus // others[axis])
    hint = f"{nearest(axis, getattr(parallel, axis), _working(scenario, axis, fits))}, or {whole}"
    return [problem("TW102", f"parallel.{axis}", message, hint)]


def expert_grid_divides_stages(scenario: Scenario) -> list[Problem]:
    """Experts lie on the ranks of a stage in a grid of their own."""
    moe, parallel = scenario.model.moe, scenario.parallel
    if moe is None or not _grid_is_whole(scenario):
        return []
    if expert_divides_experts(scenario) or expert_tensor_divides_widths(scenario):
        return []
    ranks, grid = lay_out(scenario).stage_ranks, parallel.expert_tensor * parallel.expert
    if ranks % grid == 0:
        return []
    product = f"expert={parallel.expert}"
    if parallel.expert_tensor > 1:
        product += f" x expert_tensor={parallel.expert_tensor} = {grid}"
    message = f"{product} does not divide the {ranks} ranks of a stage (GPUs / pipeline)"
    if ranks % parallel.expert_tensor:
        fits = divisors(gcd(ranks, moe.width))
        hint = nearest("expert_tensor", parallel.expert_tensor, fits)
        return [problem("TW105", "parallel.expert_tensor", message, hint)]
    fits = divisors(gcd(ranks // parallel.expert_tensor, moe.experts))
    return [problem("TW105", "parallel.expert", message, nearest("expert", parallel.expert, fits))]


def cut_experts_need_cut_sequences(scenario: Scenario) -> list[Problem]:
    """Expert-tensor ranks gather tokens from each other: tensor ranks must not all bring the
    same ones (Megatron-LM refuses that, too)."""
    parallel = scenario.parallel
    if parallel.expert_tensor == 1 or parallel.tensor == 1 or parallel.sequence_parallel:
        return []
    message = (
        f"expert_tensor={parallel.expert_tensor} with tensor={parallel.tensor} and no "
        "sequence_parallel: tensor ranks would bring the same tokens to the experts"
    )
    hint = "set sequence_parallel to true, or expert_tensor to 1"
    return [problem("TW125", "parallel.expert_tensor", message, hint)]


def a_rank_has_one_stage(scenario: Scenario) -> list[Problem]:
    """Dense weights and experts are cut by different degrees, in one order: pipeline has to be
    where both put a rank on one stage."""
    if scenario.model.moe is None or not _grid_is_whole(scenario):
        return []
    mesh = lay_out(scenario)
    if mesh.stage_ranks % (mesh.expert_tensor * mesh.expert) or stages_agree(mesh):
        return []
    message = (
        f"order=[{', '.join(mesh.order)}] puts ranks on one stage for dense weights and on another "
        "for experts"
    )
    order = [axis for axis in mesh.order if axis != "pipeline"]
    hint = f"write pipeline last: [{', '.join(order)}, pipeline]"
    return [problem("TW126", "parallel.order", message, hint)]


def microbatches_are_whole(scenario: Scenario) -> list[Problem]:
    """Every data-parallel rank gets as many micro-batches."""
    if not _grid_is_whole(scenario):
        return []
    micro, data = scenario.parallel.micro_batch, lay_out(scenario).data
    sequences = scenario.train.global_batch_sequences
    if sequences % data:
        message = (
            f"{sequences} sequences do not divide over data={data} ranks (GPUs / "
            f"({' x '.join(_grid_axes(scenario))})) in micro-batches of {micro}"
        )
        hint = nearest("global_batch", sequences, _batches(scenario, data * micro), "seq")
        return [problem("TW115", "train.global_batch", message, hint)]
    if sequences // data % micro:
        message = (
            f"micro_batch={micro} does not divide the {sequences // data} sequences of a data rank"
        )
        hint = nearest("micro_batch", micro, divisors(sequences // data))
        return [problem("TW115", "parallel.micro_batch", message, hint)]
    return []


def _batches(scenario: Scenario, each: int) -> list[int]:
    """Global batches around the scenario's, in sequences, of whole micro-batches that the schedule
    can run; `each` sequences are one micro-batch of every data rank."""
    parallel, middle = scenario.parallel, scenario.train.global_batch_sequences // each

    def runs(count: int) -> bool:
        return not parallel.schedule.problems(parallel.pipeline, parallel.virtual, count)

    below = range(middle, max(0, middle - parallel.pipeline), -1)
    above = range(middle + 1, middle + 1 + parallel.pipeline)
    found = (next(filter(runs, around), None) for around in (below, above))
    return [count * each for count in found if count is not None]


def tokens_fill_a_step(scenario: Scenario) -> list[Problem]:
    """The run is at least one step long."""
    train = scenario.train
    if train.tokens >= train.global_batch:
        return []
    message = f"tokens={train.tokens} is less than one global batch of {train.global_batch}"
    return [problem("TW116", "train.tokens", message, f"at least {train.global_batch}tok")]


def every_stage_has_a_layer(scenario: Scenario) -> list[Problem]:
    """No more stages than transformer layers, and no round of chunks that would be empty on every
    stage."""
    parallel, layers = scenario.parallel, scenario.model.layers
    if parallel.pipeline > layers:
        message = f"pipeline={parallel.pipeline} is more than {layers} layers"
        fitting = range(1, layers + 1)
        if _grid_is_whole(scenario):
            fits = divisors(scenario.cluster.gpus // (parallel.tensor * parallel.context))
            fitting = [pipeline for pipeline in fits if pipeline <= layers]
        hint = nearest("pipeline", parallel.pipeline, fitting)
        return [problem("TW117", "parallel.pipeline", message, hint)]
    enough = -(-layers // parallel.pipeline)
    if parallel.virtual <= enough:
        return []
    message = (
        f"virtual={parallel.virtual} cuts {layers} layers into "
        f"{parallel.pipeline * parallel.virtual} chunks, a whole round of which would be empty"
    )
    return [problem("TW118", "parallel.virtual", message, f"at most {enough}")]


def layers_fill_the_chunks(scenario: Scenario) -> list[Problem]:
    """A written split names every chunk and adds up to the model."""
    parallel = scenario.parallel
    if parallel.layers is None:
        return []
    return stages.problems(
        parallel.layers, scenario.model.layers, parallel.pipeline, parallel.virtual
    )


def policies_name_every_stage(scenario: Scenario) -> list[Problem]:
    """Memory policies that differ are one per stage, or one per chunk."""
    parallel = scenario.parallel
    if scenario.memory.by_stage is None or schedule_can_run(scenario):
        return []
    chunks = len(parallel.schedule.chunk_map(parallel.pipeline, parallel.virtual).stage_of)
    return scenario.memory.obstacles(parallel.pipeline, chunks)


def whole_order_can_be_played(scenario: Scenario) -> list[Problem]:
    """An order that never repeats is played in full, any other is written out: both have an end."""
    parallel = scenario.parallel
    if not _grid_is_whole(scenario) or microbatches_are_whole(scenario):
        return []
    count, kind = microbatches(scenario), parallel.schedule.kind
    shape = parallel.pipeline, parallel.virtual, count
    if count <= MOST_PLAYED or parallel.schedule.problems(*shape):
        return []
    # Whether a longer order repeats is not asked: the answer may take as long as the order.
    repeats = count > MOST_ORDERED or parallel.schedule.period(*shape) is not None
    most = MOST_ORDERED if repeats else MOST_PLAYED
    if count <= most:
        return []
    message = f"{count:,} micro-batches per step are more than the {most:,} that can be simulated"
    message += "" if repeats else f" of {kind}, whose order never repeats"
    other = "" if repeats else ", or schedule 1f1b"
    batch = most * lay_out(scenario).data * parallel.micro_batch
    hint = f"at most {batch}seq, a larger micro_batch{other}"
    return [problem("TW122", "train.global_batch", message, hint)]


def schedule_can_run(scenario: Scenario) -> list[Problem]:
    """What the chosen schedule says about its stages, chunks and micro-batches."""
    parallel = scenario.parallel
    if not _grid_is_whole(scenario) or microbatches_are_whole(scenario):
        return []
    found = parallel.schedule.problems(parallel.pipeline, parallel.virtual, microbatches(scenario))
    return [problem("TW114", obstacle.field, obstacle.message, obstacle.hint) for obstacle in found]


def groups_sit_evenly(scenario: Scenario) -> list[Problem]:
    """Every group that shares matrices has as many members on each node it touches. Others may sit
    otherwise, as where 72 GPUs share NVLink and groups are of 16 (`uneven_groups`)."""
    mesh = lay_out(scenario)
    if not _grid_is_whole(scenario) or mesh.stage_ranks % (mesh.expert_tensor * mesh.expert):
        return []
    found: dict[str, Problem] = {}
    for axis in GROUPS:
        if axis in STRADDLING or (GROUPS[axis][0] == "experts" and scenario.model.moe is None):
            continue
        counts = members_per_node(mesh, axis)
        if len(counts) == 1:
            continue
        message = (
            f"{axis} groups straddle nodes of {mesh.gpus_per_node} GPUs unevenly: "
            f"{' or '.join(str(count) for count in counts)} members on a node"
        )
        hint = nearest(axis, getattr(mesh, axis), nearest_even(mesh, axis, axis))
        found[axis] = problem("TW101", f"parallel.{axis}", message, hint)
    return list(found.values())


def kept_parameters_serve_one_microbatch(scenario: Scenario) -> list[Problem]:
    """What stays gathered from a micro-batch's forward to its backward must be wanted by no other
    micro-batch in between: who gathers and who frees is then not defined (torch's pipeline
    schedules gather once per step instead)."""
    parallel = scenario.parallel
    if parallel.zero < 3 or parallel.reshard_after_forward:
        return []
    alone = parallel.pipeline * parallel.virtual == 1
    if (
        not _grid_is_whole(scenario)
        or microbatches_are_whole(scenario)
        or schedule_can_run(scenario)
    ):
        return []
    if alone and not _forwards_meet(scenario):
        return []
    message = (
        "reshard_after_forward=false keeps parameters from a micro-batch's forward to its "
        f"backward, and with pipeline={parallel.pipeline}, virtual={parallel.virtual} and "
        f"{parallel.schedule.kind} other micro-batches pass in between"
    )
    hint = "set reshard_after_forward to true, or zero to 2"
    return [problem("TW127", "parallel.reshard_after_forward", message, hint)]


def copies_reduce_at_the_end(scenario: Scenario) -> list[Problem]:
    """Stages with copies of the same weights share their gradients; they are not in the same pass
    at the same time, so that they cannot reduce after each."""
    parallel = scenario.parallel
    if parallel.zero < 2 or not _grid_is_whole(scenario) or lay_out(scenario).copies == 1:
        return []
    message = (
        f"zero={parallel.zero} reduces gradients in every pass, and {parallel.schedule.kind} holds "
        "each part of the model on two stages, which pass it at different times"
    )
    hint = "set zero to 1, or schedule kind to 1f1b"
    return [problem("TW128", "parallel.zero", message, hint)]


RULES: Final[tuple[Rule, ...]] = (
    gpus_fill_the_grid,
    experts_need_a_mixture,
    expert_divides_experts,
    expert_tensor_divides_widths,
    expert_grid_divides_stages,
    cut_experts_need_cut_sequences,
    a_rank_has_one_stage,
    tensor_divides_heads,
    tensor_divides_widths,
    tensor_divides_vocabulary,
    ranks_divide_the_sequence,
    pieces_need_cut_sequences,
    every_second_product_is_known,
    fully_shard_shards_parameters,
    adapters_have_no_prediction_modules,
    copies_of_shards_divide_replicas,
    context_ranks_have_heads,
    switches_help_only_where_they_can,
    query_heads_share_keys_evenly,
    tokens_choose_existing_experts,
    dense_layers_are_layers,
    positions_cover_the_sequence,
    microbatches_are_whole,
    tokens_fill_a_step,
    every_stage_has_a_layer,
    layers_fill_the_chunks,
    schedule_can_run,
    policies_name_every_stage,
    whole_order_can_be_played,
    groups_sit_evenly,
    kept_parameters_serve_one_microbatch,
    copies_reduce_at_the_end,
    products_need_their_tensor_cores,
    images_have_an_encoder,
    loads_name_every_expert,
    experts_take_each_token_once,
    places_need_their_dispatcher,
    communication_leaves_sms,
    measured_power_is_above_idle,
)
"""All rules, in the order in which their problems are listed."""


def microbatches(scenario: Scenario) -> int:
    """Micro-batches per data-parallel rank and step: global batch in sequences / (data x
    micro-batch)."""
    sequences = scenario.train.global_batch_sequences
    return sequences // (lay_out(scenario).data * scenario.parallel.micro_batch)


def _grid_is_whole(scenario: Scenario) -> bool:
    parallel, (gpus, stages) = scenario.parallel, of_language(scenario)
    return gpus > 0 and gpus % (parallel.tensor * parallel.context * max(1, stages)) == 0


def _grid_axes(scenario: Scenario) -> tuple[str, ...]:
    """The axes that cut a replica; context only where there is any."""
    context = ("context",) if scenario.parallel.context > 1 else ()
    return ("tensor", *context, "pipeline")


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _forwards_meet(scenario: Scenario) -> bool:
    """Whether the order of a single chunk has a forward between a forward and its backward."""
    count = min(2, microbatches(scenario))
    kinds = [action.kind for action in scenario.parallel.schedule.order(1, 1, count)[0]]
    return ("F", "F") in pairwise(kinds)


def _working(scenario: Scenario, axis: str, degrees: Sequence[int]) -> Iterable[int]:
    """Of the degrees that fill the grid those that no other rule blames; if there is none, all."""
    others = [rule for rule in RULES if rule is not gpus_fill_the_grid]

    def works(degree: int) -> bool:
        parallel = scenario.parallel.model_copy(update={axis: degree})
        changed = scenario.model_copy(update={"parallel": parallel})
        blamed = (found.path for rule in others for found in rule(changed))
        return f"parallel.{axis}" not in blamed

    return [degree for degree in degrees if works(degree)] or degrees
