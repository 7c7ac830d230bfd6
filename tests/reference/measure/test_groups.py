"""What the groups time: the work that the twin counts, Kimi K2's shapes, and calls that run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from reference.measure import clock
from reference.measure.groups import GROUPS, models
from reference.measure.groups import products as measured
from reference.measure.groups.products import skewed
from reference.measure.host import eager
from reference.measure.points import Skip, TimedCase
from tests.reference.measure.machines import exactly, runnable, setting
from twin.arch import attention as twin_attention
from twin.arch import kernels
from twin.arch.count import flop_per_token
from twin.arch.ops import Matrices, Op, Shape
from twin.loading import load_part
from twin.optimizers.base import adamw_update, squares
from twin.optimizers.orthogonal import newton_schulz

HERE = setting("cuda", "kimi-k2")


SHAPELESS = ("copies", "collectives", "steps", "serving")
"""Groups that need memory or ranks; of steps a smaller one runs below, of serving on a CPU."""
NUMBERS = ("host", "item:item", "item:look", "fused", "turn:")
"""In the names of cases that move numbers to the host, ask for one, or need a real device, and of
those of which one run serves all."""
ON_META = [(name, "kimi-k2") for name in GROUPS if name not in SHAPELESS]
ON_META += [(name, "llama3-8b") for name in ("gemm", "attention", "optimizer")]


@pytest.mark.parametrize(("name", "model"), ON_META)
def test_every_case_of_a_gpu_runs_with_tensors_that_have_shapes_alone(
    name: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU will be asked first, on the meta device."""
    ran: list[object] = []

    def once(calls: list[clock.Call], *_: object, **__: object) -> object:
        ran.extend(call() for call in calls)
        return exactly(1.0)

    monkeypatch.setattr(clock, "measure", once)
    monkeypatch.setattr(clock, "host_seconds", lambda call, *_: once([call]))
    monkeypatch.setattr(clock, "sustained", lambda call, *_: once([call]))
    monkeypatch.setattr(clock, "beside", lambda call, *_: once([call]))
    cases = runnable(GROUPS[name](setting("cuda", model)))
    # Kernels that go through long tensors in blocks take seconds there: one size stands for all.
    cases = [case for case in cases if name != "bandwidth" or case.shape["tokens"] == 512]
    cases = [case for case in cases if not any(word in case.op for word in NUMBERS)]
    nowhere = replace(HERE, device=torch.device("meta"))
    for case in cases:
        case.run(nowhere)
    assert len(ran) == len(cases)


def test_calls_in_turns_have_a_sample_of_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "ROUNDS", 2)
    few = {name: eager.CALLS[name] for name in ("linear", "view", "nodes_view_9", "item")}
    monkeypatch.setattr(eager, "CALLS", few)
    found = eager.in_turns(torch.device("cpu"))
    assert {name: len(each) for name, each in found.items()} == dict.fromkeys(list(few)[:3], 2)
    assert all(seconds > 0 for each in found.values() for seconds in each)


def test_a_step_runs_with_tensors_that_have_shapes_alone() -> None:
    spec = load_part("models", "kimi-k2-small").spec.model_copy(update={"layers": 2})
    models.prepare(spec, torch.bfloat16, 1, 64, torch.device("meta"))()


def test_products_do_the_work_that_the_twin_counts() -> None:
    for rows, (outputs, inputs) in [(4096, pair) for pair in measured.projections(HERE.spec)]:
        twin = kernels.Matmul(rows, inputs, outputs)
        forward = measured.gemm("gemm", "bf16", rows, outputs, inputs)
        inward = measured.gemm("gemm_input", "bf16", rows, inputs, outputs)
        weight = measured.gemm("gemm_weight", "bf16", outputs, inputs, rows)
        assert (forward.flop, forward.bytes) == (twin.forward().flop, twin.forward().bytes)
        assert (inward.flop, inward.bytes) == (
            twin.input_gradient().flop,
            twin.input_gradient().bytes,
        )
        assert weight.flop == twin.weight_gradient().flop
        product = twin.weight_gradient().product
        assert product is not None
        assert (weight.shape["rows"], weight.shape["inner"]) == (product.cols, product.k)


def test_attention_does_the_work_that_the_twin_counts() -> None:
    cases = [case for case in runnable(GROUPS["attention"](HERE)) if "sdpa" not in case.op]
    assert {case.shape["heads"] for case in cases} == {64, 128}
    assert {(64, 192, 128, 4096), (128, 192, 128, 4096)} <= {
        (c.shape["heads"], c.shape["query_key"], c.shape["value"], c.shape["tokens"]) for c in cases
    }
    for case in cases:
        H, Q, V = (case.shape[name] for name in ("heads", "query_key", "value"))
        (op,) = twin_attention.core(
            twin_attention.Heads(H, H, Q, V), Shape(1, case.shape["tokens"]), dropout=False
        )
        assert isinstance(op, Op)
        work = op.backward if case.op == "attention_backward" else op.forward
        assert (case.flop, case.bytes, case.kernels) == (work.flop, work.bytes, work.kernels)


def test_kernels_bound_by_memory_move_what_the_twin_counts() -> None:
    by_op = {
        case.op: case for case in runnable(GROUPS["bandwidth"](HERE)) if case.shape["tokens"] == 8
    }
    norm, gate = kernels.norm("n", 8, 7168), kernels.swiglu("s", 8, 7168)
    add = kernels.residual("r", 8, 7168, dropout=False, keep=False)
    wanted = {
        "rms_norm": norm.forward,
        "rms_norm_backward": norm.backward,
        "swiglu": gate.forward,
        "swiglu_backward": gate.backward,
        "add": add.forward,
    }
    for op, work in wanted.items():
        assert (by_op[op].bytes, by_op[op].kernels) == (work.bytes, work.kernels), op


def test_the_optimizer_does_the_work_that_the_twin_counts() -> None:
    for case in runnable(GROUPS["optimizer"](HERE)):
        rows, cols = case.shape["rows"], case.shape["cols"]
        if case.op == "adamw":
            assert case.bytes == adamw_update(rows * cols).bytes
        elif case.op == "gradient_norm":
            assert case.bytes == squares(rows * cols).bytes
        else:
            twin = newton_schulz(Matrices("expert", case.shape["matrices"], rows, cols))
            assert (case.flop, case.bytes) == (twin.flop, twin.bytes)


def test_steps_are_counted_in_the_models_flop() -> None:
    for case in runnable(GROUPS["steps"](HERE)):
        tokens = case.shape["tokens"]
        spec = load_part("models", case.op.partition(":")[2]).spec
        twin = case.shape["sequences"] * tokens * flop_per_token(spec, tokens)
        # Attention to T / 2 or (T + 1) / 2 keys: a difference of 1 / T of its part.
        assert case.flop == pytest.approx(twin, rel=1e-3)


def test_kimi_k2s_experts_are_24_a_rank_with_512_to_8192_rows() -> None:
    cases = [case for case in runnable(GROUPS["grouped"](HERE)) if case.op == "grouped"]
    shapes = {(c.shape["inner"], c.shape["cols"]) for c in cases}
    assert shapes == {(7168, 4096), (2048, 7168)}
    assert {c.shape["rows"] for c in cases} == {512, 1024, 2048, 4096, 8192}
    assert {c.shape["groups"] for c in cases} == {24}
    weights = [case for case in runnable(GROUPS["grouped"](HERE)) if case.op == "grouped_weight"]
    assert len(weights) == len(cases)


def test_skewed_groups_hold_all_rows_and_the_first_the_most() -> None:
    counts = skewed(24 * 512, 24)
    assert sum(counts) == 24 * 512
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 6 * 512


def test_a_model_without_experts_and_a_lone_device_say_what_they_leave_out() -> None:
    alone = setting("cuda", "llama3-8b", ranks=1)
    skips = [c for name in ("grouped", "collectives") for c in GROUPS[name](alone)]
    assert all(isinstance(skip, Skip) for skip in skips)
    assert "llama3-8b has no experts" in str(skips[0])
    assert "two GPUs" in str(skips[1])


def test_shapes_beyond_the_device_are_counted() -> None:
    here = setting("cpu", "kimi-k2")
    found = GROUPS["gemm"](here)
    kept = [case for case in found if isinstance(case, TimedCase)]
    beyond = [skip for skip in found if isinstance(skip, Skip) and "beyond" in skip.why]
    assert all(case.flop <= here.most_flop for case in kept)
    assert len(beyond) == 1
    assert int(beyond[0].what.split()[0]) > 0
