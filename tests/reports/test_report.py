"""A report of a run worked out on paper, and the promises of its JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.reports import made
from twin.arch.count import flop_per_token
from twin.engine import plan
from twin.engine.trace import Trace
from twin.loading import load
from twin.planning.types import Plan
from twin.reports import KPIS, RunInfo, report
from twin.reports.kpis import recomputed_flop

CONTRACT = {
    "version",
    "scenario",
    "hash",
    "fits",
    "kpis",
    "intervals",
    "step_ns",
    "breakdown_ns",
    "breakdown",
    "memory",
    "links",
    "extrapolated_fraction",
    "warnings",
    "provenance",
}
KPI_KEYS = [
    "step_seconds",
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "mfu",
    "hfu",
    "model_tflops_per_gpu",
    "bubble_fraction",
    "exposed_communication_seconds",
    "peak_device_bytes",
    "peak_host_bytes_per_node",
    "days",
    "gpu_hours",
    "cost_usd",
    "energy_kwh",
    "energy_cost_usd",
    "co2_tonnes",
    "average_watts_per_gpu",
    "goodput_fraction",
    "days_with_failures",
    "cost_usd_with_failures",
]
BREAKDOWN_KEYS = [
    "compute",
    "contention",
    "imbalance",
    "exposed_tensor",
    "exposed_expert",
    "exposed_pipeline",
    "exposed_data",
    "exposed_context",
    "exposed_offload",
    "optimizer",
    "host",
    "bubble",
    "other",
]


def document(plan: Plan | None = None, trace: Trace | None = None) -> dict[str, Any]:
    """The JSON of a report, through text and back."""
    made_report = report(
        plan or made.plan(), trace or made.trace(), RunInfo(1.5, "twin run paper.yaml")
    )
    return json.loads(json.dumps(made_report.to_json(), allow_nan=False))


def test_the_key_figures_are_those_worked_out_on_paper() -> None:
    """128 tokens in 2 s on 4 GPUs of 1 GFLOP/s; 1,280 tokens take 20 s."""
    kpis = document()["kpis"]
    assert {key: value for key, value in kpis.items() if value is not None} == pytest.approx(
        {
            "step_seconds": 2.0,
            "tokens_per_second": 64.0,
            "tokens_per_second_per_gpu": 16.0,
            "mfu": made.FLOP_PER_TOKEN * 128 / 2.0 / 4e9,
            "hfu": made.FLOP_PER_TOKEN * 128 / 2.0 / 4e9,
            "model_tflops_per_gpu": made.FLOP_PER_TOKEN * 128 / 2.0 / 4 / 1e12,
            "bubble_fraction": 0.25,
            "exposed_communication_seconds": (299_999_999 + 99_999_998) / 2 / 1e9,
            "peak_device_bytes": 60 * 2**30,
            "peak_host_bytes_per_node": 0.0,
            "days": 20 / 86400,
            "gpu_hours": 4 * 20 / 3600,
            "cost_usd": 2 * 4 * 20 / 3600,
        },
        rel=1e-8,
    )


@pytest.mark.parametrize(
    ("policy", "flop"),
    [
        ([], 0),
        (["full"], 2 * (2 * 768 + 256) * 128),
        (["attention_core"], 2 * 256 * 128),
        (["full", "attention_core"], 458_752),
    ],
)
def test_recomputed_flop_are_those_of_the_policy(policy: list[str], flop: float) -> None:
    """128 tokens through two layers of 4 x 8 x 8 + 2 x 8 x 32 = 768 weights and 2 x 16 x 8 FLOP of
    causal attention; embedding and head are never recomputed."""
    assert recomputed_flop(made.plan(memory={"recompute": policy})) == flop


def test_hfu_adds_recomputation_to_mfu() -> None:
    kpis = document(made.plan(memory={"recompute": ["full"]}))["kpis"]
    assert kpis["hfu"] - kpis["mfu"] == pytest.approx(458_752 / 2.0 / 4e9)


def test_a_forward_that_tensor_ranks_repeat_is_recomputed_once() -> None:
    """Without sequence parallelism tensor ranks run the experts on the same tokens; one more
    forward of the layers is still less than a third of the model FLOP."""
    full = "memory.recompute=[full]"
    per_layout = {
        recomputed_flop(plan(load("kimi-k2-256xh800", [full, *(f"parallel.{o}" for o in layout)])))
        for layout in (
            ("tensor=1",),
            ("tensor=2", "sequence_parallel=false"),
            ("tensor=2", "sequence_parallel=true"),
        )
    }
    (flop,) = per_layout
    scenario = load("kimi-k2-256xh800")
    model = flop_per_token(scenario.model, scenario.train.sequence) * scenario.train.global_batch
    assert 0.3 < flop / model < 1 / 3


def test_the_json_has_every_key_of_the_contract_in_its_order() -> None:
    answer = document()
    assert set(answer) >= CONTRACT
    assert list(answer["kpis"]) == KPI_KEYS
    assert list(answer["intervals"]) == KPI_KEYS
    assert list(answer["breakdown_ns"]) == list(answer["breakdown"]) == BREAKDOWN_KEYS
    assert [kpi.key for kpi in KPIS] == KPI_KEYS


def test_the_breakdown_sums_to_the_step_and_every_roles_own_does_too() -> None:
    answer = document()
    assert answer["step_ns"] == made.STEP_NS
    assert sum(answer["breakdown_ns"].values()) == made.STEP_NS
    assert [sum(role["breakdown_ns"].values()) for role in answer["roles"]] == [made.STEP_NS] * 2
    assert [role["role"] for role in answer["roles"]] == ["stage 0", "stage 1"]
    assert all(isinstance(ns, int) for ns in answer["breakdown_ns"].values())


def test_intervals_of_a_gpu_that_is_like_none_are_null_and_a_warning_says_why() -> None:
    answer = document()
    assert set(answer["intervals"].values()) == {None}
    assert [w["code"] for w in answer["warnings"]] == ["made", "no-goodput", "no-interval"]
    assert "no published run on a GPU like paper" in answer["warnings"][-1]["message"]


def test_without_a_price_the_cost_is_null_and_a_warning_says_why() -> None:
    plan = made.plan(cost=None)
    answer = document(plan)
    assert answer["kpis"]["cost_usd"] is None
    assert "no-price" in [warning["code"] for warning in answer["warnings"]]


def test_memory_names_the_fullest_stage_against_the_budget() -> None:
    memory = document()["memory"]
    assert memory["stage"] == 0
    assert sum(memory["categories"].values()) == memory["peak_bytes"] == 60 * 2**30
    assert memory["capacity"] - sum(memory["reserve"].values()) == memory["budget"] == 90 * 2**30
    assert [stage["peak_bytes"] / 2**30 for stage in memory["stages"]] == [60, 40]


def test_the_speed_of_light_is_the_busiest_stage_at_peak_rate() -> None:
    """Stage 1: (1,200 + 800) FLOP x 3 (forward, input and weight gradients) x 4 micro-batches at 1
    GFLOP/s."""
    assert document()["speed_of_light_seconds"] == pytest.approx(2000 * 3 * 4 / 1e9)


def test_the_speed_of_light_counts_what_is_computed_again() -> None:
    answer = document(made.plan(memory={"recompute": ["full"]}))
    assert answer["speed_of_light_seconds"] == pytest.approx((2000 * 3 + 1200) * 4 / 1e9)


def test_links_and_extrapolation_come_from_the_trace() -> None:
    answer = document(trace=made.trace(repeats=3, window_start=0, window_end=500_000_000))
    assert answer["links"]["nic"] == {"bytes": 3e6, "use": 0.25}
    assert answer["extrapolated_fraction"] == 0.5


def test_the_same_scenario_gives_the_same_bytes_but_for_the_clock() -> None:
    texts: list[str] = []
    for wall in (1.0, 2.0):
        answer = report(made.plan(), made.trace(), RunInfo(wall, "twin run paper.yaml")).to_json()
        assert answer["provenance"].pop("created")
        assert answer["provenance"].pop("wall_seconds") == wall
        texts.append(json.dumps(answer))
    assert texts[0] == texts[1]


def test_the_hash_follows_values_and_not_the_name() -> None:
    first = document()["hash"]
    assert first == document(made.plan(name="other"))["hash"]
    assert first != document(made.plan(cost={"gpu_hour": "2.01USD"}))["hash"]


def test_the_resolved_scenario_is_embedded_with_its_axis_members() -> None:
    scenario = document()["scenario"]
    assert scenario["schema"] == 1
    assert scenario["parallel"]["schedule"] == {"kind": "1f1b"}
    assert scenario["train"]["tokens"] == "1280tok"
    assert scenario["cluster"]["node"]["gpu"]["memory"] == "100GiB"


def test_provenance_says_how_to_get_the_answer_again() -> None:
    provenance = document()["provenance"]
    assert provenance["reproduce"] == "twin run paper.yaml"
    assert provenance["calibration"] == "paper"
    assert (provenance["fidelity"], provenance["events"]) == ("events", 42)
