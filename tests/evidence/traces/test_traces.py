"""Profiler traces: read in blocks, every nanosecond of a step one cause."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import twin
from tests.evidence.traces.traces import event, kernels, trace_file
from twin.engine import plan
from twin.errors import UsageError
from twin.evidence.traces import chrome
from twin.evidence.traces.accounted import accounted
from twin.evidence.traces.answer import read_rank
from twin.evidence.traces.chrome import Chrome
from twin.evidence.traces.kernels import UNKNOWN, cause_of, kind_of
from twin.evidence.traces.meetings import meetings
from twin.evidence.traces.predicted import predicted_layers

PUBLIC = Path(__file__).parents[4] / "shared/data/traces/deepseek-v3-train-pair-h800.json.gz"
GEMM = "void cutlass::device_kernel<GemmKernel>"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
TENSOR = {
    "Collective name": "allreduce",
    "Group size": 8,
    "Process Group Description": "TENSOR_GROUP",
}
ALL_TO_ALL = {"Collective name": "all_to_all", "Group size": 2, "Process Group Name": "3",
              "Process Group Description": "EXPERT_MODEL_PARALLEL_GROUP",
              "Process Group Ranks": "[0, 1]"}  # fmt: skip


def row(**known: int) -> dict[str, int]:
    """Causes in microseconds, as nanoseconds."""
    return {cause: 1000 * us for cause, us in known.items()}


def causes(found: Any) -> dict[str, int]:
    return {cause: ns for cause, ns in found.row.items() if ns}


def test_every_nanosecond_of_a_hand_made_step_has_a_cause(tmp_path: Path) -> None:
    rows = [
        (GEMM, 7, 100, 200, 50),
        (REDUCE, 20, 180, 260, 60, TENSOR),  # 60 us alone
        (GEMM, 7, 300, 400, 285),  # idle from 260; launched at 285, and 10 us later it could run
        ("Memcpy DtoH (Device -> Pinned)", 9, 390, 450, 100),  # 50 us alone
        ("void multi_tensor_apply_kernel<AdamFunctor>", 7, 450, 500, 120),
        ("something_nobody_knows", 7, 500, 510, 130),
    ]
    (rank,) = read_rank(trace_file(tmp_path / "t.json", kernels(rows)))
    found = accounted(rank)
    assert found.step_ns == 410_000
    assert sum(found.row.values()) == found.step_ns
    assert causes(found) == row(
        compute=200, exposed_tensor=60, host=35, exposed_offload=50, optimizer=50, other=15
    )
    assert found.unknown_ns == 10_000
    assert rank.gpu == "NVIDIA H800"


def test_waiting_for_the_last_rank_of_a_group_is_a_bubble_where_its_trace_is_there(
    tmp_path: Path,
) -> None:
    """The first rank comes at 100, the second at 160: both exchange from then on."""
    early = [(GEMM, 7, 0, 100, 0), ("ncclDevKernel_SendRecv", 20, 100, 200, 10, ALL_TO_ALL)]
    late = [(GEMM, 7, 0, 160, 0), ("ncclDevKernel_SendRecv", 20, 160, 200, 10, ALL_TO_ALL)]
    ranks = [
        read_rank(trace_file(tmp_path / f"{at}.json", kernels(rows), rank=at))[0]
        for at, rows in enumerate((early, late))
    ]
    begun = meetings(ranks).begun
    first, second = (accounted(one, begun=came) for one, came in zip(ranks, begun, strict=True))
    assert causes(first) == row(compute=100, bubble=60, exposed_expert=40)
    assert causes(second) == row(compute=160, exposed_expert=40)
    assert causes(accounted(ranks[0])) == row(compute=100, exposed_expert=100)


@pytest.mark.parametrize("ahead", [-3_000, 0, 70, 5_000])
def test_clocks_that_differ_are_put_right_by_the_ends_of_shared_collectives(
    tmp_path: Path, ahead: float
) -> None:
    """Three ranks; the second's clock is off. It shares a group with each of the others, in which
    it comes late every other time."""
    both = {**ALL_TO_ALL, "Process Group Name": "4", "Process Group Ranks": "[1, 2]"}
    noise = random.Random(7)

    def events(rank: int, off: float) -> list[dict[str, Any]]:
        rows = []
        for n in range(8):
            for group, members in ((ALL_TO_ALL, (0, 1)), (both, (1, 2))):
                start, end = 1_000 * n + 400 * members[0], 1_000 * n + 400 * members[0] + 300
                late = 100 * (rank == 1) * (n % 2)
                if rank in members:
                    end += off + noise.uniform(0, 10)
                    begin = start + off + late
                    rows.append(("ncclDevKernel_AllToAll", 20, begin, end, begin - 5, group))
        return kernels(rows)

    ranks = [
        read_rank(trace_file(tmp_path / f"{at}.json", events(at, ahead * (at == 1)), rank=at))[0]
        for at in range(3)
    ]
    found = meetings(ranks)
    told = [round(ns / 1e3, -2) for ns in found.ahead_ns]
    assert told == [0, ahead if ahead > 100 or ahead < 0 else 0, 0]
    waits = [causes(accounted(one, begun=b)) for one, b in zip(ranks, found.begun, strict=True)]
    if ahead != 70:
        for one in (waits[0], waits[2]):
            assert one["bubble"] == pytest.approx(400_000, abs=45_000)
        assert waits[1].get("bubble", 0) < 45_000


def test_passes_are_told_by_annotations_or_else_by_autograd(tmp_path: Path) -> None:
    rows = [(GEMM, 7, 100 * n, 100 * n + 50, 100 * n) for n in range(1, 5)]
    own = kernels(rows, thread=7)
    own.append(event("user_annotation", "mlp(B)", 7, 190, 210))
    inner = event("user_annotation", "inner", 7, 196, 199)
    own += [inner, event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 7, 290, 310)]
    own.append(event("user_annotation", "forward_step", 8, 395, 405))  # another thread's
    (rank,) = read_rank(trace_file(tmp_path / "t.json", own))
    assert rank.backward.tolist() == [False, True, True, False]
    named = [rank.annotations[at] if at >= 0 else "" for at in rank.annotation.tolist()]
    assert named == ["", "inner", "", "forward_step"]


def test_steps_are_what_the_host_launched_in_them(tmp_path: Path) -> None:
    rows = [(GEMM, 7, 100, 150, 20), (GEMM, 7, 160, 260, 120), (GEMM, 7, 300, 310, 220)]
    steps = [
        event("user_annotation", f"ProfilerStep#{n}", 7, 100 * n, 100 * n + 100) for n in (0, 1, 2)
    ]
    (rank,) = read_rank(trace_file(tmp_path / "t.json", [*steps, *kernels(rows)]))
    assert sorted(rank.steps) == [0, 1, 2]
    # The second lasts until the third begins, and waits 40 us for what is not there yet.
    assert causes(accounted(rank, 1)) == row(compute=100, other=40)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("indent", [None, 1])
def test_reading_in_blocks_finds_what_reading_at_once_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, indent: int | None
) -> None:
    drawn = random.Random(seed)
    parts = ["a{b", "}]", 'q"x', "\\", '\\"', "plain", "\u00e9\n", ",{"]
    events = [
        event("kernel", "".join(drawn.choices(parts, k=drawn.randrange(5))), 1, at, at + 1)
        | {"args": {"x": {"y": [drawn.random(), "]}"]}, "stream": 3}}
        for at in range(60)
    ]
    text = json.dumps({"a": {"b": ["{"]}, "traceEvents": events, "end": [1]}, indent=indent)
    (tmp_path / "t.json").write_text(text)
    for block in (17, 256, 1 << 20):
        monkeypatch.setattr(chrome, "BLOCK", block)
        read = Chrome(tmp_path / "t.json")
        found = list(read.events(chrome.Event))
        assert [(one.name, one.ts, one.args.stream) for one in found] == [
            (one["name"], one["ts"], 3) for one in events
        ]
        assert (read.head, read.torn, read.skipped) == ({"a": {"b": ["{"]}}, False, 0)


def test_a_torn_or_strange_file_gives_what_it_has(tmp_path: Path) -> None:
    events = [event("kernel", f"k{n}", 1, n, n + 1) for n in range(1000)]
    whole = gzip.compress(json.dumps({"traceEvents": events}).encode())
    (tmp_path / "t.json.gz").write_bytes(whole[: len(whole) // 2])
    torn = Chrome(tmp_path / "t.json.gz")
    count = sum(1 for _ in torn.events(chrome.Event))
    assert torn.torn
    assert 0 < count < 1000
    events[5]["ts"] = "soon"
    events[6] = {"ph": "X", "dur": 1, "args": {"stream": 1.5}}
    (tmp_path / "s.json").write_text(json.dumps(events))
    strange = Chrome(tmp_path / "s.json")
    assert sum(1 for _ in strange.events(chrome.Event)) == 998
    assert strange.skipped == 2
    assert not strange.torn


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "no `traceEvents`"),
        ("hello", "no `traceEvents`"),
        ("", "no `traceEvents`"),
        ('{"traceEvents": [{"ph": "X", nonsense}]}', "not JSON"),
        ('{"traceEvents": [{"ph": "X", "name": "\udcff"}]}', "not JSON"),
        ('{"\udcff": 1, "traceEvents": []}', "no kernel of a GPU"),
        ('{"traceEvents": []}', "no kernel of a GPU, and no operator"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "x.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=says):
        read_rank(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (
            "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "collective",
        ),
        ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", "exchange"),
        ("void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128>>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention"),
        ("void deep_gemm::sm90_fp8_m_grouped_gemm_contiguous_1d2d_impl<128>", "grouped_product"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "product"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", "product"),
        ("void transformer_engine::cast_transpose_kernel<float>", "cast"),
        ("void at::native::elementwise_kernel<128, 4, {lambda(int)#1}>", "elementwise"),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdam>",
            "optimizer",
        ),
        ("void layer_norm::ln_fwd_kernel<>", "norm"),
        ("triton_poi_fused_add_mul_3", "elementwise"),
        ("Memcpy HtoD (Pinned -> Device)", "host_copy"),
        ("Memcpy DtoD (Device -> Device)", "copy"),
        ("zzz", UNKNOWN),
    ],
)
def test_kernels_are_known_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_a_group_without_words_is_told_by_its_size_or_by_what_it_sends() -> None:
    def cause(collective: str, members: int) -> str:
        told = chrome.Arguments(collective=collective, members=members)
        return cause_of(
            "collective", "ncclDevKernel", told, ((2, "exposed_tensor"), (64, "exposed_expert"))
        )

    assert cause("allreduce", 2) == "exposed_tensor"
    assert cause("allgather", 64) == "exposed_expert"
    assert cause("send", 2) == "exposed_pipeline"
    assert cause("all_to_allv", 2) == "exposed_expert"
    assert cause("reduce_scatter", 512) == "exposed_data"


@pytest.mark.skipif(not PUBLIC.exists(), reason="the public trace is not beside the project")
def test_the_public_trace_of_deepseek_is_accounted_for_and_its_pair_predicted() -> None:
    """github.com/deepseek-ai/profile-data, training: four MoE layers forward beside four backward,
    EP64, 4,096 tokens."""
    (rank,) = read_rank(PUBLIC)
    found = accounted(rank)
    assert (rank.gpu, rank.ranks, found.passes) == ("NVIDIA H800", 64, (4, 4))
    assert sum(found.row.values()) == found.step_ns
    assert found.unknown_ns + found.row["other"] < 0.03 * found.step_ns
    # What annotations hold is all that ran.
    assert sum(ns for _, ns in found.annotations.values()) == found.busy_ns
    assert {"attn(F)", "mlp(B)", "mlp(W)", "dispatch(F)", "combine(B)"} <= set(found.annotations)
    planned = plan(twin.load("deepseek-v3-2048xh800", ["parallel.expert=64"]))
    said = predicted_layers(found, planned)
    assert said is not None
    assert said.paired
    assert abs(said.error) < 0.1
    assert np.isclose(said.measured_seconds, found.step_ns / 1e9)
