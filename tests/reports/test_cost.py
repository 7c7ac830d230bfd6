"""What a run costs, draws and emits: worked out on paper, held between bounds, and beside what
others published."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import twin
from tests.engine.scenarios import moe
from tests.reports import made
from twin.engine import lower, plan, simulate
from twin.engine.trace import CAUSES
from twin.errors import ScenarioError
from twin.loading import load, load_part
from twin.reports import KPIS, report
from twin.reports.cost import Bill, bill, gpu_power, hourly, shares
from twin.reports.explain import explain
from twin.reports.tables import cost_tables
from twin.spec.cluster import ClusterSpec
from twin.spec.cost import CostSpec, SiteSpec
from twin.spec.power import GpuPowerSpec, NodePowerSpec

ALL_KERNELS = {"compute": 1}
HALF = {"compute": 40, "optimizer": 10, "exposed_data": 30, "bubble": 20}
GPU: dict[str, Any] = {
    "max": "700W",
    "idle": "100W",
    "compute": 1.0,
    "communication": 0.5,
    "waiting": 0.25,
}
NODE = {"cpus": "500W", "memory": "100W", "nics": "100W", "other": "100W"}
SITE: dict[str, Any] = {"pue": 1.25, "electricity": "0.1USD/kWh", "carbon": "400g/kWh"}
BOUGHT: dict[str, Any] = {
    "node": "4kUSD",
    "network": 0.1,
    "facility": 0.2,
    "years": 2.0,
    "facility_years": 4.0,
    "utilisation": 0.5,
    "operations": 0.05,
}


def cluster(gpu: dict[str, Any] = GPU, nodes: int = 2, **node: str) -> ClusterSpec:
    """Nodes of four GPUs, with power."""
    known = made.scenario().cluster
    gpus = known.node.gpu.model_copy(update={"power": GpuPowerSpec(**gpu)})
    beside = NodePowerSpec.model_validate(node or NODE)
    whole = known.node.model_copy(update={"gpu": gpus, "power": beside})
    fabric = known.fabric.model_copy(update={"gpu_power": 50.0})
    return known.model_copy(update={"node": whole, "nodes": nodes, "fabric": fabric})


def paid(cost: dict[str, Any], hours: float = 1000.0, row: dict[str, int] = HALF) -> Bill:
    return bill(cluster(), CostSpec.model_validate(cost), hours, row)


def test_watts_are_those_worked_out_on_paper() -> None:
    """Half kernels, 0.3 communication, 0.2 bubble: 100 W + 600 W x (0.5 + 0.15 + 0.05); a node of
    800 W over four GPUs; 50 W of switches; a quarter of it all for the site."""
    found = paid({"site": SITE})
    assert found.gpu_watts == pytest.approx(520.0)
    assert found.watts is not None
    assert found.watts.parts == pytest.approx(
        {"gpus": 520.0, "nodes": 200.0, "network": 50.0, "site": 192.5}
    )
    assert found.energy_kwh == pytest.approx(962.5)
    assert found.energy_usd == pytest.approx(96.25)
    assert found.co2_tonnes == pytest.approx(0.385)


def test_a_purchase_is_the_one_worked_out_on_paper() -> None:
    """1,000 USD a GPU; half of 8,766 hours a year: 4,383 paying hours."""
    found = paid({"purchase": BOUGHT, "site": SITE})
    assert found.cost == pytest.approx(
        {
            "nodes": 1000 * 1000 / 2 / 4383,
            "network": 1000 * 100 / 2 / 4383,
            "facility": 1000 * 200 / 4 / 4383,
            "operations": 1000 * 50 / 4383,
            "energy": 96.25,
        }
    )
    assert found.cost_usd == pytest.approx(1000 * (500 + 50 + 50 + 50) / 4383 + 96.25)


def test_the_price_of_a_gpu_says_the_same_as_that_of_its_node() -> None:
    whole, part = (
        paid({"purchase": {**BOUGHT, "node": None, **price}, "site": SITE}).cost_usd
        for price in ({"node": "4kUSD"}, {"gpu": "1kUSD"})
    )
    assert whole == pytest.approx(part)


@given(price=st.integers(0, 10**6), hours=st.floats(0, 1e9))
def test_a_rent_is_gpu_hours_times_its_price_to_the_bit(price: int, hours: float) -> None:
    found = bill(cluster(), CostSpec.model_validate({"gpu_hour": f"{price}USD"}), hours, HALF)
    assert found.cost_usd == hours * price
    assert found.cost == {"rent": hours * price}


def test_rent_pays_no_energy_unless_asked_and_a_purchase_does_unless_told_not_to() -> None:
    rent, bought = {"gpu_hour": "2USD", "site": SITE}, {"purchase": BOUGHT, "site": SITE}
    assert paid(rent).cost_usd == 2000
    assert paid({**rent, "pays_energy": True}).cost == pytest.approx(
        {"rent": 2000, "energy": 96.25}
    )
    assert "energy" in (paid(bought).cost or {})
    assert "energy" not in (paid({**bought, "pays_energy": False}).cost or {})


def test_a_cost_without_the_energy_that_it_pays_is_unknown_and_says_why() -> None:
    found = paid({"purchase": BOUGHT})
    assert found.cost_usd is None
    assert "cost.site" in found.unknown["cost_usd"]
    assert "cost.pays_energy=false" in found.unknown["cost_usd"]
    assert [one.code for one in found.warnings] == ["no-price"]
    free = paid({"purchase": BOUGHT, "site": {"pue": 1.1}})
    assert free.energy_kwh is not None
    assert "electricity" in free.unknown["cost_usd"]
    assert set(free.unknown) == {"energy_cost_usd", "co2_tonnes", "cost_usd"}


@pytest.mark.parametrize(
    ("lacks", "words"),
    [("gpu", "cluster.node.gpu.power"), ("node", "cluster.node.power"), ("fabric", "gpu_power")],
)
def test_what_nobody_says_it_draws_is_named(lacks: str, words: str) -> None:
    whole = cluster()
    gpu = whole.node.gpu.model_copy(update={"power": None} if lacks == "gpu" else {})
    node = whole.node.model_copy(update={"gpu": gpu} | ({"power": None} if lacks == "node" else {}))
    wires = {"gpu_power": None} if lacks == "fabric" else {}
    fabric = whole.fabric.model_copy(update=wires)
    part = whole.model_copy(update={"node": node, "fabric": fabric})
    found = bill(part, CostSpec.model_validate({"site": SITE}), 1.0, HALF)
    assert found.energy_kwh is None
    assert words in found.unknown["energy_kwh"]
    assert (found.gpu_watts is None) == (lacks == "gpu")


def test_one_node_has_no_switches() -> None:
    one = bill(cluster(nodes=1), CostSpec.model_validate({"site": SITE}), 1.0, HALF)
    assert one.watts is not None
    assert one.watts.network == 0.0


ROWS = st.dictionaries(st.sampled_from(CAUSES), st.integers(0, 10**12)).filter(
    lambda row: sum(row.values()) > 0
)
WAYS = st.floats(0, 1)


@given(row=ROWS, ways=st.tuples(WAYS, WAYS, WAYS))
def test_power_lies_between_idle_and_the_limit(
    row: dict[str, int], ways: tuple[float, float, float]
) -> None:
    names = ("compute", "communication", "waiting")
    power = GpuPowerSpec.model_validate(GPU | dict(zip(names, ways, strict=True)))
    assert 100 - 1e-9 <= gpu_power(power, row) <= 700 + 1e-9
    assert sum(shares(row).values()) == pytest.approx(1)


@given(row=ROWS, moved=st.sampled_from([c for c in CAUSES if c != "compute"]))
def test_more_waiting_never_draws_more(row: dict[str, int], moved: str) -> None:
    power = GpuPowerSpec.model_validate(GPU)
    longer = {**row, moved: row.get(moved, 0) + 10**11}
    more_kernels = {**row, "compute": row.get("compute", 0) + 10**11}
    assert gpu_power(power, longer) <= gpu_power(power, more_kernels) + 1e-9


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ({}, "a price of rent or of purchase, or a site"),
        ({"gpu_hour": "2USD", "purchase": BOUGHT}, "rented or bought"),
        ({"purchase": {**BOUGHT, "node": None}}, "or of a GPU"),
        ({"purchase": {**BOUGHT, "gpu": "1kUSD"}}, "and of a GPU"),
        ({"site": {"pue": 0.9}}, "greater than or equal to 1"),
    ],
)
def test_a_cost_that_contradicts_itself_is_refused(cost: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        CostSpec.model_validate(cost)


def test_a_gpu_that_draws_more_idle_than_at_its_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match="at its limit"):
        GpuPowerSpec.model_validate(GPU | {"idle": "701W"})


@pytest.mark.parametrize(
    ("sets", "code", "hint"),
    [
        (["cost.purchase=h100-cluster-2024"], "TW017", "gpu_hour: null"),
        (["cost.site=us-averge"], "TW006", "us-average"),
        (["expect=[energy_kwh < 3GWh]"], "TW053", "site: us-average"),
        (["cost.gpu_hour=null", "cost.site=us-average", "expect=[cost_usd < 5MUSD]"], "TW053", "2"),
    ],
)
def test_mistakes_get_the_nearest_fix(sets: list[str], code: str, hint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load("kimi-k2-2048xh800", sets)
    (problem,) = caught.value.problems
    assert problem.code == code
    assert hint in problem.hint


def test_a_report_says_all_of_it_and_its_parts_sum() -> None:
    purchase = json.dumps({"node": "310kUSD", "years": 4.0, "utilisation": 0.8, "network": 0.1})
    sets = ("cost.gpu_hour=null", f"cost.purchase={purchase}", "cost.site=us-average")
    scenario = moe(2, 4, 2, 2, *sets)
    planned = plan(scenario)
    trace = simulate(lower(planned))
    found = report(planned, trace)
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    kpis = document["kpis"]
    assert sum(document["cost_breakdown"].values()) == kpis["cost_usd"]
    assert sum(document["energy"]["kwh"].values()) == pytest.approx(kpis["energy_kwh"])
    watts = document["energy"]["watts_per_gpu"]
    assert watts["gpus"] == kpis["average_watts_per_gpu"]
    assert kpis["energy_kwh"] == pytest.approx(sum(watts.values()) * kpis["gpu_hours"] / 1e3)
    assert document["cost_breakdown"]["energy"] == kpis["energy_cost_usd"]
    assert len(cost_tables(found.bill)) == 2
    for key in found.bill.figures:
        derived = explain(planned, lower(planned), trace, found, key)
        assert derived.value == pytest.approx(kpis[key], rel=1e-12), key
        assert derived.unit == next(kpi.unit for kpi in KPIS if kpi.key == key)


def test_figures_that_are_not_given_are_null_with_a_reason() -> None:
    document = report(made.plan(cost=None), made.trace()).to_json()
    unknown = {"cost_usd", "energy_kwh", "energy_cost_usd", "co2_tonnes", "average_watts_per_gpu"}
    assert unknown <= set(document["unknown"])
    assert {document["kpis"][key] for key in unknown} == {None}
    assert document["cost_breakdown"] is None
    assert document["energy"] is None
    assert cost_tables(report(made.plan(), made.trace()).bill) == []


PEAK = {"idle": "0W", "max": "700W", "compute": 1.0, "communication": 1.0, "waiting": 1.0}
"""Whatever the GPU does, its limit: how Llama 3's and BLOOM's authors count."""
NOTHING = dict.fromkeys(NODE, "0W")


def emitted(gpu: dict[str, Any], site: SiteSpec, hours: float) -> Bill:
    """GPUs alone, at their limit."""
    return bill(cluster(gpu, 1, **NOTHING), CostSpec(site=site), hours, ALL_KERNELS)


def test_published_energy_and_emissions() -> None:
    """Llama 3.1's model card: GPU-hours at 700 W, "adjusted for power usage efficiency", times the
    grid. BLOOM (Luccioni et al. 2023, table 3): 1,082,990 GPU-hours at 400 W, 57 g/kWh; with what
    the cluster drew besides, 689,842 kWh. An 8-GPU H100 node under computationally intensive work
    draws 76 % of 10.2 kW (Newkirk et al. 2025, arXiv:2506.14551)."""
    us = load_part("sites", "us-average").spec
    france = load_part("sites", "france-jean-zay").spec.model_copy(update={"pue": 1.0})
    a100 = {**PEAK, "max": "400W"}
    bloom = emitted(a100, france, 1_082_990)
    nodes = {
        name: bill(
            load("gpt-175b-64xa100-full", [f"cluster.node={name}"]).cluster.model_copy(
                update={"nodes": count}
            ),
            CostSpec(site=france),
            1.0,
            ALL_KERNELS,
        ).watts
        for name, count in (("a100-80gb-8gpu-8x200g", 48), ("h100-8gpu", 1))
    }
    measured: list[tuple[str, float | None, float, float]] = [
        ("Llama 3.1 8B, t", emitted(PEAK, us, 1.46e6).co2_tonnes, 420, 0.04),
        ("Llama 3.1 70B, t", emitted(PEAK, us, 7.0e6).co2_tonnes, 2_040, 0.04),
        ("Llama 3.1 405B, t", emitted(PEAK, us, 30.84e6).co2_tonnes, 8_930, 0.04),
        ("BLOOM, GPUs alone, kWh", bloom.energy_kwh, 433_196, 1e-5),
        ("BLOOM, GPUs alone, t", bloom.co2_tonnes, 24.69, 1e-3),
    ]
    a100_node, h100_node = nodes.values()
    assert a100_node is not None
    assert h100_node is not None
    measured += [
        ("BLOOM with its cluster, W per GPU", a100_node.total, 689_842e3 / 1_082_990, 0.15),
        ("H100 node at work, W", 8 * h100_node.total, 0.76 * 10_200, 0.06),
    ]
    for name, value, published, tolerance in measured:
        assert value is not None
        error = value / published - 1
        print(f"{name:36} {value:>12,.1f} {published:>12,.1f} {100 * error:+6.1f} %")
        assert abs(error) <= tolerance, name


def test_parts_of_the_catalog_say_what_they_draw() -> None:
    for name in ("h800-8gpu", "h100-8gpu", "h200-8gpu", "b200-8gpu", "a100-80gb-8gpu-8x200g"):
        node = load_part("nodes", name).spec
        assert node.power is not None
        assert node.gpu.power is not None
        # The systems' own limits: DGX A100 6.5 kW, DGX H100 and H200 10.2 kW, DGX B200 14.3 kW.
        limit = {"a": 6500, "b": 14300}.get(name[0], 10200)
        assert 0.7 * limit < node.power.total + 8 * node.gpu.power.max < limit


def test_prices_of_the_catalog_come_to_a_plausible_rent() -> None:
    """Without energy, between half of DeepSeek's assumed rent of 2 USD and that rent."""
    cost = CostSpec(purchase=load_part("prices", "h100-cluster-2024").spec)
    price = sum(hourly(cost, load_part("nodes", "h100-8gpu").spec).values())
    assert 1.0 < price < 2.0


def test_a_weight_update_is_paid_by_the_hour_of_a_purchase() -> None:
    price = json.dumps({"gpu": "17532USD", "years": 2.0, "utilisation": 1.0})
    sets = [f"cost={{purchase: {price}}}"]
    scenario: Any = load("kimi-k2-weight-update-16xh20", sets)
    planned = twin.plan(scenario)
    found = twin.report(planned, twin.simulate(twin.lower(planned)))
    # 17,532 hours in two years: one dollar each.
    assert found.kpis["cost_usd"] == pytest.approx(found.kpis["gpu_hours"])
