"""Scenario to Plan: chunks, weights, micro-batches and warnings of small scenarios."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import SMALL
from tests.planning.examples import MOE, Changes, scenario
from twin.arch.count import parameters
from twin.arch.ops import Layer, Op, Weights, Work
from twin.arch.stack import layers
from twin.engine import plan
from twin.errors import ScenarioError
from twin.hardware.roofline import seconds
from twin.loading import load, stacks_of
from twin.planning import caveats
from twin.planning.chunks import shape_of, weights_of
from twin.planning.feasibility import problems
from twin.planning.layer_times import layer_seconds
from twin.planning.types import Warning as Told
from twin.sources import Sourced

SECTION = dict[str, Changes]
ZIPF = {"kind": "zipf", "s": 0.2}


def test_chunks_hold_the_model_in_order() -> None:
    case = scenario(
        model={"moe": MOE}, parallel={"pipeline": 2, "virtual": 2, "schedule": "interleaved_1f1b"}
    )
    found = plan(case)
    stack = layers(case.model, shape_of(case))
    assert [layer for chunk in found.chunks for layer in chunk.layers] == list(stack)
    assert [chunk.stage for chunk in found.chunks] == [0, 1, 0, 1]


def test_modules_that_predict_further_tokens_stand_before_the_head_on_its_stage() -> None:
    """They count in time and memory, as a second copy of the table of embeddings does, and are no
    part of the split of layers."""
    case = scenario(model={"moe": MOE, "mtp_layers": 1}, parallel={"pipeline": 2, "layers": (5, 3)})
    found = plan(case)
    kinds = [[layer.kind for layer in chunk.layers] for chunk in found.chunks]
    assert kinds[1] == ["moe", "moe", "moe", "mtp", "head", "head"]
    whole = sum(chunk.weights.total for chunk in found.chunks)
    count = parameters(case.model)
    assert whole == count.total + count.multi_token_prediction + 512 * 128
    alone = plan(scenario(model={"moe": MOE, "mtp_layers": 1}, parallel={"pipeline": 1}))
    assert alone.chunks[0].weights.total == whole - 512 * 128


def test_the_time_of_prediction_modules_draws_layers_from_the_last_stage() -> None:
    without, heavy = (
        plan(scenario(model={"moe": MOE, "mtp_layers": count}, parallel={"pipeline": 2}))
        for count in (0, 3)
    )
    held = [
        [layer.kind for layer in found.chunks[1].layers].count("moe") for found in (without, heavy)
    ]
    assert held[1] < held[0]


@pytest.mark.parametrize(
    ("kind", "arriving"),
    [("alltoall", None), ("deepep", 4 * (1 - 3 / 14)), ("hybridep", 4 * (1 - 3 / 14))],
)
def test_layers_are_those_of_the_fullest_rank_in_the_runs_numbers(
    kind: str, arriving: float | None
) -> None:
    """Its 4 of 16 experts get half of all copies, twice its part. 3 of 14 tokens choose both of
    their experts there (drawn one after the other: 1/2 x 9/21), and travel once."""
    case = scenario(
        model={"moe": MOE},
        parallel={"expert": 4, "dispatcher": kind},
        train={"routing": {"kind": "histogram", "loads": [3.0] * 4 + [1.0] * 12}},
    )
    shape = shape_of(case)
    assert (shape.expert_load, shape.precision) == (2.0, "bf16")
    assert shape.arriving == (arriving and pytest.approx(arriving, rel=0.03))
    assert shape_of(scenario(train={"routing": ZIPF})).expert_load == 1.0


def test_hardware_too_fast_for_the_clock_has_no_plan() -> None:
    """At 10^21 FLOP/s, 10^18 B/s and no launch time a step would be over in 0 ns."""
    case = scenario()
    fast = {"bf16_dense": 1e21, "memory_bandwidth": 1e18}
    gpu = case.cluster.node.gpu.model_copy(update=fast)
    node = case.cluster.node.model_copy(update={"gpu": gpu})
    changed = {
        "cluster": case.cluster.model_copy(update={"node": node}),
        "calibration": case.calibration.model_copy(update={"launch": 0.0}),
    }
    with pytest.raises(ScenarioError, match="TW123 the kernels of a micro-batch take"):
        plan(case.model_copy(update=changed))


def test_embedding_and_head_join_the_ends_of_a_written_split() -> None:
    chunks = plan(scenario(parallel={"pipeline": 4, "layers": (1, 3, 4, 0)})).chunks
    kinds = [[layer.kind for layer in chunk.layers] for chunk in chunks]
    assert kinds == [["embedding", "dense"], ["dense"] * 3, ["dense"] * 4, ["head"]]
    assert [chunk.first_layer for chunk in chunks] == [0, 1, 4, 8]


def test_a_tied_head_is_a_second_copy_on_another_stage() -> None:
    """The table of 512 x 128 is counted with the embedding; a last stage of its own holds it
    again."""
    ends = [
        plan(scenario(model={"tied_embeddings": tied}, parallel={"pipeline": 2})).chunks[-1].weights
        for tied in (False, True)
    ]
    assert ends[0] == ends[1]
    whole = plan(scenario(model={"tied_embeddings": True})).chunks[0].weights.total
    split = plan(scenario(model={"tied_embeddings": True}, parallel={"pipeline": 2})).chunks
    assert sum(chunk.weights.total for chunk in split) == whole + 512 * 128


def test_weights_of_a_chunk_add_up() -> None:
    layer = Layer("dense", (), Weights(replicated=3, tensor=4), 1.0)
    assert weights_of((layer, layer), embedded=True) == Weights(replicated=6, tensor=8)


def test_microbatches_share_the_batch_over_data_ranks() -> None:
    """64 sequences over 4 data ranks (16 GPUs / 2 / 2), 2 at a time."""
    case = scenario(parallel={"tensor": 2, "pipeline": 2, "micro_batch": 2})
    assert plan(case).microbatches == 8


def test_recomputation_runs_the_forward_of_transformer_layers_again() -> None:
    forward, rest = Work(flop=1e12, kernels=1), Work(flop=3e12, kernels=1)
    core = Op("attention_flash", "attention", forward, rest)
    other = Op("ffn", "gemm", forward, rest, weight=rest)
    layer = Layer("dense", (core, other), Weights(), 1.0)
    cases = {
        policy: scenario(memory={"recompute": policy})
        for policy in ((), ("attention_core",), ("full",))
    }
    plain, selective, full = (
        layer_seconds(replace(layer, policy=case.memory), case) for case in cases.values()
    )
    gpu, profile = cases[()].cluster.node.gpu, cases[()].calibration
    again = {op.name: seconds(op.kind, op.forward, gpu, profile) for op in (core, other)}
    assert selective - plain == pytest.approx(again["attention_flash"])
    assert full - plain == pytest.approx(sum(again.values()))
    head = replace(layer, kind="head")
    assert layer_seconds(head, cases[("full",)]) == pytest.approx(plain)


CAVEATS: list[tuple[str, SECTION]] = [
    ("balanced-routing", {"model": {"moe": MOE}}),
    ("plain-all-to-all", {"model": {"moe": MOE}, "parallel": {"expert": 4}}),
    (
        "free-overlap",
        {
            "model": {"moe": MOE},
            "parallel": {"expert": 2, "pipeline": 4, "schedule": "dualpipe"},
            "train": {"global_batch": "4096tok"},
        },
    ),
    ("experts-repeated-on-tensor-ranks", {"model": {"moe": MOE}, "parallel": {"tensor": 2}}),
    (
        "uneven-replicas",
        {
            "parallel": {"pipeline": 2},
            "cluster": {"nodes": 3},
            "train": {"global_batch": "3072tok"},
        },
    ),
    ("mixed-pipeline-neighbours", {"parallel": {"pipeline": 4}, "cluster": {"gpus": 8}}),
    ("balanced-by-kernels", {"parallel": {"pipeline": 2}}),
    ("empty-chunks", {"parallel": {"pipeline": 4, "layers": (2, 6, 0, 0)}}),
    ("fullest-expert-rank", {"model": {"moe": MOE}, "train": {"routing": ZIPF}}),
    ("idle-routing", {"train": {"routing": ZIPF}}),
    ("model-simplified", {"model": {"left_out": "windows"}}),
    ("idle-sequence-parallel", {"parallel": {"sequence_parallel": True}}),
    ("idle-overlap-param-gather", {"parallel": {"overlap_param_gather": True, "zero": 3}}),
    ("idle-bucket-size", {"parallel": {"bucket_size": 10, "zero": 3}}),
    ("idle-overlap-tensor", {"parallel": {"overlap_tensor": "pieces"}}),
    ("idle-sequence-copies", {"parallel": {"sequence_copies": True}}),
    ("idle-dispatcher", {"model": {"moe": MOE}, "parallel": {"dispatcher": "deepep"}}),
    (
        "calibration-without-fp8",
        {"cluster": {"fp8_dense": "600TFLOP/s"}, "train": {"precision": "fp8"}},
    ),
    ("tensor-across-nodes", {"parallel": {"tensor": 4}, "cluster": {"gpus": 2, "nodes": 8}}),
]


@pytest.mark.parametrize(("code", "sections"), CAVEATS, ids=[code for code, _ in CAVEATS])
def test_an_assumption_is_said_where_it_is_made(code: str, sections: SECTION) -> None:
    assert code in {warning.code for warning in plan(scenario(**sections)).warnings}


@pytest.mark.parametrize(
    ("fabric", "said"), [("400g", False), ("400g-4to1", True)], ids=["full", "oversubscribed"]
)
def test_pods_that_hold_some_stage_boundaries_are_said(fabric: str, said: bool) -> None:
    """16 stages of 4 nodes each on pods of 32: of the boundaries two cross spines."""
    case = load("kimi-k2-512xh800", [f"cluster.fabric=rail-fat-tree-{fabric}"])
    texts = [one.message for one in plan(case).warnings if one.code == "mixed-pipeline-pods"]
    assert [text.startswith("14 of 16 ") for text in texts] == [True] * said


def test_a_plain_dense_run_on_its_own_calibration_has_nothing_to_say() -> None:
    assert plan(scenario()).warnings == ()


@pytest.mark.parametrize(
    ("sets", "code", "said"),
    [
        ([], "software-assumed", f"{len(stacks_of('A100-80GB'))} stacks have"),
        (["cluster.node=h20-8gpu"], "software-assumed", "No stack of the catalog"),
        (["software=null"], "bare-kernels", "63.7 us per kernel"),
        (["software=megatron-core"], None, ""),
        (["software=in-house"], None, ""),
    ],
    ids=["assumed", "a GPU without stacks", "bare", "chosen", "of one's own"],
)
def test_software_that_nobody_chose_is_said(
    tmp_path: Path, sets: list[str], code: str | None, said: str
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL.replace("software: null\n", ""))
    found = caveats.software(load(file, sets))
    assert [one.code for one in found] == [code] * (code is not None)
    assert all("software" in one.message and said in one.message for one in found)


def test_a_cpu_of_the_reference_has_no_software_to_choose() -> None:
    root = Path(__file__).parents[2]
    case = load(root / "scenarios/reference/pp2-1gbps.yaml")
    assert (case.software, caveats.software(case)) == (None, [])


def test_calibration_of_another_gpu_is_said() -> None:
    case = scenario()
    other = case.model_copy(
        update={"calibration": case.calibration.model_copy(update={"gpu": "X"})}
    )
    assert [warning.code for warning in plan(other).warnings] == ["calibration-of-another-gpu"]


def test_products_of_shapes_that_were_not_measured_are_told() -> None:
    case = load("kimi-k2-2048xh800")
    chunks = plan(case).chunks

    def told(sides: tuple[int, int], inner: tuple[int, int]) -> list[Told]:
        laws = case.calibration.matmuls
        assert laws is not None
        assert laws.bf16 is not None
        law = {"bf16": laws.bf16.model_copy(update={"sides": sides, "inner": inner})}
        profile = case.calibration.model_copy(update={"matmuls": laws.model_copy(update=law)})
        return caveats.unmeasured_shapes(case.model_copy(update={"calibration": profile}), chunks)

    (found,) = told((128, 16_384), (1536, 16_384))
    assert found.message.startswith("24 % of the kernels' time")
    assert "inner sums of 1,536 to 16,384" in found.message
    assert told((1, 10**9), (1, 10**9)) == []
    assert caveats.unmeasured_shapes(case, chunks) == []


def test_assumed_numbers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {
        "calibration.grouped_gemm": Sourced(0.7, "assumed"),
        "calibration.gemm": Sourced(0.8, "measured"),
        "cluster.node.gpu.reserve.0.bytes": Sourced("1GiB", "assumed"),
    }
    case = scenario()
    monkeypatch.setattr(type(case), "ledger", numbers)
    efficiencies, others = caveats.assumed_numbers(case)
    assert "calibration.grouped_gemm" in efficiencies.message
    assert "calibration.gemm" not in efficiencies.message
    assert "reserve" in others.message


@given(
    nodes=st.sampled_from([1, 2, 3]),
    degrees=st.tuples(*(st.sampled_from([1, 2, 4, 8]) for _ in range(3))),
    virtual=st.sampled_from([1, 2]),
    kind=st.sampled_from(["gpipe", "1f1b", "interleaved_1f1b"]),
    sequence_parallel=st.booleans(),
    experts=st.sampled_from([None, 8, 12]),
)
def test_a_layout_without_problems_has_a_plan(
    nodes: int,
    degrees: tuple[int, int, int],
    virtual: int,
    kind: str,
    sequence_parallel: bool,
    experts: int | None,
) -> None:
    tensor, pipeline, expert = degrees
    case = scenario(
        model={"moe": MOE | {"experts": experts} if experts else None},
        parallel={
            "tensor": tensor,
            "pipeline": pipeline,
            "expert": expert,
            "virtual": virtual,
            "sequence_parallel": sequence_parallel,
            "schedule": kind,
        },
        train={"global_batch": "96seq"},
        cluster={"nodes": nodes},
    )
    if problems(case):
        return
    found = plan(case)
    assert found.mesh.ranks == case.cluster.gpus
    assert len(found.chunks) == pipeline * virtual
    assert found == plan(case)
