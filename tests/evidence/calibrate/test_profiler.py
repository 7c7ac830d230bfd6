"""Profiler traces: what ran is found with its work, and what is not mapped is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from twin.errors import UsageError
from twin.evidence.calibrate.calibrate import calibrate
from twin.evidence.calibrate.profiler import Profiled, read_trace
from twin.evidence.calibrate.request import CalibrationRequest

T, D, F = 96, 64, 160
"""Tokens, width in, width out: all different, so that every product is known by its shape."""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linear layer, its activation and attention, forward and backward, really profiled."""
    torch.set_num_threads(1)
    x = torch.randn(T, D, dtype=torch.bfloat16, requires_grad=True)
    layer = torch.nn.Linear(D, F, dtype=torch.bfloat16)
    q = torch.randn(2, 4, T, 32, dtype=torch.bfloat16, requires_grad=True)
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        for _ in range(3):
            torch.nn.functional.gelu(layer(x)).sum().backward()
            torch.nn.functional.scaled_dot_product_attention(
                q, q, q, is_causal=True
            ).sum().backward()
    found.export_chrome_trace(str(path))
    return path


def products(found: Profiled) -> dict[str, bool]:
    return {k.shape: k.backward for k in found.kernels if k.op_class == "gemm"}


def test_products_of_a_linear_layer_are_found_by_shape_and_direction(traced: Path) -> None:
    """Forward T x F x D, input's gradient T x D x F, weight's F x D x T."""
    found = read_trace(traced)
    assert products(found) == {
        f"{T} x {F} x {D}": False,
        f"{T} x {D} x {F}": False,
        f"{F} x {D} x {T}": True,
    }
    for kernel in found.kernels:
        if kernel.op_class == "gemm":
            assert kernel.work.flop == 2 * T * D * F
            assert kernel.work.bytes == 2 * (T * D + D * F + T * F)
            assert kernel.work.product is not None
            assert kernel.work.product.weight == kernel.backward


def test_attention_is_found_in_both_directions_with_causal_work(traced: Path) -> None:
    forward, backward = sorted(
        (k for k in read_trace(traced).kernels if k.op_class == "attention"),
        key=lambda kernel: kernel.backward,
    )
    scores = 2 * 4 * T * T / 2
    assert forward.work.flop == 2 * scores * (32 + 32)
    assert backward.work.flop == 2 * scores * (3 * 32 + 2 * 32)


def test_elementwise_kernels_move_their_operands(traced: Path) -> None:
    (gelu,) = (k for k in read_trace(traced).kernels if k.row == "aten::gelu")
    assert gelu.op_class == "bandwidth"
    assert gelu.work.bytes == 2 * 2 * T * F


def test_all_time_is_mapped_or_named(traced: Path) -> None:
    found = read_trace(traced)
    mapped = found.seconds - sum(one.seconds for one in found.others)
    assert 0 < mapped <= found.seconds
    assert found.share == pytest.approx(mapped / found.seconds)
    assert "aten::sum" in {one.name for one in found.others}
    assert all(one.why for one in found.others)
    counts = [found.calls[kernel.shape] for kernel in found.kernels if kernel.op_class == "gemm"]
    assert counts == [3, 3, 3]


def test_a_zipped_trace_says_the_same(traced: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "trace.json.gz"
    zipped.write_bytes(gzip.compress(traced.read_bytes()))
    own, other = read_trace(traced), read_trace(zipped)
    assert [k.shape for k in other.kernels] == [k.shape for k in own.kernels]
    assert other.seconds == own.seconds


def call(name: str, start: float, length: float, number: int, **arguments: Any) -> dict[str, Any]:
    own = {"External id": number, **arguments}
    event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1}
    return event | {"ts": start, "dur": length, "args": own}


def kernel(name: str, start: float, length: float, number: int) -> dict[str, Any]:
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7}
    return event | {"ts": start, "dur": length, "args": {"External id": number, "correlation": 9}}


def cuda(path: Path, shapes: bool = True) -> Path:
    """Of an H100: twelve products, one of two kernels; an all-reduce; a kernel of nobody."""
    events: list[dict[str, Any]] = []
    for i in range(12):
        m, k, n = 1024 * (1 + i % 4), 4096 * (1 + i // 6), 4096 * (1 + i % 3)
        dims = (
            {"Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16"] * 2} if shapes else {}
        )
        seconds = 2 * m * k * n / 500e12 + 6e-6
        start = 1e4 * i
        events.append(call("aten::matmul", start, 50, 100 + i))
        events.append(call("aten::mm", start + 5, 30, 200 + i, **dims))
        parts = [0.9, 0.1] if i == 0 else [1.0]
        for j, part in enumerate(parts):
            name = "nvjet_hsh_128x256" if j == 0 else "splitKreduce_kernel"
            events.append(kernel(name, start + 100 + 1000 * j, seconds * part * 1e6, 200 + i))
    events.append(kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 3e5, 400.0, 999))
    events.append(kernel("triton_poi_fused_0", 3.1e5, 100.0, 998))
    document = {"deviceProperties": [{"name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}
    path.write_text(json.dumps(document))
    return path


def test_kernels_of_a_gpu_count_together_and_instead_of_the_host(tmp_path: Path) -> None:
    found = read_trace(cuda(tmp_path / "trace.json"))
    assert found.device == "NVIDIA H100 80GB HBM3"
    assert len(found.kernels) == 12
    (first,) = (k for k in found.kernels if k.shape == "1,024 x 4,096 x 4,096")
    assert first.measured == pytest.approx(2 * 1024 * 4096 * 4096 / 500e12 + 6e-6)
    assert {one.name: one.why for one in found.others} == {
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "communication",
        "triton_poi_fused_0": "launched by no recorded call",
    }
    others = sum(one.seconds for one in found.others)
    assert others == pytest.approx(500e-6)
    assert found.seconds == pytest.approx(others + sum(k.measured for k in found.kernels))


def test_products_of_a_trace_give_a_profile_of_its_gpu(tmp_path: Path) -> None:
    """500 TFLOP/s and 6 us each: 0.51 of the peak, within what holds it near the base's 0.83."""
    found = calibrate(CalibrationRequest(cuda(tmp_path / "trace.json")))
    assert found.stamp.device == "H100"
    assert found.profile.matmuls is not None
    assert found.profile.matmuls.bf16 is not None
    law = found.profile.matmuls.bf16
    assert law.efficiency * law.sustained == pytest.approx(500 / 989, rel=0.08)
    before, after = found.errors("before", "fit"), found.errors("left_out", "fit")
    assert before is not None
    assert after is not None
    assert after.mean < 0.02
    assert before.mean > 0.2
    assert found.others[0][0].startswith("nccl")
    assert any("as in the base: memory" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no trace"),
        ("{}", "no `traceEvents`"),
        ("[]", "holds no kernel"),
        ('{"traceEvents": []}', "holds no kernel"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_trace(path)


def test_a_trace_without_shapes_says_how_to_record_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="record_shapes=True"):
        read_trace(cuda(tmp_path / "trace.json", shapes=False))


def test_a_trace_that_names_no_gpu_asks_for_one(traced: Path) -> None:
    with pytest.raises(UsageError, match="TW356 the source names no GPU"):
        calibrate(CalibrationRequest(traced))


def test_classes_without_enough_kernels_are_refused(traced: Path) -> None:
    few = traced.with_name("few.json")
    document = json.loads(traced.read_text())
    document["traceEvents"] = [e for e in document["traceEvents"] if e["name"] == "aten::gelu"]
    few.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="TW355 no class has 4 kernels"):
        calibrate(CalibrationRequest(few, gpu="h100"))
