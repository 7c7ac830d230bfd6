"""Tensor collectives in pieces beside their products: hand-checked layers, and laws of whole
steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.scenarios import dense, moe
from twin.arch.ops import Exchange, Layer, Op, Product, Weights, Work
from twin.engine import lower, plan, simulate
from twin.engine.cost_model import CostModel, length_alone
from twin.engine.passes import backward_pass, forward_pass, input_pass, weight_pass
from twin.engine.program import COMPUTE, TENSOR, Program, Template
from twin.engine.trace import Trace
from twin.scenario import Scenario

SEQUENCE = "parallel.sequence_parallel=true"
BULK = "parallel.overlap_tensor=bulk"
PIECES = "parallel.overlap_tensor=pieces"
SCALING = (
    "calibration.matmuls=null",
    "calibration.sustained=1",
    "calibration.launch=0s",
    "calibration.dispatch=0s",
    "calibration.collective_sms=0",
    "calibration.contention=0",
    "train.attention_kernel=flash",
)
"""Products take as long in pieces: kernels cost nothing to start and lose nothing beside
communication."""
FP8 = ("cluster.node=h100-8gpu", "calibration=h100-hopper-bf16", "train.precision=fp8")
MLA = ("parallel.tensor=2", "memory={recompute: [norms, mla_up], fp8_store: [], offload: []}")
LAYOUTS = {
    "one stage": (dense, (1, 1, 1, 4)),
    "1f1b": (dense, (2, 4, 1, 4)),
    "interleaved": (dense, (4, 4, 3, 8)),
    "core recomputed": (dense, (2, 4, 1, 2, "memory.recompute=[attention_core]")),
    "nothing recomputed": (dense, (2, 2, 1, 4, "memory.recompute=[]")),
    "context": (dense, (2, 2, 1, 2, "parallel.context=2")),
    "halves": (dense, (2, 4, 1, 4, "parallel.schedule=zb_h1", "memory.recompute=[]")),
    "zero 3": (dense, (2, 2, 1, 4, "parallel.zero=3")),
    "mla and experts": (moe, (4, 4, 1, 8, "parallel.tensor=2")),
    "mla-up recomputed": (moe, (4, 4, 1, 8, *MLA)),
}
"""Scenarios of `tests.engine.scenarios`; sequence parallelism is added to each."""


def played(name: str, *more: str) -> Trace:
    return simulate(lower(made(name, *more)))


def made(name: str, *more: str):
    make, shape = LAYOUTS[name]
    return plan(make(*shape, SEQUENCE, *more))


def work(flop: float, kernels: int = 1) -> Work:
    """A product of 400 rows, with nothing to move."""
    return Work(flop, 0.0, kernels, Product(400, 1, 1))


def block(gather: float, up: float, down: float, scatter: float) -> Layer:
    """A layer of two products whose collectives have so many bytes; a gradient takes as many FLOP
    as the product forward."""
    first, second = (
        Op(name, "gemm", work(flop), work(flop), work(flop))
        for name, flop in (("up", up), ("down", down))
    )
    return Layer(
        "dense",
        (
            Exchange("enter", "tensor", gather, "all_gather", "reduce_scatter"),
            first,
            Exchange("again", "tensor", gather, None, "all_gather"),
            second,
            Exchange("leave", "tensor", scatter, "reduce_scatter", "all_gather"),
        ),
        Weights(),
        0.0,
    )


def by_hand() -> tuple[CostModel, Program]:
    """Four ranks of 312 TFLOP/s at 0.5 on NVLink of 100 GB/s at 0.8, 1 us per hop."""
    link = "{bandwidth: 100GB/s, efficiency: 0.8, latency: 1us, own_share: 0}"
    more = ("calibration.gemm=0.5", f"cluster.node.nvlink={link}")
    resolved = made("one stage", *SCALING, *more, PIECES)
    return CostModel.of(resolved), lower(resolved)


@pytest.mark.parametrize(
    ("up_us", "gather_us", "expected"),
    [(40, 20, 40), (40, 35, 45), (40, 80, 90), (4, 50, 51)],
    ids=["hidden", "hidden but for its length", "exposed", "all but exposed"],
)
def test_a_gather_ends_beside_all_but_one_piece_of_its_product(
    up_us: float, gather_us: float, expected: float
) -> None:
    """max(product, gather + product / 4): of 40 us, 10 wait for a gather; of 4, 1. No second
    product, and a sum of no bytes is 3 hops of 1 us."""
    costs, program = by_hand()
    layer = block(bytes_of(gather_us, costs), flop_of(up_us), 0.0, 1.0)
    steps = forward_pass((layer,), costs)
    alone = length_alone(steps, program) / 1e3
    assert alone == pytest.approx(expected + waits(costs), abs=0.01)


@pytest.mark.parametrize(("down_us", "sum_us"), [(40, 20), (40, 35), (40, 80), (4, 50)])
def test_a_sum_begins_after_one_piece_of_its_product(down_us: float, sum_us: float) -> None:
    costs, program = by_hand()
    layer = block(1.0, 0.0, flop_of(down_us), bytes_of(sum_us, costs))
    expected = max(down_us, sum_us + down_us / 4) + waits(costs)
    alone = length_alone(forward_pass((layer,), costs), program) / 1e3
    assert alone == pytest.approx(expected, abs=0.01)


def test_what_is_exposed_of_a_layer_is_what_its_products_leave() -> None:
    """Forward: 60 - 3/4 of 40 us, and 80 - 3/4 of 60. Backward: 80 - 3/4 of 60 of the gradient's
    gather; the input is gathered again in 60 us beside 40, and its gradient reduced in 60 beside
    40."""
    costs, program = by_hand()
    layer = block(bytes_of(60, costs), flop_of(40), flop_of(60), bytes_of(80, costs))
    forward, backward = forward_pass((layer,), costs), backward_pass((layer,), costs)
    assert exposed_us(forward, program) == pytest.approx(30 + 35, abs=0.01)
    assert exposed_us(backward, program) == pytest.approx(35 + 20 + 20, abs=0.01)


def test_a_backward_in_halves_reduces_the_inputs_gradient_in_pieces() -> None:
    """No weight's gradient is there to hide it: 60 - 3/4 of 40 us. The input is gathered again with
    the weights' gradients, beside those of the product above it (60 us)."""
    costs, program = by_hand()
    layer = block(bytes_of(60, costs), flop_of(40), flop_of(60), bytes_of(80, costs))
    assert exposed_us(input_pass((layer,), costs), program) == pytest.approx(65, abs=0.01)
    late = weight_pass((layer,), costs)
    assert late == weight_pass((layer,), replace(costs, overlap="none"))


def test_in_bulk_only_the_inputs_gradient_is_hidden() -> None:
    """Forward the gather and the sum show; backward the gradient's gather, 20 us of the input's
    beside 40, and 20 of its gradient's sum beside 40."""
    costs, program = by_hand()
    costs = replace(costs, overlap="bulk")
    layer = block(bytes_of(60, costs), flop_of(40), flop_of(60), bytes_of(80, costs))
    forward, backward = forward_pass((layer,), costs), backward_pass((layer,), costs)
    assert exposed_us(forward, program) == pytest.approx(60 + 80, abs=0.01)
    assert exposed_us(backward, program) == pytest.approx(80 + 20 + 20, abs=0.01)


def test_without_sequence_parallelism_all_reduces_run_beside_weights_gradients() -> None:
    """Backward: a sum of 60 us of the input's gradient beside 40 of the weight's."""
    costs, program = by_hand()
    enter = Exchange("enter", "tensor", bytes_of(60, costs) / 2, None, "all_reduce")
    each = work(flop_of(40))
    layer = Layer("dense", (enter, Op("up", "gemm", each, each, each)), Weights(), 0.0)
    shown = [
        exposed_us(backward_pass((layer,), replace(costs, overlap=overlap)), program)
        for overlap in ("none", "bulk")
    ]
    assert shown[0] - shown[1] == pytest.approx(40, abs=0.01)


def test_nothing_runs_beside_the_sum_of_an_input_that_several_products_read() -> None:
    """Gate and up apart: their gradients are added up first, and the sum is exposed whole."""
    costs, program = by_hand()
    enter = Exchange("enter", "tensor", bytes_of(60, costs) / 2, None, "all_reduce")
    each = work(flop_of(40))
    apart = tuple(Op(name, "gemm", each, each, each) for name in ("gate", "up"))
    layer = Layer("dense", (enter, *apart), Weights(), 0.0)
    plain, bulk = (
        exposed_us(backward_pass((layer,), replace(costs, overlap=overlap)), program)
        for overlap in ("none", "bulk")
    )
    assert bulk == plain > 10


def test_head_and_embedding_are_not_cut() -> None:
    costs, _ = by_hand()
    layer = replace(block(1e6, 1e9, 1e9, 1e6), kind="head")
    bulk = replace(costs, overlap="bulk")
    assert forward_pass((layer,), costs) == forward_pass((layer,), bulk)
    assert backward_pass((layer,), costs) == backward_pass((layer,), bulk)


def test_gathers_in_pieces_go_by_copy_engines_and_sums_by_kernels() -> None:
    resolved = made("one stage", PIECES, "calibration.collective_sms=8")
    costs, layer = CostModel.of(resolved), resolved.chunks[0].layers[1]
    sms = {step.name: step.sms for step in forward_pass((layer,), costs) if step.stream == TENSOR}
    assert sms == {
        "attention_gather": 0,
        "attention_reduce": 8,
        "ffn_gather": 0,
        "ffn_reduce": 8,
    }


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_same_bytes_travel_and_the_step_is_not_longer(name: str) -> None:
    whole, bulk, pieces = (played(name, *SCALING, more) for more in ("name=whole", BULK, PIECES))
    for one in (bulk, pieces):
        assert one.link_bytes == pytest.approx(whole.link_bytes)
        assert all(sum(row.values()) == one.step_ns for row in one.breakdown_ns)
    shown = [
        sum(row["exposed_tensor"] for row in one.breakdown_ns) for one in (pieces, bulk, whole)
    ]
    assert pieces.step_ns < whole.step_ns >= bulk.step_ns
    assert shown[0] < shown[1] <= shown[2]
    assert (shown[1] < shown[2]) == (name != "halves"), "weights' gradients are there to hide sums"


@pytest.mark.parametrize("name", LAYOUTS)
def test_layers_have_at_most_twice_the_steps(name: str) -> None:
    steps = [
        sum(len(template) for template in lower(made(name, *more)).passes.values())
        for more in ((), (PIECES,))
    ]
    assert steps[0] < steps[1] <= 2 * steps[0]


def test_a_pass_is_never_longer_than_its_steps_one_after_another() -> None:
    for name in LAYOUTS:
        program = lower(made(name, PIECES))
        for template in program.passes.values():
            serial = sum(step.alone_ns(program.capacity) for step in template)
            assert length_alone(template, program) <= serial * slowest(program) + len(template)


def test_fp8_products_and_their_casts_go_in_pieces() -> None:
    case = dense(1, 1, 1, 4, SEQUENCE, *FP8, "memory.recompute=[]")
    whole, pieces = (simulate(lower(plan(one))) for one in (case, with_pieces(case)))
    assert pieces.link_bytes == pytest.approx(whole.link_bytes)
    assert pieces.breakdown_ns[0]["exposed_tensor"] < whole.breakdown_ns[0]["exposed_tensor"]


def with_pieces(case: Scenario) -> Scenario:
    parallel = case.parallel.model_copy(update={"overlap_tensor": "pieces"})
    return case.model_copy(update={"parallel": parallel})


def slowest(program: Program) -> float:
    """How many times as long a kernel may take beside two collectives."""
    held = max(step.sms for steps in program.passes.values() for step in steps)
    return 1.0 / (1.0 - 2 * held / program.sms) / (1.0 - program.contention)


def exposed_us(template: Template, program: Program) -> float:
    """Time of a pass without kernels."""
    busy = sum(step.duration_ns for step in template if step.stream == COMPUTE)
    return (length_alone(template, program) - busy) / 1e3


def waits(costs: CostModel) -> float:
    """Microseconds of a collective of next to nothing: 3 hops."""
    return costs.in_pieces("all_gather", 1.0, "tensor")[1] / 1e3


def flop_of(microseconds: float) -> float:
    """At 0.5 of 312 TFLOP/s."""
    return microseconds * 1e-6 * 0.5 * 312e12


def bytes_of(microseconds: float, costs: CostModel) -> float:
    """Of a collective that takes so long: 3/4 of them at 80 GB/s, after its hops."""
    return (microseconds - waits(costs)) * 1e-6 * 80e9 * 4 / 3
