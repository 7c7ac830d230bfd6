"""Laws of every way to cut a run: what is sent has a closed form, what is held and computed adds up
to the model, and one rank per stage stands for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.engine.scenarios import dense, moe
from twin.arch.count import parameters
from twin.arch.ops import Exchange, Item, Op
from twin.engine import lower, plan, simulate
from twin.engine.program import COMPUTE, GATHER, STREAMS, Program
from twin.planning.types import Plan
from twin.scenario import Scenario

SP = "parallel.sequence_parallel=true"
ZERO_3 = "parallel.zero=3"
PAIRS = (
    "parallel.schedule={kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true, "
    "defer_weight_grad: true}"
)

CASES: dict[str, Callable[[], Scenario]] = {
    "context": lambda: dense(2, 2, 1, 2, "parallel.context=4", "train.global_batch=16seq"),
    "context across nodes": lambda: dense(
        4, 2, 1, 8, "parallel.context=2", SP, "train.global_batch=16seq"
    ),
    "context, experts over it": lambda: moe(
        2, 2, 1, 8, "parallel.context=2", "train.global_batch=32seq"
    ),
    "experts over tensor ranks": lambda: moe(
        2, 1, 1, 16, "parallel.tensor=8", SP, "train.global_batch=16seq"
    ),
    "expert tensor": lambda: moe(
        2, 2, 1, 4, "parallel.tensor=2", "parallel.expert_tensor=2", SP, "train.global_batch=16seq"
    ),
    "expert tensor over data ranks": lambda: moe(
        2, 2, 1, 2, "parallel.expert_tensor=4", "train.global_batch=32seq"
    ),
    "all axes in another order": lambda: moe(
        4,
        2,
        1,
        4,
        "parallel.tensor=2",
        "parallel.context=2",
        "parallel.expert_tensor=2",
        "parallel.order=[data, expert, context, tensor, pipeline]",
        SP,
        ZERO_3,
        "train.global_batch=32seq",
    ),
    "zero 2": lambda: dense(2, 2, 1, 2, "parallel.zero=2"),
    "zero 2, pairs": lambda: moe(2, 2, 2, 4, "parallel.zero=2", PAIRS),
    "zero 3": lambda: dense(2, 1, 1, 1, ZERO_3),
    "zero 3, pipeline": lambda: dense(2, 4, 3, 1, ZERO_3),
    "zero 3, kept after forward": lambda: dense(
        2, 1, 1, 1, ZERO_3, "parallel.reshard_after_forward=false"
    ),
    "zero 3, full recomputation": lambda: moe(2, 2, 1, 4, ZERO_3, "memory.recompute=[full]"),
    "zero 3, pairs": lambda: moe(2, 2, 2, 4, ZERO_3, PAIRS),
    "zero 3, split backward": lambda: dense(2, 2, 1, 2, ZERO_3, "parallel.schedule=zb_h1"),
    "owners of matrices": lambda: moe(
        2, 2, 1, 4, "train.optimizer={kind: muonclip, newton_schulz: partitioned}"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_folded_equals_all_ranks(name: str) -> None:
    resolved = plan(CASES[name]())
    assert resolved.mesh.ranks <= 64
    folded = simulate(lower(resolved, "folded"))
    every = simulate(lower(resolved, "all"))
    assert folded.step_ns == every.step_ns
    for rank, row in enumerate(every.breakdown_ns):
        assert row == folded.breakdown_ns[rank // resolved.mesh.stage_ranks]


def payloads(program: Program, names: set[str]) -> dict[str, float]:
    """Bytes that rank 0 of stage 0 sends per step, by name of the collective."""
    sent: dict[str, float] = defaultdict(float)
    for action in program.schedule.order(
        program.stages, program.chunks_per_stage, program.microbatches
    )[0]:
        for step in program.passes[action.kind, action.chunk]:
            if step.traffic and step.name in names:
                sent[step.name] += step.traffic.nvlink_bytes + step.traffic.nic_bytes
    for step in program.once(0):
        if step.traffic and step.name in names:
            sent[step.name] += step.traffic.nvlink_bytes + step.traffic.nic_bytes
    return sent


REDUCED = {"reduce_scatter_gradients", "all_reduce_gradients", "all_gather_weights"}


def parameters_sent(*overrides: str, batch: int) -> float:
    """What a rank of 16 sends of its model's weights per step, in units of the weights."""
    resolved = plan(dense(2, 1, 1, 1, f"train.global_batch={batch}seq", *overrides))
    sent = payloads(lower(resolved), REDUCED)
    trips = (
        sent["all_gather_weights"] / 2
        + (sent["reduce_scatter_gradients"] + sent["all_reduce_gradients"]) / 4
    )
    return trips / resolved.chunks[0].weights.total * 16 / 15


@pytest.mark.parametrize(
    ("overrides", "fixed", "per_microbatch"),
    [
        (("parallel.zero=0",), 2, 0),
        (("parallel.zero=1",), 2, 0),
        (("parallel.zero=2",), 1, 1),
        (("parallel.zero=3",), 0, 3),
        (("parallel.zero=3", "parallel.reshard_after_forward=false"), 0, 2),
    ],
    ids=str,
)
def test_the_traffic_of_zeros_table(
    overrides: tuple[str, ...], fixed: int, per_microbatch: int
) -> None:
    """Rajbhandari et al. 2020, section 7: 2 Psi with stages 0 to 2, 3 Psi with stage 3, here with
    one micro-batch; what is sharded in the passes travels with every one."""
    for microbatches in (1, 3):
        sent = parameters_sent(*overrides, "model.tied_embeddings=false", batch=16 * microbatches)
        assert sent == pytest.approx(fixed + per_microbatch * microbatches)


def exchanges(resolved: Plan, group: str) -> list[Exchange]:
    """The collectives of one kind of group in a transformer layer."""
    layer = resolved.chunks[0].layers[-2]
    return [i for i in layer.items if isinstance(i, Exchange) and i.group == group]


def test_context_ranks_gather_keys_and_values_twice_and_scatter_their_gradients_once() -> None:
    """gpt-22b has 64 heads of 96: 2,048 tokens x 64 x (96 + 96) x 2 bytes on tensor 1."""
    resolved = plan(
        dense(1, 1, 1, 1, "parallel.context=4", "train.global_batch=2seq", "memory.recompute=[]")
    )
    gather, again = exchanges(resolved, "context")
    size = 2048 * 64 * (96 + 96) * 2
    assert (gather.forward, gather.backward, gather.bytes) == ("all_gather", "reduce_scatter", size)
    assert (again.forward, again.backward, again.bytes) == (None, "all_gather", size)
    program, layers = lower(resolved), resolved.scenario.model.layers
    sent = payloads(program, {"context_gather", "context_regather"})
    trips = resolved.microbatches * layers * size * 3 / 4
    assert sent == {"context_gather": 2 * trips, "context_regather": trips}


def test_context_time_is_exposed_on_its_own_stream() -> None:
    resolved = plan(dense(2, 2, 1, 2, "parallel.context=4", "train.global_batch=16seq"))
    found = simulate(lower(resolved))
    assert all(row["exposed_context"] > 0 for row in found.breakdown_ns)
    assert STREAMS.index("context") in found.spans.stream


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_two_chunks_per_context_rank_are_the_same_share_of_the_causal_half(ranks: int) -> None:
    """Pairs of query and key, counted one by one: rank i has chunks i and 2 cp - 1 - i."""
    size = 3
    pairs = [0] * ranks
    for query in range(2 * ranks * size):
        chunk = query // size
        pairs[min(chunk, 2 * ranks - 1 - chunk)] += query + 1
    assert len(set(pairs)) == 1


def forward_flop(resolved: Plan) -> float:
    """FLOP of all ranks in one forward of one micro-batch."""
    items: list[Item] = [i for c in resolved.chunks for layer in c.layers for i in layer.items]
    per_rank = sum(item.forward.flop for item in items if isinstance(item, Op))
    return per_rank * resolved.mesh.stage_ranks / resolved.mesh.data


@pytest.mark.parametrize(
    "overrides",
    [
        ("parallel.context=2",),
        ("parallel.context=4", "parallel.tensor=2", SP),
        ("parallel.tensor=2", "parallel.expert=8", SP),
        ("parallel.tensor=2", "parallel.expert_tensor=2", "parallel.expert=2", SP),
        ("parallel.expert_tensor=4", "parallel.expert=2"),
    ],
    ids=" ".join,
)
def test_the_work_of_all_ranks_is_that_of_the_model(overrides: tuple[str, ...]) -> None:
    """Cutting a micro-batch neither adds nor drops FLOP: context, tensor and expert ranks share
    them. Low-rank projections are the exception that tensor ranks repeat only without sequence
    parallelism."""
    alone = plan(moe(1, 1, 1, 1, "train.global_batch=8seq"))
    cut = plan(moe(1, 1, 1, 1, "train.global_batch=8seq", *overrides))
    assert forward_flop(cut) == pytest.approx(forward_flop(alone))


@pytest.mark.parametrize("name", [name for name in CASES if "all axes" in name or "expert" in name])
def test_all_ranks_together_hold_every_weight_as_often_as_it_has_replicas(name: str) -> None:
    resolved = plan(CASES[name]())
    mesh, model = resolved.mesh, resolved.scenario.model
    held = [chunk.weights for chunk in resolved.chunks]
    counted = parameters(model)
    experts = sum(own.expert for own in held) * mesh.stage_ranks
    assert experts == counted.routed_experts * mesh.expert_data
    split = sum(own.tensor for own in held) * mesh.tensor
    whole = sum(own.replicated for own in held)
    assert split + whole == counted.total - counted.routed_experts


def test_expert_tensor_ranks_gather_what_arrives_and_scatter_what_they_made() -> None:
    """4,096 tokens over 2 tensor ranks, 8 copies of 7,168 numbers of 2 bytes each: 2 expert-tensor
    ranks gather twice that, and their reduce-scatter gives it back."""
    scenario = moe(
        2,
        2,
        1,
        4,
        "parallel.tensor=2",
        "parallel.expert_tensor=2",
        SP,
        "train.global_batch=16seq",
        "parallel.dispatcher=alltoall",
    )
    resolved = plan(scenario)
    gather, scatter = exchanges(resolved, "expert_tensor")
    moved = scenario.model.moe
    assert moved is not None
    copies = 4096 // 2 * moved.top_k * scenario.model.hidden * 2
    assert gather.bytes == scatter.bytes == 2 * copies
    assert (gather.forward, gather.backward) == ("all_gather", "reduce_scatter")
    assert (scatter.forward, scatter.backward) == ("reduce_scatter", "all_gather")
    counts, dispatch, combine = exchanges(resolved, "expert")
    weights = 4 * (4096 // 2 * moved.top_k)
    assert (dispatch.bytes, combine.bytes) == (copies + weights, copies)
    assert counts.bytes == 8 * moved.experts


def test_no_more_than_two_layers_are_whole_at_any_time() -> None:
    """Counted in time: a gathered layer lives from the start of its gather to the end of its last
    kernel."""
    resolved = plan(dense(2, 1, 1, 1, ZERO_3, "cluster.node.nic.bandwidth=10Gbps"))
    program = lower(resolved)
    for kind in ("F", "B"):
        template = program.passes[kind, 0]
        gathers = [i for i, step in enumerate(template) if step.stream == GATHER]
        assert len(gathers) == len(resolved.chunks[0].layers)
        for number, gather in enumerate(gathers[2:], 2):
            (freed,) = template[gather].after
            users = [i for i, s in enumerate(template) if gathers[number - 2] in s.after]
            assert template[freed].stream == COMPUTE
            assert freed >= min(users)
            assert freed < min(i for i, s in enumerate(template) if gathers[number - 1] in s.after)


def test_gathering_hides_under_kernels_but_for_the_first_layer_of_a_pass() -> None:
    """Where the network is fast, little but the embedding's gather forward and the head's backward
    is seen; on a slow one all of them are."""
    fast, slow = (
        simulate(lower(plan(dense(2, 1, 1, 1, ZERO_3, f"cluster.node.nic.bandwidth={rate}"))))
        for rate in ("10Tbps", "5Gbps")
    )
    assert fast.breakdown_ns[0]["exposed_data"] < 0.05 * fast.step_ns
    assert slow.breakdown_ns[0]["exposed_data"] > 0.5 * slow.step_ns


def test_partitioned_newton_schulz_shortens_the_optimizer_by_what_replicas_repeat() -> None:
    def optimizer_ns(how: str) -> int:
        written = f"train.optimizer={{kind: muon, newton_schulz: {how}}}"
        return simulate(lower(plan(dense(2, 1, 1, 1, written)))).breakdown_ns[0]["optimizer"]

    assert optimizer_ns("partitioned") < 0.3 * optimizer_ns("replicated")
