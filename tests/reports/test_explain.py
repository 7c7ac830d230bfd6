"""Explain: every number of a derivation follows from its children, and the root is the report's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pytest

from tests.engine.scenarios import dense, moe
from twin.engine import lower, plan, simulate
from twin.errors import UsageError
from twin.loading import load
from twin.loading.files import shipped_folder
from twin.network.links import capacity
from twin.planning.types import Plan
from twin.reports import Report, report
from twin.reports.explain import Explanation, evaluate, explain
from twin.scenario import Scenario
from twin.spec.kpis import KPIS

K2 = (
    "parallel.schedule={kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true, "
    "defer_weight_grad: true}"
)


MEASURED = shipped_folder() / "measured/epyc-zen4-1core-torch2.13/step-kimi-k2-nano-4x256.yaml"
"""Its profile knows kinds of kernels apart."""


@cache
def scenarios() -> dict[str, Scenario]:
    return {
        "k2": moe(2, 4, 2, 2, K2),
        "dualpipe": moe(2, 4, 1, 4, "parallel.schedule=dualpipe"),
        "alone": moe(1, 1, 1, 1),
        "tensor": dense(2, 4, 2, 2),
        "sequence": dense(
            1, 2, 1, 4, "parallel.sequence_parallel=true", "memory.recompute=[attention_core]"
        ),
        "zero3": dense(1, 2, 1, 2, "parallel.zero=3"),
        "context": dense(1, 2, 1, 2, "parallel.context=2", "cost.gpu_hour=2USD"),
        "shipped": load("gpt-175b-64xa100-selective"),
        "measured": load(str(MEASURED)),
    }


NAMES = ("k2", "dualpipe", "alone", "tensor", "sequence", "zero3", "context", "shipped", "measured")


@cache
def answered(name: str) -> tuple[Plan, Report, dict[str, Explanation]]:
    planned = plan(scenarios()[name])
    program = lower(planned)
    trace = simulate(program)
    found = report(planned, trace)
    trees = {kpi.key: explain(planned, program, trace, found, kpi.key) for kpi in KPIS}
    return planned, found, trees


def nodes(root: Explanation) -> Iterator[Explanation]:
    yield root
    for child in root.children:
        yield from nodes(child)


def find(root: Explanation, name: str) -> Explanation:
    return next(node for node in nodes(root) if node.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_the_root_is_the_figure_of_the_report(name: str) -> None:
    _, found, trees = answered(name)
    for kpi in KPIS:
        expected = found.kpis[kpi.key]
        close = expected if expected is None else pytest.approx(expected, rel=1e-12)
        assert trees[kpi.key].value == close, kpi.key
        assert trees[kpi.key].unit == kpi.unit


@pytest.mark.parametrize("name", NAMES)
def test_every_formula_gives_its_value_from_its_children(name: str) -> None:
    for tree in answered(name)[2].values():
        for node in nodes(tree):
            assert bool(node.formula) == bool(node.children) or node.formula == "0"
            if node.formula:
                values = {child.name: child.value for child in node.children}
                assert len(values) == len(node.children), f"{node.name} has two children of a name"
                # Python's own arithmetic, not ours.
                assert node.value == pytest.approx(eval(node.formula, {}, values), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_every_leaf_says_where_it_is_from(name: str) -> None:
    for tree in answered(name)[2].values():
        assert all(node.source for node in nodes(tree) if not node.children)


@pytest.mark.parametrize("name", NAMES)
def test_kernels_counted_from_the_layers_take_what_was_played(name: str) -> None:
    """Independent of the engine's templates; what is left over is rounding, half a nanosecond per
    segment."""
    compute = find(answered(name)[2]["step_seconds"], "compute")
    rest = find(compute, "rounding").value or 0.0
    assert abs(rest) <= 1e-6 * (compute.value or 0.0)


def test_a_catalog_number_names_its_file_its_source_and_how_it_is_known() -> None:
    tree = answered("k2")[2]["mfu"]
    peak = find(tree, "bf16_dense")
    assert peak.value == 989e12
    assert "catalog/gpus/h800.yaml:" in peak.source
    assert "MegaScale-MoE" in peak.source
    assert "datasheet" in peak.source
    assert "--set" in find(tree, "layers").source


@pytest.mark.parametrize("name", ["k2", "tensor"])
def test_port_rates_are_those_that_the_engine_plays(name: str) -> None:
    planned, _, trees = answered(name)
    cluster = planned.scenario.cluster
    rates = {node.name: node.value for node in nodes(trees["exposed_communication_seconds"])}
    for link in ("nvlink", "nic"):
        if f"{link}_rate" in rates:
            assert rates[f"{link}_rate"] == pytest.approx(capacity(cluster, link))
    assert {"nvlink_rate", "nic_rate"} & set(rates)


def test_transfers_in_flight_are_not_less_than_the_waits_for_them() -> None:
    """Where nothing slows a transfer, waits cannot exceed what is in flight; but for sharded
    parameters, whose gathers and reductions run on into the next pass, and for context ranks, whose
    exchanges share NVLink with those of tensor ranks. Sums of norms over tensor ranks do so, too,
    but are small."""
    for name in set(NAMES) - {"zero3", "context"}:
        slack = 5e-3 if name == "sequence" else 2e-5
        for node in nodes(answered(name)[2]["exposed_communication_seconds"]):
            if node.formula == "in_flight - hidden":
                alone, hidden = (child.value or 0.0 for child in node.children)
                # Each transfer is rounded up to whole nanoseconds.
                assert hidden >= -slack * alone


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ("null", "collections of all ranks together: train.gc_interval (now automatic)"),
        ("100", "a longer train.gc_interval (now 100 steps)"),
        ("0", ""),
    ],
)
def test_waits_for_garbage_collections_name_their_lever(interval: str, said: str) -> None:
    sets = ("software=megatron-core", "calibration=a100-megatron")
    made = plan(dense(2, 2, 1, 2, *sets, f"train.gc_interval={interval}"))
    program = lower(made)
    trace = simulate(program)
    tree = explain(made, program, trace, report(made, trace), "step_seconds")
    sources = " ".join(node.source for node in nodes(tree))
    assert said in sources
    assert ("garbage" in sources) == bool(said)


def test_a_cost_without_a_price_is_unknown() -> None:
    unpriced = answered("shipped")[2]["cost_usd"]
    assert unpriced.value is None
    assert "cost.gpu_hour" in unpriced.source


def test_an_unknown_figure_gets_the_nearest() -> None:
    planned, found, _ = answered("alone")
    program = lower(planned)
    trace = simulate(program)
    with pytest.raises(UsageError) as caught:
        explain(planned, program, trace, found, "step_second")
    (problem,) = caught.value.problems
    assert (problem.code, problem.hint) == ("TW051", "did you mean `step_seconds`?")


def test_formulas_are_arithmetic_and_nothing_else() -> None:
    assert evaluate("2 * (a + b) / c - 1", {"a": 1.0, "b": 2.0, "c": 3.0}) == 1.0
    with pytest.raises(ValueError, match="no arithmetic"):
        evaluate("abs(a)", {"a": 1.0})


def test_the_tree_is_plain_data() -> None:
    document = answered("k2")[2]["days"].to_json()
    assert json.loads(json.dumps(document)) == document
    assert {child["name"] for child in document["children"]} == {
        "tokens",
        "global_batch",
        "step_seconds",
    }
