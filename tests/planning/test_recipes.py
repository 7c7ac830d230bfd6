"""Recipes of numbers: what a scenario takes from one, what weights in FP4 weigh and how they
travel, and gradients that travel in fewer bits than they are summed in."""

from __future__ import annotations

import pytest

from tests.engine.scenarios import dense
from twin.arch import fp4
from twin.engine import lower, plan, simulate
from twin.engine.buckets import new_weights
from twin.errors import ScenarioError
from twin.loading import catalog_parts
from twin.planning.chunks import shape_of
from twin.planning.types import Plan
from twin.scenario import Scenario
from twin.train import TrainSpec

B200 = ("cluster.node=b200-8gpu", "calibration=b200-nemo", "parallel.zero=1")
TRAIN = {"tokens": "1T", "sequence": "4096tok", "global_batch": "8seq", "optimizer": "adamw"}


def made(*more: str) -> Scenario:
    """A small GPT on 8 B200: one stage, four data ranks of two tensor ranks."""
    return dense(1, 1, 1, 2, *B200, *more)


def parameters(found: Plan) -> float:
    return found.memory.stages[0].categories["parameters"]


@pytest.mark.parametrize("name", catalog_parts("recipes"))
def test_a_recipe_says_what_products_multiply(name: str) -> None:
    train = made(f"train.recipe={name}").train
    recipe = train.recipe
    assert recipe is not None
    assert (train.precision, train.fp8_param_gather) == (recipe.precision, recipe.fp8_param_gather)
    assert train.fp8_scaling == (recipe.fp8_scaling or "block")


def test_what_a_recipe_says_may_be_written_again_and_not_otherwise() -> None:
    written = made("train.recipe=te-mxfp8").train.model_dump(mode="json") | TRAIN
    again = TrainSpec.model_validate(written)
    assert (again.precision, again.fp8_scaling) == ("fp8", "mx")
    for precision in ("fp8", "bf16"):
        with pytest.raises(ScenarioError, match="stands beside a recipe of nvfp4"):
            made("train.recipe=te-nvfp4", f"train.precision={precision}")
    below = "train.precision=bf16", "train.fp8_scaling=block"
    assert made(*below, "train.recipe=te-mxfp8").train.fp8_scaling == "mx"
    assert made(*below, "train.recipe=null").train.precision == "bf16"


def test_a_recipe_may_be_refined_where_it_is_used() -> None:
    refined = "{extends: te-nvfp4, bf16_last: 4, without: [hadamard]}"
    shape = shape_of(made(f"train.recipe={refined}"))
    assert (shape.precision, shape.bf16_ends, shape.without) == ("nvfp4", (0, 4), ("hadamard",))


def test_only_some_gpus_multiply_fp4() -> None:
    for numbers in ("train.precision=nvfp4", "train.recipe=quartet-mxfp4"):
        with pytest.raises(ScenarioError, match="has no FP4 tensor cores"):
            plan(dense(1, 1, 1, 2, "cluster.node=h800-8gpu", "calibration=h800-megatron", numbers))


def test_weights_in_fp4_stand_beside_bf16_unless_they_are_gathered_so() -> None:
    wide, short, alone = (
        plan(made(*more))
        for more in (
            ("train.precision=bf16",),
            ("train.recipe=te-nvfp4",),
            ("train.recipe=te-nvfp4", "train.recipe.fp4_param_gather=true"),
        )
    )
    (chunk,) = short.chunks
    held = fp4.multiplied(chunk.layers)
    assert parameters(short) - parameters(wide) == pytest.approx(2 * 9 / 16 * held)
    assert parameters(alone) - parameters(wide) == pytest.approx((2 * 9 / 16 - 2) * held)
    sent = [new_weights(one, chunk.layers, chunk.weights)["data"] for one in (wide, alone)]
    layers = sum(one.weights.total for one in chunk.layers[1:-1])
    assert sent[0] - sent[1] == pytest.approx((2 - 9 / 16) * layers)


def test_a_step_in_fp4_is_shorter_than_in_fp8_and_that_than_in_bf16() -> None:
    recipes = ("precision=bf16", "recipe=te-mxfp8", "recipe=te-nvfp4", "recipe=nvfp4-12b")
    bf16, fp8, nvfp4, ends = (
        simulate(lower(plan(made(f"train.{one}")))).step_ns for one in recipes
    )
    assert nvfp4 < fp8 < bf16
    # Ten of twelve layers in bf16.
    assert nvfp4 < ends < bf16


def test_without_fp4_in_the_profile_those_in_fp8_stand_for_them_and_that_is_said() -> None:
    known = plan(made("train.precision=nvfp4"))
    assert "calibration-without-fp4" not in {one.code for one in known.warnings}
    assumed = plan(made("train.precision=nvfp4", "calibration.matmuls.fp4=null"))
    assert "calibration-without-fp4" in {one.code for one in assumed.warnings}


def reduced(sent: str) -> float:
    """Bytes of gradients behind the passes, over the busiest link."""
    more = ("parallel.overlap_grad_reduce=false", f"train.gradients_sent={sent}")
    program = lower(plan(made(*more)))
    steps = [one for one in program.finish[0] if one.name == "reduce_scatter_gradients"]
    return sum(one.traffic.nvlink_bytes for one in steps if one.traffic)


@pytest.mark.parametrize(("sent", "width"), [("bf16", 2), ("fp8", 1)])
def test_gradients_travel_in_the_numbers_that_are_written(sent: str, width: int) -> None:
    assert reduced(sent) == pytest.approx(reduced("null") * width / 4)


def test_a_step_whose_gradients_travel_in_fewer_bits_is_shorter_where_the_network_binds() -> None:
    slow = ("cluster.node.nvlink.bandwidth=20GB/s", "parallel.overlap_grad_reduce=false")
    found = [
        simulate(lower(plan(made(*slow, f"train.gradients_sent={one}")))).step_ns
        for one in ("null", "bf16", "fp8")
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[1] > found[2]
