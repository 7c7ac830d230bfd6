"""Rows of communication: bus bandwidths as their sources count them, and NVLink without a row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evidence.validate.rows import row, shipped
from tests.hardware.catalog import plain
from twin.evidence.validate.collectives import answers, points, runs
from twin.evidence.validate.exchanges import FEW, Nvlink
from twin.evidence.validate.leave_one_out import leave_one_out, nvlink_of
from twin.evidence.validate.suite import PublishedRow

SERIES = "aic-nccl-h100-all-gather-8"


def test_bus_bandwidth_of_a_series_is_that_of_its_own_column() -> None:
    """Sources print it beside the milliseconds, to three digits."""
    name = "aic-nccl-a100-80gb-all-reduce-4"
    printed = {size: rate for size, _, rate in shipped(name).metrics["series"]}
    found = {run.payload: run.bus_bytes / seconds for run, seconds in runs(shipped(name))}
    assert len(found) == 12
    for payload, rate in found.items():
        assert rate == pytest.approx(printed[payload] * 1e9, rel=5e-3, abs=6e7)


def test_every_point_of_a_series_has_an_answer_but_small_ones_between_nodes() -> None:
    found = answers(shipped(SERIES))
    assert len(found) == len(shipped(SERIES).metrics["series"])
    assert all(one.status != "not_expressible" for one in found)
    (small,), (large,) = (answers(series("all_gather", size, 16)) for size in (2**20, 2**24))
    assert small.reason == "what NCCL's protocols for payloads under 4 MiB cost between nodes"
    assert large.predicted
    assert {one.metric for one in found} == {"bus_bytes_per_second"}
    assert len({one.id for one in found}) == len(found)


def test_a_gathered_gigabyte_takes_its_bytes_over_nvlink() -> None:
    """By hand: 7/8 of 1 GiB and a part of the rank's own eighth at 450 GB/s x the catalog's
    efficiency, and 7 + 16 hops."""
    nvlink = plain("nodes/h100-8gpu")["nvlink"]
    (one,) = points(series("all_gather", 2**30, 8))
    rate = 450e9 * nvlink["efficiency"]
    moved = (7 + nvlink["own_share"]) / 8 * 2**30
    assert one.ours == pytest.approx(moved / rate + 23e-6, rel=0.002)


def test_other_numbers_of_nvlink_move_an_answer() -> None:
    slow = Nvlink(efficiency=0.5, latency=1e-6, own_share=0.4)
    pair = series("all_gather", 2**30, 8)
    (usual,), (other,) = points(pair), points(pair, slow)
    assert other.ours == pytest.approx(7.4 / 8 * 2**30 / 225e9 + 23e-6, rel=0.002)
    assert usual.ours < other.ours


def series(op: str, payload: int, ranks: int, gpu: str = "H100") -> PublishedRow:
    metrics = {"op": op, "columns": ["bytes", "ms"], "series": [[payload, 4.0]]}
    return row(metrics, gpu=gpu, gpus=ranks, category="collective")


def test_the_fit_of_all_rows_is_what_the_catalog_has() -> None:
    for gpu, node in (("H100", "h100-8gpu"), ("A100-80GB", "a100-80gb-8gpu-8x200g")):
        shipped_numbers, found = plain(f"nodes/{node}")["nvlink"], nvlink_of(gpu)
        latency = float(shipped_numbers["latency"].removesuffix("us")) * 1e-6
        assert found.efficiency == pytest.approx(shipped_numbers["efficiency"], abs=0.005)
        assert found.latency == pytest.approx(latency, abs=0.05e-6)
        assert found.own_share == pytest.approx(shipped_numbers["own_share"], abs=0.01)


def test_a_row_left_out_moves_nvlink_and_its_own_answers_only_a_little() -> None:
    found = [one for one in leave_one_out([shipped(SERIES)]) if one.predicted is not None]
    assert len(found) == 12
    for one in found:
        assert one.left_out != one.predicted
        assert one.left_out == pytest.approx(one.predicted, rel=0.05)


def test_all_reduces_that_a_switch_helps_with_are_in_no_fit_of_nvlink() -> None:
    for one in leave_one_out([shipped("aic-nccl-h100-all-reduce-8")]):
        assert one.left_out == one.predicted
    assert nvlink_of("H100", "aic-nccl-h100-all-reduce-8") == nvlink_of("H100")


def test_a_logical_bandwidth_counts_the_own_rank() -> None:
    """DeepEP on one node: a token reaches 5.26 of 8 ranks, 7/8 of which are others."""
    metrics = {"tokens_per_rank": 4096, "dispatch_GBps": 153}
    found = row(metrics, gpu="H800", gpus=8, category="collective", parallelism={"ep": 8})
    (one,) = points(found)
    assert one.bytes == pytest.approx(4096 * 7392 * 8 * (1 - 0.875**8), rel=0.01)
    assert one.measured == pytest.approx((one.bytes or 0.0) / 153e9)


def test_few_tokens_go_as_one_copy_per_expert() -> None:
    def bytes_of(tokens: int) -> float:
        metrics = {"tokens_per_rank": tokens, "combine_us": 100.0}
        made = row(metrics, gpu="H800", gpus=16, category="collective", parallelism={"ep": 16})
        (one,) = points(made)
        assert one.bytes is not None
        return one.bytes

    assert bytes_of(FEW) == 8 * FEW * 14336
    assert bytes_of(FEW + 1) < 2 * (FEW + 1) * 14336


@pytest.mark.parametrize(
    ("metrics", "more"),
    [
        ({}, {}),
        ({"op": "all_reduce", "columns": ["bytes", "ms"], "series": [["x", 1]]}, {}),
        ({"op": "all_reduce", "columns": ["bytes", "ms"], "series": [[2**30, 0]]}, {}),
        ({"op": "juggle", "columns": ["bytes", "ms"], "series": [[2**30, 1.0]]}, {}),
        ({"op": "all_reduce", "columns": ["what"], "series": [[1]]}, {}),
        ({"op": "all_reduce", "busbw_GBps_4GiB": "fast"}, {}),
        ({"op": "all_reduce", "busbw_GBps_4GiB": 300}, {"gpu": "Gaudi 3"}),
        ({"dispatch_GBps": 50}, {"parallelism": {"ep": "many"}}),
    ],
)
def test_what_cannot_be_read_is_a_reason_and_no_traceback(
    metrics: dict[str, Any], more: dict[str, Any]
) -> None:
    made = row(metrics, **({"gpu": "H100", "gpus": 8, "category": "collective"} | more))
    (one,) = answers(made)
    assert one.status == "not_expressible"
    assert one.reason


def test_what_is_not_in_the_catalog_is_told() -> None:
    (first, *_) = answers(shipped("uccl-h200-efa-ep8"))
    assert "EFA" in first.assumed[0]
    (first, *_) = answers(shipped("aws-p6-b300-nccl-a2a-32"))
    assert not first.assumed
    (first, *_) = answers(shipped("pplx-deepep-cx7-ep8-128tok"))
    assert first.assumed == ("H100/H200 taken for H100",)
