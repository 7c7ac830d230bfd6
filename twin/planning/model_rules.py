"""Rules of layouts that the model's sizes set: what degrees have to divide, and what a model has to
be. Each is a rule of `twin.planning.feasibility`, which asks them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd, lcm

from twin.arch.recompute import ALTERNATE
from twin.arch.stack import attentions, dense_widths, mixer_heads, sequence_parts
from twin.errors import Problem
from twin.planning.mesh import divisors, lay_out, next_to, of_language
from twin.routing.by_layer import ByLayer
from twin.routing.histogram import Histogram
from twin.scenario import Scenario
from twin.spec.model import GroupedAttention, Moe
from twin.spec.vision import ImagesSpec


def experts_need_a_mixture(scenario: Scenario) -> list[Problem]:
    """Expert parallelism needs experts."""
    if scenario.model.moe is not None:
        return []
    return [
        problem(
            "TW103",
            f"parallel.{axis}",
            f"{axis}={degree} on {scenario.model.name}, which has no experts",
            f"set {axis} to 1",
        )
        for axis in ("expert", "expert_tensor")
        if (degree := getattr(scenario.parallel, axis)) > 1
    ]


def expert_divides_experts(scenario: Scenario) -> list[Problem]:
    """Every expert rank holds as many experts."""
    moe, expert = scenario.model.moe, scenario.parallel.expert
    if moe is None or moe.experts % expert == 0:
        return []
    message = f"expert={expert} does not divide {moe.experts} experts"
    return [
        problem("TW104", "parallel.expert", message, nearest("", expert, divisors(moe.experts)))
    ]


def expert_tensor_divides_widths(scenario: Scenario) -> list[Problem]:
    """Expert-tensor ranks cut every expert by columns."""
    moe, degree = scenario.model.moe, scenario.parallel.expert_tensor
    if moe is None or moe.width % degree == 0:
        return []
    message = f"expert_tensor={degree} does not divide moe.width={moe.width}"
    hint = nearest("expert_tensor", degree, divisors(moe.width))
    return [problem("TW124", "parallel.expert_tensor", message, hint)]


def switches_help_only_where_they_can(scenario: Scenario) -> list[Problem]:
    """Reductions by switches need switches that add up."""
    choice, cluster = scenario.parallel.collectives, scenario.cluster
    needed = {
        "nvls": (
            cluster.node.nvlink_sharp,
            f"{cluster.node.name}, whose NVSwitches neither add up nor multicast",
            "cluster.node.nvlink_sharp",
        ),
        "switches": (
            cluster.fabric.reduces,
            f"{cluster.fabric.name}, whose switches do not add up",
            "cluster.fabric.reduces",
        ),
    }
    can, where, field = needed.get(choice, (True, "", ""))
    if can:
        return []
    hint = f"write ring or auto, or set {field} where they do"
    return [problem("TW130", "parallel.collectives", f"{choice} on {where}", hint)]


def pieces_need_cut_sequences(scenario: Scenario) -> list[Problem]:
    """Only gathers and reduce-scatters go in pieces beside products. An all-reduce does not: what
    follows it needs every row (Transformer Engine asserts the same of its userbuffers)."""
    parallel = scenario.parallel
    if parallel.overlap_tensor != "pieces" or parallel.tensor == 1 or parallel.sequence_parallel:
        return []
    message = (
        f"overlap_tensor=pieces without sequence_parallel: {parallel.tensor} tensor ranks "
        "all-reduce, which cannot run beside the products around it"
    )
    hint = "set sequence_parallel to true, or overlap_tensor to bulk"
    return [problem("TW374", "parallel.overlap_tensor", message, hint)]


def every_second_product_is_known(scenario: Scenario) -> list[Problem]:
    """Whether a product is every second one depends on the order in which a model has them."""
    model, memory = scenario.model, scenario.memory
    stages = [one.recompute or () for one in memory.written or ()]
    if not any(ALTERNATE in one for one in (memory.recompute, *stages)):
        return []
    unknown = [
        words
        for words, found in (
            ("sparse attention", getattr(model.attention, "indexer", None) is not None),
            ("a mixer beside attention", model.mixer is not None),
            ("unfused attention", scenario.train.attention_kernel == "unfused"),
        )
        if found
    ]
    if not unknown:
        return []
    message = f"recompute {ALTERNATE} on {model.name} with {' and '.join(unknown)}"
    hint = "write full or attention_core; it is for grouped-query and latent attention"
    return [problem("TW375", "memory.recompute", message, hint)]


def copies_of_shards_divide_replicas(scenario: Scenario) -> list[Problem]:
    """Every copy of what is sharded has as many ranks, of dense weights and of each expert."""
    parallel, mesh = scenario.parallel, lay_out(scenario)
    copies, path = parallel.shard_copies, "parallel.shard_copies"
    if copies == 1:
        return []
    if parallel.zero == 0:
        message = f"shard_copies={copies} with zero=0, which shards nothing"
        return [problem("TW131", path, message, "set shard_copies to 1, or zero to 1")]
    experts = mesh.expert_replicas if scenario.model.moe else 0
    if mesh.dense_replicas % copies == 0 and experts % copies == 0:
        return []
    held = f"{mesh.dense_replicas} replicas" + (f" and {experts} of experts" if experts else "")
    hint = nearest("shard_copies", copies, divisors(gcd(mesh.dense_replicas, experts)))
    return [problem("TW131", path, f"shard_copies={copies} does not divide {held}", hint)]


def context_ranks_have_heads(scenario: Scenario) -> list[Problem]:
    """Context ranks that exchange heads divide the context ranks, and the heads of a tensor rank;
    they have whole key-value heads, or share each evenly. A ring feeds one kernel."""
    parallel, sorts = scenario.parallel, attentions(scenario.model)
    ranks, path = parallel.context_heads, "parallel.context_heads"
    own = gcd(*(one.heads for one in sorts)) // parallel.tensor
    if parallel.context % ranks or own % ranks:
        message = (
            f"context_heads={ranks} does not divide context={parallel.context} and {own} heads"
        )
        hint = nearest("context_heads", ranks, divisors(gcd(parallel.context, own)))
        return [problem("TW132", path, message, hint)]
    for keys in (max(1, one // parallel.tensor) for one in _key_value_heads(scenario)):
        if keys % ranks and ranks % keys:
            message = f"context_heads={ranks} neither divides {keys} key-value heads of a tensor "
            hint = nearest("context_heads", ranks, divisors(gcd(parallel.context, keys)))
            return [problem("TW132", path, f"{message}rank nor is a multiple of them", hint)]
    if parallel.context_ring and scenario.train.attention_kernel == "unfused":
        message = "context_ring with attention_kernel=unfused, which has whole score matrices"
        return [problem("TW132", "parallel.context_ring", message, "set attention_kernel to flash")]
    return []


def fully_shard_shards_parameters(scenario: Scenario) -> list[Problem]:
    """PyTorch's `fully_shard` is a way to shard parameters."""
    zero = scenario.parallel.zero
    if not scenario.memory.fully_shard or zero == 3:
        return []
    message = f"fully_shard with zero={zero}, which shards no parameters"
    return [problem("TW376", "memory.fully_shard", message, "set parallel.zero to 3")]


def adapters_have_no_prediction_modules(scenario: Scenario) -> list[Problem]:
    """Modules that predict further tokens are pre-trained with the model, not adapted."""
    if scenario.train.lora is None or not scenario.model.mtp_layers:
        return []
    message = f"lora on {scenario.model.name} with its modules that predict further tokens"
    return [problem("TW377", "train.lora", message, "set model.mtp_layers to 0")]


def tensor_divides_heads(scenario: Scenario) -> list[Problem]:
    """Attention is cut by whole heads. Ranks have whole key-value heads, or as many ranks share
    each."""
    tensor, heads = scenario.parallel.tensor, [one.heads for one in attentions(scenario.model)]
    wrong = _tensor_divides("TW106", tensor, "heads", heads) + _ranks_divide_mixer(scenario)
    keys = _key_value_heads(scenario)
    odd = next((one for one in keys if one % tensor and tensor % one), None)
    if wrong or odd is None:
        return wrong
    fits = [n for n in divisors(gcd(*heads)) if all(k % n == 0 or n % k == 0 for k in keys)]
    message = f"tensor={tensor} neither divides kv_heads={odd} nor is a multiple of it"
    return [problem("TW106", "parallel.tensor", message, nearest("tensor", tensor, fits))]


def _key_value_heads(scenario: Scenario) -> list[int]:
    """Of each sort of grouped attention."""
    sorts = attentions(scenario.model)
    return [one.kv_heads for one in sorts if isinstance(one, GroupedAttention)]


def _ranks_divide_mixer(scenario: Scenario) -> list[Problem]:
    """Heads of a mixer are cut over tensor ranks, and exchanged between context ranks."""
    parallel, model = scenario.parallel, scenario.model
    found = mixer_heads(model, parallel.tensor, parallel.context)
    wrong = [f"{name}={heads}" for name, heads, ranks in found if heads % ranks]
    if not wrong:
        return []
    message = (
        f"tensor={parallel.tensor}, with context={parallel.context}, does not divide "
        f"{' and '.join(wrong)} of {model.name}"
    )
    hint = f"tensor x context must divide {gcd(*(heads for _, heads, _ in found))}"
    return [problem("TW106", "parallel.tensor", message, hint)]


def tensor_divides_widths(scenario: Scenario) -> list[Problem]:
    """Dense feed-forward blocks are cut by columns; experts are not cut."""
    widths = dense_widths(scenario.model)
    return _tensor_divides("TW107", scenario.parallel.tensor, "ffn.width", widths)


def tensor_divides_vocabulary(scenario: Scenario) -> list[Problem]:
    """Embedding and head are cut by rows of the vocabulary; padding it is the planner's to
    write."""
    return _tensor_divides("TW108", scenario.parallel.tensor, "vocab", [scenario.model.vocab])


def ranks_divide_the_sequence(scenario: Scenario) -> list[Problem]:
    """Context ranks cut the sequence into two chunks each, sequence parallelism cuts what they
    have over the tensor ranks."""
    parallel, sequence = scenario.parallel, scenario.train.sequence
    slices = parallel.tensor if parallel.sequence_parallel else 1
    parts = sequence_parts(parallel.context, slices)
    if sequence % parts == 0:
        return []
    over = [f"2 x context={parallel.context} chunks"] if parallel.context > 1 else []
    if slices > 1:
        over.append(f"tensor={slices} with sequence_parallel")
    message = f"sequence={sequence} does not divide over {' and '.join(over)}"
    hint = nearest("sequence", sequence, multiples(sequence, parts), "tok")
    return [problem("TW109", "train.sequence", message, hint)]


def query_heads_share_keys_evenly(scenario: Scenario) -> list[Problem]:
    """Grouped-query attention gives every key-value head as many query heads."""
    return [
        problem(
            "TW110",
            "model.attention.kv_heads",
            f"kv_heads={one.kv_heads} does not divide heads={one.heads}",
            nearest("kv_heads", one.kv_heads, divisors(one.heads)),
        )
        for one in attentions(scenario.model)
        if isinstance(one, GroupedAttention) and one.heads % one.kv_heads
    ]


def tokens_choose_existing_experts(scenario: Scenario) -> list[Problem]:
    """A token goes to no more experts than there are."""
    moe = scenario.model.moe
    if moe is None or moe.top_k <= moe.experts:
        return []
    message = f"top_k={moe.top_k} is more than {moe.experts} experts"
    return [problem("TW111", "model.moe.top_k", message, f"at most {moe.experts}")]


def loads_name_every_expert(scenario: Scenario) -> list[Problem]:
    """A measured routing is that of this model's experts."""
    moe, routing = scenario.model.moe, scenario.train.routing
    if moe is not None and isinstance(routing, ByLayer):
        return _loads_name_every_layer(scenario, routing, moe)
    if moe is None or not isinstance(routing, Histogram) or len(routing.loads) == moe.experts:
        return []
    message = (
        f"the histogram has {len(routing.loads)} loads, and {scenario.model.name} has "
        f"{moe.experts} experts per layer"
    )
    hint = f"write {moe.experts} loads, or `{{kind: zipf, s: 0.2}}`"
    return [problem("TW136", "train.routing.loads", message, hint)]


def _loads_name_every_layer(scenario: Scenario, routing: ByLayer, moe: Moe) -> list[Problem]:
    model = scenario.model
    layers = sum(map(model.has_experts, range(model.layers)))
    wrong = [row for row in routing.loads if len(row) != moe.experts]
    if not wrong and len(routing.loads) in (layers, layers + model.mtp_layers):
        return []
    message = (
        f"there are loads of {len(routing.loads)} layers, of {len((wrong or routing.loads)[0])} "
        f"experts; {model.name} has {layers} layers with {moe.experts} experts each"
    )
    hint = f"write {layers} rows of {moe.experts} loads, or `{{kind: zipf, s: 0.2}}`"
    return [problem("TW136", "train.routing.loads", message, hint)]


def experts_take_each_token_once(scenario: Scenario) -> list[Problem]:
    """A token chooses an expert once, so that no expert gets more than one of its copies."""
    moe, routing = scenario.model.moe, scenario.train.routing
    if moe is None or not isinstance(routing, Histogram) or loads_name_every_expert(scenario):
        return []
    fullest = max(routing.loads) / sum(routing.loads)
    if fullest * moe.top_k <= 1 + 1e-9:
        return []
    message = (
        f"expert {routing.loads.index(max(routing.loads))} gets {100 * fullest:.3g} % of the load, "
        f"and a token that chooses {moe.top_k} experts sends none more than {100 / moe.top_k:.3g} %"
    )
    hint = "write loads of one layer, counted in tokens"
    return [problem("TW166", "train.routing.loads", message, hint)]


def places_need_their_dispatcher(scenario: Scenario) -> list[Problem]:
    """Only some dispatchers drop and pad to as many places for each expert."""
    chosen = scenario.parallel.dispatcher
    if scenario.train.expert_capacity is None or chosen in ("alltoall", "einsum"):
        return []
    places = scenario.train.expert_capacity
    message = f"expert_capacity={places} with dispatcher={chosen}, which pads nothing"
    hint = "write parallel.dispatcher=alltoall, or leave train.expert_capacity out"
    return [problem("TW378", "train.expert_capacity", message, hint)]


def communication_leaves_sms(scenario: Scenario) -> list[Problem]:
    """Kernels need at least one streaming multiprocessor beside communication."""
    profile, gpu = scenario.calibration, scenario.cluster.node.gpu
    held = {name: getattr(profile, name) for name in ("expert_sms", "collective_sms")}
    return [
        problem(
            "TW167",
            f"calibration.{name}",
            f"{name}={number} leaves kernels none of the {gpu.sms} SMs of {gpu.name}",
            f"at most {gpu.sms - 1}",
        )
        for name, number in held.items()
        if number and number >= gpu.sms
    ]


def products_need_their_tensor_cores(scenario: Scenario) -> list[Problem]:
    """Only some GPUs multiply FP8 numbers, and fewer FP4."""
    gpu, recipe = scenario.cluster.node.gpu, scenario.train.recipe
    numbers = {scenario.train.precision, *(dict(recipe.numbers).values() if recipe else ())}
    if numbers - {"bf16", "fp8"} and gpu.fp4_dense is None:
        name, other, node = "FP4", "fp8", "b200-8gpu"
    elif "fp8" in numbers and gpu.fp8_dense is None:
        name, other, node = "FP8", "bf16", "h100-8gpu"
    else:
        return []
    message = f"{gpu.name} has no {name} tensor cores (its {name.lower()}_dense is null)"
    hint = f"set precision to {other}, or choose nodes of a GPU that has them, such as {node}"
    return [problem("TW135", "train.precision", message, hint)]


def images_have_an_encoder(scenario: Scenario) -> list[Problem]:
    """Who trains on images has an encoder for them, which tensor ranks cut evenly if at all."""
    images, vision, tensor = scenario.train.images, scenario.model.vision, scenario.parallel.tensor
    if images is None:
        return []
    if vision is None:
        message = f"{scenario.model.name} has no encoder of images"
        return [
            problem("TW133", "train.images", message, "leave images out, or name another model")
        ]
    wrong = [size for size in (vision.heads, vision.width) if size % tensor]
    if images.tensor != "cut" or not wrong:
        return _encoder_has_gpus(scenario, images)
    message = f"tensor={tensor} does not divide {wrong[0]} of the encoder of images"
    return [problem("TW133", "train.images.tensor", message, "write whole or shared")]


def _encoder_has_gpus(scenario: Scenario, images: ImagesSpec) -> list[Problem]:
    """GPUs that only encode are whole nodes, the first of at least two stages, and leave the
    language model a grid."""
    if images.gpus is None:
        return []
    parallel, cluster, path = scenario.parallel, scenario.cluster, "train.images.gpus"
    gpus, stages = of_language(scenario)
    grid = parallel.tensor * parallel.context * max(1, stages)
    loops = parallel.virtual > 1 or lay_out(scenario).copies > 1
    if stages < 1 or loops or (parallel.layers and parallel.layers[0]):
        message = "GPUs that only encode are one stage, before at least one of the language model"
        fix = "write parallel.pipeline of one more, parallel.virtual 1, and parallel.layers from 0"
    elif cluster.uneven or cluster.noisy or images.tensor == "shared":
        message = "GPUs that only encode are alike, and no tensor ranks of the language model"
        fix = "leave cluster.degraded and cluster.jitter out; write images.tensor whole or cut"
    elif images.gpus % lcm(cluster.node.gpus, parallel.tensor if images.tensor == "cut" else 1):
        message = f"{images.gpus} GPUs that only encode are no whole nodes, or tensor groups"
        fix = nearest("gpus", images.gpus, multiples(images.gpus, cluster.node.gpus))
    elif gpus < 1 or gpus % grid:
        message = f"{images.gpus} encoding GPUs leave {gpus}, which {grid} does not divide"
        least = range(cluster.node.gpus, cluster.gpus, cluster.node.gpus)
        fix = nearest("gpus", images.gpus, [n for n in least if (cluster.gpus - n) % grid == 0])
    else:
        return []
    return [problem("TW133", path, message, fix)]


def measured_power_is_above_idle(scenario: Scenario) -> list[Problem]:
    """What a GPU sustained was measured at a limit above its idle power, which clocks follow."""
    power, measured = scenario.cluster.node.gpu.power, scenario.calibration.power
    if power is None or measured is None or measured > power.idle:
        return []
    message = f"power={measured:g}W is not above the {power.idle:g} W of an idle GPU"
    hint = "write the power limit of the GPU that was measured, or null"
    return [problem("TW137", "calibration.power", message, hint)]


def dense_layers_are_layers(scenario: Scenario) -> list[Problem]:
    """The leading dense layers are part of the model's layers."""
    model = scenario.model
    if model.moe is None or model.moe.first_dense_layers <= model.layers:
        return []
    message = (
        f"first_dense_layers={model.moe.first_dense_layers} is more than layers={model.layers}"
    )
    return [problem("TW112", "model.moe.first_dense_layers", message, f"at most {model.layers}")]


def positions_cover_the_sequence(scenario: Scenario) -> list[Problem]:
    """A table of learned positions is as long as the sequence."""
    positions, sequence = scenario.model.learned_positions, scenario.train.sequence
    if not positions or positions >= sequence:
        return []
    message = (
        f"sequence={sequence} is longer than the {positions} learned positions of "
        f"{scenario.model.name}"
    )
    return [problem("TW113", "train.sequence", message, f"at most {positions}tok")]


def _tensor_divides(code: str, tensor: int, name: str, counts: Sequence[int]) -> list[Problem]:
    """A problem for each count of the model that the tensor degree does not divide; the fix suits
    all of them."""
    fits = divisors(gcd(*counts))
    return [
        problem(
            code,
            "parallel.tensor",
            f"tensor={tensor} does not divide {name}={count}",
            nearest("tensor", tensor, fits),
        )
        for count in dict.fromkeys(counts)
        if count % tensor
    ]


def problem(code: str, path: str, message: str, hint: str) -> Problem:
    """A problem that a rule found."""
    return Problem(code=code, path=path, message=message, hint=hint)


def multiples(number: int, of: int) -> list[int]:
    """The positive multiples of `of` next to a number that is none."""
    below = number // of * of
    return [multiple for multiple in (below, below + of) if multiple > 0]


def nearest(name: str, wanted: int, candidates: Iterable[int], unit: str = "") -> str:
    """The candidates next below and next above what was wanted, in words."""
    near = next_to(wanted, sorted(candidates))
    values = " or ".join(f"{value}{unit}" for value in near)
    if not near:
        return f"no {name} suits; change the number of nodes"
    return f"nearest {name}={values}" if name else f"nearest {values}"
