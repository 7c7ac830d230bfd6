"""States, and buffers of what is on its way: counted by hand, and laws over shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.planning.examples import block, chunks_of, scenario
from twin.arch.ops import Exchange, Layer, Weights
from twin.engine import plan
from twin.loading import load
from twin.planning.memory import (
    boundary_bytes,
    buffers,
    registered,
    states,
    unsharded,
)
from twin.planning.mesh import lay_out


def test_zero_shards_states_over_the_ranks_that_hold_the_same_weights() -> None:
    """16 data ranks, 4 of them expert ranks: 100 dense weights of AdamW (12 bytes) over 16, 1000
    expert weights over 4."""
    moe = {"experts": 16, "top_k": 2, "width": 64}
    case = scenario(model={"moe": moe}, parallel={"expert": 4})
    chunks = chunks_of([[block(weights=Weights(replicated=60, tensor=40, expert=1000))]], 1)
    assert states(case, lay_out(case), chunks)[0] == {
        "parameters": 2 * 1100,
        "gradients": 4 * 1100,
        "optimizer_dense": 12 * 100 / 16,
        "optimizer_expert": 12 * 1000 / 4,
    }


@pytest.mark.parametrize(
    ("zero", "per_weight"),
    [
        (0, 2 + 4 + 12),
        (1, 2 + 4 + 12 / 16),
        (2, 2 + (4 + 12) / 16),
        (3, (2 + 4 + 12) / 16),
    ],
)
def test_the_bytes_of_zeros_table(zero: int, per_weight: float) -> None:
    """Rajbhandari et al. 2020, figure 1: (2 + 2 + K) Psi for K = 12, with 4 instead of 2 bytes for
    the fp32 gradients here; over 16 data ranks."""
    case = scenario(parallel={"zero": zero})
    chunks = chunks_of([[block(weights=Weights(replicated=60_000, tensor=20_000))]], 1)
    found = sum(states(case, lay_out(case), chunks)[0].values())
    assert found == pytest.approx(per_weight * 80_000)


def test_context_ranks_share_states_as_data_ranks_do() -> None:
    """16 GPUs as tensor 2 x context 4 x data 2: 8 ranks have the same dense weights. Experts, cut
    by 2 expert-tensor and 4 expert ranks, have 2 replicas."""
    moe = {"experts": 16, "top_k": 2, "width": 64}
    case = scenario(
        model={"moe": moe},
        parallel={
            "tensor": 2,
            "context": 4,
            "expert": 4,
            "expert_tensor": 2,
            "sequence_parallel": True,
        },
    )
    chunks = chunks_of([[block(weights=Weights(tensor=800, expert=1000))]], 1)
    found, _ = states(case, lay_out(case), chunks)
    assert (found["optimizer_dense"], found["optimizer_expert"]) == (12 * 800 / 8, 12 * 1000 / 2)


def test_what_zero_shards_is_whole_for_two_layers() -> None:
    """Layers of 100, 300, 50 and 950 weights over 16 ranks: beside the shards, gradients of what
    the other ranks have of 1,400, since two of 950 are more, at 4 bytes under ZeRO-2; parameters of
    as many at 2 bytes under ZeRO-3. Of layers of 100, two are whole."""
    layers = [block(weights=Weights(tensor=count)) for count in (100, 300, 50, 950)]
    others = 1400 * 15 / 16

    def whole(most: int = 2, sizes: Sequence[Layer] = layers, **parallel: object) -> float:
        case = scenario(parallel=dict(parallel))
        return unsharded(case, lay_out(case), chunks_of([list(sizes)], 1), most)

    assert whole(zero=1) == 0
    assert whole(zero=2) == 4 * others
    assert whole(zero=3) == (4 + 2) * others
    assert whole(zero=3, reshard_after_forward=False) == (4 + 2) * others
    assert whole(zero=3, tensor=4, pipeline=4) == 0
    alike = [layers[0]] * 8
    assert whole(sizes=alike, zero=2) == 4 * 200
    assert whole(4, alike, zero=2) == 4 * 400
    assert whole(4, alike[:4], zero=2) == 4 * 400 * 15 / 16


@pytest.mark.parametrize("pairs", [True, False])
def test_sharding_more_never_takes_more_memory(pairs: bool) -> None:
    """Few layers on many ranks: what a stage has whole is all that it has. The split stays."""
    split = list(plan(load("kimi-k2-256xh800")).layers_per_part)
    changes = (
        "cluster.nodes=128",
        f"parallel.layers={split}",
        f"parallel.schedule.overlap_all_to_all={str(pairs).lower()}",
    )
    peaks = [
        plan(load("kimi-k2-256xh800", [*changes, f"parallel.zero={zero}"])).memory.peak.peak_bytes
        for zero in (0, 1, 2, 3)
    ]
    assert peaks == pytest.approx(sorted(peaks, reverse=True))


SHARED = """\
schema: 1
name: shared
model: {name: m, layers: 4, hidden: 8192, vocab: 128256, mtp_layers: 1,
  attention: {kind: gqa, heads: 16, kv_heads: 8, head_dim: 64}, ffn: {kind: swiglu, width: 24576}}
cluster: {node: b200-8gpu, nodes: 1, fabric: rail-fat-tree-400g}
parallel: {virtual: 2, schedule: {kind: interleaved_1f1b, extra_warmup: 1,
  overlap_all_to_all: true}}
train: {tokens: 10B, global_batch: 16seq, sequence: 512tok, optimizer: adamw}
cost: {gpu_hour: 2USD}
"""


@pytest.mark.parametrize(
    "sets",
    [
        ["parallel.layers=[2, 2]"],
        ["model.layers=1", "parallel.virtual=1", "parallel.schedule={kind: zb_h2}"],
    ],
    ids=["gathered twice", "reduced twice"],
)
def test_what_layers_share_is_whole_once(tmp_path: Path, sets: list[str]) -> None:
    """A module that predicts further tokens uses the head's matrix, and the embedding's."""
    file = tmp_path / "shared.yaml"
    file.write_text(SHARED)
    peaks = [
        plan(load(file, [*sets, "software=null", f"parallel.zero={zero}"])).memory.peak.peak_bytes
        for zero in (1, 2, 3)
    ]
    assert peaks == pytest.approx(sorted(peaks, reverse=True))


def test_context_ranks_hold_keys_and_values_of_all_and_a_part_of_the_rest() -> None:
    """4 heads of 16 for keys and as many for values, 64 tokens, 2 bytes: gathered, and their
    gradients beside them. A message is a fourth of the sequence's."""
    whole, cut = (
        plan(scenario(parallel={"pipeline": 2})),
        plan(scenario(parallel={"pipeline": 2, "context": 4})),
    )
    before, after = (one.memory.stages[0].categories for one in (whole, cut))
    assert (before["context_buffers"], after["context_buffers"]) == (0, 2 * 2 * 64 * 4 * (16 + 16))
    assert after["pipeline_buffers"] == before["pipeline_buffers"] / 4
    assert after["activations"] == before["activations"] / 4


def test_weights_without_gradient_have_no_gradient_buffer() -> None:
    """Of 100 weights 30 are expert-bias: 2 bytes for each of 100, 4 bytes for each of 70."""
    case = scenario()
    chunks = chunks_of([[block(weights=Weights(replicated=100, buffers=30))]], 1)
    found, _ = states(case, lay_out(case), chunks)
    assert (found["parameters"], found["gradients"]) == (200, 280)


def test_without_zero_every_rank_keeps_all_states() -> None:
    case = scenario(parallel={"zero": 0})
    chunks = chunks_of([[block(weights=Weights(replicated=60, tensor=40))]], 1)
    assert states(case, lay_out(case), chunks)[0]["optimizer_dense"] == 12 * 100


def test_buffers_hold_what_is_on_its_way() -> None:
    """A middle stage has neighbours on both sides: two messages of 10 bytes in each direction. An
    all-to-all of 80 has a receive buffer, as the gathered tensor of sequence parallelism has."""
    moe = block(
        Exchange("dispatch", "expert", 80, "all_to_all", "all_to_all"),
        Exchange("gather", "tensor", 50, "all_gather", "reduce_scatter"),
        Exchange("reduce", "tensor", 70, "all_reduce", None),
    )
    middle = replace(chunks_of([[moe]], 1)[0], index=1)
    first = replace(middle, index=0)
    assert buffers([middle], 3, 10) == {
        "pipeline_buffers": 40,
        "expert_buffers": 80,
        "tensor_buffers": 50,
        "context_buffers": 0,
    }
    assert buffers([first], 3, 10)["pipeline_buffers"] == 20
    assert buffers([first], 1, 10)["pipeline_buffers"] == 0


def test_pieces_go_through_a_buffer_for_each_collective_of_a_layer() -> None:
    """A gather of 50 one way and a sum of 60 back, another gather of 50 back, a sum and a gather of
    70; what experts exchange, and the head's gather, need none."""
    dense = block(
        Exchange("enter", "tensor", 50, "all_gather", "reduce_scatter", backward_bytes=60),
        Exchange("again", "tensor", 50, None, "all_gather"),
        Exchange("leave", "tensor", 70, "reduce_scatter", "all_gather"),
        Exchange("dispatch", "expert", 80, "all_to_all", "all_to_all"),
    )
    head = replace(dense, kind="head")
    chunks = chunks_of([[dense], [dense, head]], 2)
    assert registered(chunks) == 50 + 60 + 50 + 70 + 70
    assert registered(chunks_of([[head]], 1)) == 0


def test_a_stage_without_transformer_layers_buffers_messages_as_the_others_do() -> None:
    """A message is 64 tokens x 128 hidden x 2 bytes, whatever the stage's own layers read: the
    first stage holds the embedding only, the second nothing."""
    resolved = plan(scenario(parallel={"pipeline": 4, "layers": (0, 0, 4, 4)}))
    assert boundary_bytes(resolved.scenario) == 64 * 128 * 2
    found = [stage.categories["pipeline_buffers"] for stage in resolved.memory.stages]
    assert found == [2 * 16384, 4 * 16384, 4 * 16384, 2 * 16384]


def test_the_chunks_of_one_stage_hand_over_without_buffers() -> None:
    whole = {"virtual": 2, "schedule": "interleaved_1f1b"}
    assert plan(scenario(parallel=whole)).memory.peak.categories["pipeline_buffers"] == 0


def test_experts_are_sharded_over_the_tensor_ranks_that_hold_the_same() -> None:
    """Tensor ranks do not cut experts unless `expert_tensor` says so: the 16 ranks of a stage with
    tensor 2 and expert 8 hold each expert twice, and two ranks share 67.6 GB of its states."""
    overrides = ["parallel.tensor=2", "parallel.expert=8", "parallel.sequence_parallel=true"]
    resolved = plan(load("kimi-k2-256xh800", overrides))
    assert resolved.placements["expert_data"].size == 2
    states = max(s.categories["optimizer_expert"] for s in resolved.memory.stages)
    assert states == pytest.approx(33.8e9, rel=0.01)


def test_dualpipe_holds_parameters_and_gradients_twice_and_shards_states_over_both() -> None:
    """DeepSeek-V3, table 2: twice the parameters of 1F1B; the same states, since both copies'
    ranks share them."""
    even = f"parallel.layers={[3, *[4] * 14, 2]}"
    one, two = (
        load("kimi-k2-2048xh800", ["parallel.virtual=1", even, f"parallel.schedule={kind}"])
        for kind in ("1f1b", "dualpipe")
    )
    mirrored = [plan(made).memory.stages for made in (one, two)]
    for name in ("parameters", "gradients"):
        plain = [stage.categories[name] for stage in mirrored[0]]
        both = [stage.categories[name] for stage in mirrored[1]]
        assert both == pytest.approx([a + b for a, b in zip(plain, plain[::-1], strict=True)])
    states = [
        sum(s.categories["optimizer_dense"] + s.categories["optimizer_expert"] for s in stages)
        for stages in mirrored
    ]
    assert states[0] == pytest.approx(states[1])
