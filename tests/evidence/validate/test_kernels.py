"""Rows of kernels and of traces: which are priced, and what comes out with and without them."""

from __future__ import annotations

from functools import cache
from statistics import median

import pytest

from tests.evidence.validate.rows import row, shipped
from twin.errors import UsageError
from twin.evidence.calibrate.hopper import committed
from twin.evidence.calibrate.kernels import kernels
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.kernels import answers, kernels_of
from twin.evidence.validate.kernels import traces as trace_answers
from twin.evidence.validate.leave_one_out import ALONE, leave_one_out
from twin.evidence.validate.suite import PublishedRow, refusal

PRODUCT = "aic-gemm-h100-bfloat16-n7168-k2048"


def test_answers_are_the_kernels_of_the_profile() -> None:
    """Read by content from a row, as by file for the fit."""
    gpu, calibration = committed("h100-hopper-bf16")
    own = [one for one in kernels("h100-hopper-bf16") if one.row == PRODUCT]
    found = answers(shipped(PRODUCT))
    assert len(found) == len(own) == 8
    for one, kernel in zip(found, own, strict=True):
        assert one.id == f"{PRODUCT}[{kernel.shape}]"
        assert one.metric == "kernel_seconds"
        assert one.measured == kernel.measured
        assert one.predicted == pytest.approx(kernel.predicted(gpu, calibration))


def test_a_large_product_takes_its_flop_over_the_peak_and_not_half_as_long_again() -> None:
    """8,192 x 8,192 x 8,192 in bf16 on H100, at 989 TFLOP/s."""
    metrics = {"columns": ["m", "n", "k", "tflops"], "series": [[8192, 8192, 8192, 700.0]]}
    (found,) = answers(row(metrics, precision="BF16", gpu="H100"))
    assert found.measured == pytest.approx(2 * 8192**3 / 700e12)
    assert found.predicted is not None
    assert 2 * 8192**3 / 989e12 < found.predicted < 1.45 * 2 * 8192**3 / 989e12


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("aic-moe-h100-e384-ep8-power-law-1.2", "how many rows of a skewed routing"),
        ("flashmla-h800-sparse-decode", "the shape"),
        ("fa3-h100pcie-hd128", "how many heads"),
        ("fa2-fa3-h100-32k", "causal"),
        ("fa3-h100-devgpu-8k", "the power limit"),
    ],
)
def test_a_rate_without_its_shape_names_what_is_not_told(name: str, word: str) -> None:
    (one,) = answers(shipped(name))
    assert one.status == "not_expressible"
    assert refusal(one.reason) == "untold"
    assert word in one.reason


@pytest.mark.parametrize(
    ("name", "kernels", "most"),
    [
        ("aic-gemm-h100-fp8-n8192-k8192", 8, 0.12),
        ("aic-moe-h100-e384-ep8-balanced", 6, 0.06),
        ("aic-moe-h100-e384-ep64-balanced", 6, 0.15),
        ("mamf-bf16-a100-sxm", 1, 0.03),
        ("mamf-bf16-gb200", 1, 0.03),
        ("mamf-fp8-h100-sxm", 1, 0.13),
        ("fa3-h100pcie-hd64", 4, 0.16),
    ],
)
def test_kernels_of_other_libraries_and_gpus_are_met(name: str, kernels: int, most: float) -> None:
    """By no number of their own; the median of each row."""
    found = answers(shipped(name))
    assert len(found) == kernels
    assert median(abs(one.error or 1.0) for one in found) < most


def test_experts_elsewhere_are_moved_as_zeros() -> None:
    """By hand, 16,384 tokens of 7,168 over 64 ranks, each to 8 experts 2,048 wide: all but a 64th
    of 131,072 rows are written as zeros of 4,096 and 7,168 numbers; the activation reads 4,096 of
    all rows and writes 2,048, the cast reads and writes these, and the sum reads 7,168 of all rows
    and writes a token's."""
    copies, tokens, fp8 = 131_072, 16_384, 1 + 4 / 128  # with its part of a scale
    zeros = copies * 63 / 64 * (4096 + 7168) * 2
    moved = copies * 2048 * (2 * 2 + 2 + 2 + fp8) + (copies + tokens) * 7168 * 2
    casts = tokens * 7168 * (2 + fp8)
    last = kernels_of(shipped("aic-moe-h100-e384-ep64-balanced"))[-1]
    (_, down), (_, work) = last.beside
    assert work.bytes == pytest.approx(zeros + moved + casts)
    assert last.work.flop + down.flop == pytest.approx(2 * copies / 64 * 7168 * 2048 * 3)


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"series": [[1]], "columns": ["m"]},
        {"series": [["x", 2, 3, 4]], "columns": ["m", "n", "k", "tflops"]},
        {"series": [[1, 2, 3, 0]], "columns": ["m", "n", "k", "tflops"]},
        {"series": 3, "columns": ["m", "n", "k", "tflops"]},
        {"shape": "12", "max_achievable_matmul_tflops": 3},
    ],
)
def test_what_cannot_be_read_is_a_reason_and_no_traceback(metrics: dict[str, object]) -> None:
    (one,) = answers(row(metrics, precision="BF16", gpu="H100"))
    assert one.status == "not_expressible"
    assert one.reason


@cache
def left_out(name: str) -> tuple[RowResult, ...]:
    return leave_one_out([shipped(name)])


def test_without_its_row_a_product_is_met_almost_as_well() -> None:
    found = left_out(PRODUCT)
    assert len(found) == 8
    assert all(one.left_out is not None and one.left_out != one.predicted for one in found)
    assert all(one.left_out == pytest.approx(one.predicted, rel=0.05) for one in found)


def test_a_refit_is_that_of_the_other_rows() -> None:
    """Weight gradients: one share, so that dense and grouped rows tell each other's."""
    found = left_out("deepgemm-h800-weight-gradient-grouped")
    errors = [abs((one.left_out or 0.0) / (one.measured or 1.0) - 1) for one in found]
    assert len(errors) == 5
    assert max(errors) < 0.10
    assert min(abs(one.error or 0.0) for one in found) > 0.10  # the profile takes the trace's


def test_a_snapshot_that_says_the_same_is_left_out_too() -> None:
    """The six masked kernels are the same in both snapshots: without them others are left only."""
    for one in left_out("deepgemm-h800-grouped-masked-v2"):
        assert one.left_out != one.predicted


def test_the_only_row_of_a_number_has_nothing_to_be_left_out_of() -> None:
    found = left_out("flash-attention-3-h100-backward")
    assert {one.left_out for one in found} == {None}
    assert {one.reason for one in found} == {ALONE}


def test_a_row_that_no_fit_has_seen_is_predicted_as_ever() -> None:
    metrics = {"columns": ["m", "n", "k", "tflops"], "series": [[3000, 3000, 3000, 500.0]]}
    (one,) = leave_one_out([row(metrics, precision="BF16", gpu="H100", category="kernel")])
    assert one.left_out == one.predicted


def test_leaving_out_needs_scipy_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twin.evidence.calibrate.find_spec", lambda _: None)
    with pytest.raises(UsageError) as refused:
        leave_one_out([])
    assert refused.value.problems[0].code == "TW031"


def traces(name: str) -> RowResult:
    (one,) = trace_answers(shipped(f"profile-data-train-{name}"))
    return one


def test_the_pair_of_the_trace_is_met() -> None:
    """129.0 ms on the GPU, by no fit: only its kernels are from the same trace."""
    one = traces("chunk-total")
    assert one.metric == "phase_pair_seconds"
    assert one.measured == pytest.approx(129.012e-3)
    assert abs(one.error or 1.0) < 0.03


def test_exchanges_of_the_trace_sum_to_what_their_profile_was_made_of() -> None:
    names = ("deepep-dispatch-fwd", "deepep-dispatch-bwd", "deepep-combine")
    found = [traces(name) for name in names]
    predicted = sum(one.predicted or 0.0 for one in found)
    assert predicted == pytest.approx(sum(one.measured or 0.0 for one in found), rel=0.01)


def test_a_layer_of_megatron_is_ten_passes() -> None:
    found = trace_answers(shipped("korthikanti22-t4-layer-22b"))
    assert {one.metric for one in found} == {"phase_forward_seconds", "phase_backward_seconds"}
    assert len(found) == 10
    assert max(abs(one.error or 1.0) for one in found) < 0.05


def test_traces_of_others_are_refused() -> None:
    (one,) = trace_answers(PublishedRow({"id": "mine", "metrics": {"total_ms": 3}}, {}))
    assert one.status == "not_expressible"
