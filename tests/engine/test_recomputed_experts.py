"""The experts' part of a layer, run again as a whole (Megatron-LM, `--recompute-modules moe`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import twin
from twin.arch.ops import Exchange, Layer, Op
from twin.arch.recompute import again
from twin.engine import plan
from twin.engine.cost_model import CostModel
from twin.engine.passes import backward_pass, recomputed
from twin.planning.footprint import kept_by_op
from twin.spec.memory import MemorySpec

MADE = plan(twin.load("kimi-k2-256xh800", ["memory.recompute=[]", "memory.fp8_store=[]"]))
COSTS = CostModel.of(MADE)
LAYER = next(layer for chunk in MADE.chunks for layer in chunk.layers if layer.kind == "moe")
DENSE = next(layer for chunk in MADE.chunks for layer in chunk.layers if layer.kind == "dense")


def under(layer: Layer, *recompute: str) -> Layer:
    return replace(layer, policy=MemorySpec.model_validate({"recompute": recompute}))


def exchanges(layer: Layer, *recompute: str) -> Counter[str]:
    steps = backward_pass((under(layer, *recompute),), COSTS)
    names = {item.name for item in layer.items if isinstance(item, Exchange)}
    return Counter(step.name for step in steps if step.name in names)


def test_tokens_travel_again_before_gradients_do() -> None:
    """Dispatch and combine once more; nothing of attention."""
    plain, more = exchanges(LAYER), exchanges(LAYER, "moe")
    assert more == exchanges(LAYER, "full")
    assert more["dispatch"] == more["combine"] == 2
    assert plain["dispatch"] == plain["combine"] == 1


def test_all_kernels_of_experts_run_again_and_no_others() -> None:
    """With what is left of the layer they are all that `full` runs again."""
    names = again(LAYER, ["moe"])
    rest = [item for item in LAYER.items if isinstance(item, Op) and item.name not in names]
    assert {"attention_flash", "ffn_norm", "ffn_residual"} <= {op.name for op in rest}
    assert {"router", "shared_up", "experts_up", "experts_down", "combine_unpermute"} <= names
    left = sum(
        kernels.seconds - kernels.imbalance
        for kernels in (COSTS.kernels(op, "forward") for op in rest)
    )
    whole, part = (recomputed(under(LAYER, policy), COSTS) for policy in ("full", "moe"))
    assert whole == pytest.approx(part + left)
    assert recomputed(under(DENSE, "moe"), COSTS) == 0


def test_experts_keep_the_normed_state_alone() -> None:
    before = kept_by_op(LAYER, MemorySpec())
    after = kept_by_op(LAYER, MemorySpec(recompute=("moe",)))
    assert set(before) - set(after) == {
        "router_scores", "shared_up", "shared_swiglu", "dispatch_permute", "experts_up",
        "experts_swiglu",
    }  # fmt: skip
    assert after.items() <= before.items()
    assert kept_by_op(DENSE, MemorySpec(recompute=("moe",))) == kept_by_op(DENSE, MemorySpec())
