"""PyTorch's `fully_shard`, and frozen weights: the ledger of a small model by hand."""

from __future__ import annotations

from tests.planning.examples import scenario
from twin.arch.count import adapter_parameters, parameters
from twin.engine import plan
from twin.planning.footprint import footprint
from twin.planning.types import Plan
from twin.spec.memory import MemorySpec

RANKS = 16
EIGHT = {"zero": 3}


def made(**memory: object) -> Plan:
    return plan(scenario(parallel=EIGHT, memory=dict(memory)))


def test_sharded_parameters_are_the_optimizers_own() -> None:
    """16 bytes for each weight, not 18: fp32 weights, gradients and two moments."""
    whole = parameters(made().scenario.model).total
    plain, torch = (made(fully_shard=on).memory.peak.categories for on in (False, True))
    assert plain["parameters"] == 2 * whole / RANKS
    assert plain["optimizer_dense"] == 12 * whole / RANKS
    assert torch["parameters"] == 4 * whole / RANKS
    assert torch["gradients"] == plain["gradients"] == 4 * whole / RANKS
    assert torch["optimizer_dense"] == 8 * whole / RANKS


def test_two_of_the_largest_layer_arrive_in_bf16() -> None:
    run = made(fully_shard=True)
    largest = max(layer.used.total for chunk in run.chunks for layer in chunk.layers)
    assert run.memory.peak.categories["data_buffers"] == 2 * 2 * largest


def test_frozen_parameters_arrive_and_stay_in_fp32_as_well() -> None:
    lora = {"lora": {"rank": 2}}
    run = plan(scenario(train=lora, parallel=EIGHT, memory={"fully_shard": True}))
    largest = max(layer.used.total for chunk in run.chunks for layer in chunk.layers)
    own = adapter_parameters(run.scenario.model, 2)
    whole = parameters(run.scenario.model).total
    assert run.memory.peak.categories["data_buffers"] == 2 * 2 * largest
    assert run.memory.peak.categories["parameters"] == 4 * (whole + own) / RANKS


def test_a_layer_runs_beside_its_parameters_its_gradients_and_those_on_their_way() -> None:
    """Under full recomputation the fullest layer has 2 bytes for each of its parameters, 2 for
    each gradient, and 4 for each gradient of the layer behind it."""
    plain, torch = (
        plan(
            scenario(
                model={"vocab": 64},
                parallel=EIGHT,
                memory={"fully_shard": on, "recompute": ("full",)},
            )
        )
        for on in (False, True)
    )
    layer = torch.chunks[0].layers[1].used.total
    assert "backward" in torch.memory.peak.peak_moment
    more = torch.memory.peak.categories["working_set"] - plain.memory.peak.categories["working_set"]
    assert more == (2 + 2 + 4) * layer


def test_frozen_weights_have_parameters_only() -> None:
    run = plan(scenario(train={"lora": {"rank": 2, "adapters": 3}}, parallel={"zero": 1}))
    model = run.scenario.model
    whole, own = parameters(model).total, adapter_parameters(model, 2)
    stage = run.memory.peak.categories
    assert stage["parameters"] == 2 * (whole + 3 * own)
    assert stage["gradients"] == 4 * own
    assert stage["optimizer_dense"] == 12 * own / RANKS
    assert run.memory.unique_bytes == 2 * (whole + 3 * own) + 4 * own


def test_a_layer_gathers_all_weights_and_reduces_those_with_gradients() -> None:
    run = plan(scenario(train={"lora": {"rank": 2}}, parallel=EIGHT))
    layer = run.chunks[0].layers[1]
    largest = max(one.used.total for chunk in run.chunks for one in chunk.layers)
    learned = max(one.learned.total for chunk in run.chunks for one in chunk.layers)
    assert layer.learned.total < layer.used.total
    assert run.memory.peak.categories["data_buffers"] == 2 * 2 * largest + 4 * 2 * learned


def test_an_empty_chunk_holds_nothing() -> None:
    assert footprint((), MemorySpec(fully_shard=True)).kept.total == 0
