"""Failures of components add up to interruptions of a job."""

from __future__ import annotations

from typing import Any

import pytest

from twin.errors import ScenarioError
from twin.goodput.estimate import DAY, hazards, per_day
from twin.loading import load, load_part
from twin.spec.cluster import ClusterSpec
from twin.spec.goodput import FailuresSpec

LLAMA = load_part("failures", "llama3-h100").spec
SCENARIO = load("llama-3-405b-16384xh100")


def cluster(nodes: int) -> ClusterSpec:
    return SCENARIO.cluster.model_copy(update={"nodes": nodes})


def failures(**cause: Any) -> FailuresSpec:
    return FailuresSpec.model_validate(
        {
            "name": "paper",
            "gpu": "H100",
            "observed": {"gpus": 100, "nodes": 10, "time": "10d"},
            "causes": [{"name": "it", **cause}],
        }
    )


def test_the_run_that_was_observed_has_as_many_interruptions_as_were_counted() -> None:
    """466 in 54 days: 419 unexpected, 47 planned (Llama 3, section 3.3.4)."""
    found = hazards(LLAMA, cluster(2048))
    over = 54 * DAY
    assert over * sum(one.per_second for one in found) == pytest.approx(466)
    assert over * sum(one.per_second for one in found if one.planned) == pytest.approx(47)


def test_every_row_of_table_5_is_there() -> None:
    counts = {cause.name: cause.count for cause in LLAMA.causes if not cause.planned}
    assert len(counts) == 18
    assert (counts["faulty GPU"], counts["GPU HBM3 memory"]) == (148, 72)
    assert sum(count or 0 for count in counts.values()) == 419


def test_the_shares_that_the_table_prints_are_those_of_its_counts_but_for_one() -> None:
    printed = {
        "GPU HBM3 memory": 17.2,
        "software bug": 12.9,
        "network switch or cable": 8.4,
        "host maintenance, not planned": 7.6,
        "GPU SRAM memory": 4.5,
        "GPU system processor": 4.1,
        "NIC": 1.7,
    }
    counts = {cause.name: cause.count or 0 for cause in LLAMA.causes}
    shares = {name: 100 * counts[name] / 419 for name in printed}
    assert shares == pytest.approx(printed, abs=0.05)
    assert 100 * counts["faulty GPU"] / 419 == pytest.approx(35.3, abs=0.05)  # it prints 30.1


def test_half_the_cluster_fails_half_as_often_but_is_planned_as_often() -> None:
    whole, half = (hazards(LLAMA, cluster(nodes)) for nodes in (2048, 1024))
    for one, other in zip(whole, half, strict=True):
        factor = 1.0 if one.planned else 2.0
        assert one.per_second == pytest.approx(factor * other.per_second)


@pytest.mark.parametrize(
    ("cause", "a_day"),
    [
        ({"count": 20, "per": "gpu"}, 20 / 100 / 10 * 16),
        ({"count": 20, "per": "nic"}, 20 / 100 / 10 * 16),
        ({"count": 20, "per": "node"}, 20 / 10 / 10 * 2),
        ({"count": 20, "per": "job"}, 20 / 10),
        ({"mtbf": "50d", "per": "node"}, 2 / 50),
        ({"rate": 0.001, "per": "gpu"}, 0.001 * 24 * 16),
    ],
)
def test_a_rate_can_be_written_in_three_ways(cause: dict[str, Any], a_day: float) -> None:
    """On two nodes of eight GPUs."""
    assert per_day(hazards(failures(**cause), cluster(2))) == pytest.approx({"it": a_day})


def test_meta_s_node_rate_gives_the_times_to_failure_that_meta_projects() -> None:
    """1.8 h on 16,384 GPUs and 0.23 h on 131,072, from 6.50 failures per 1,000 node-days
    (arXiv:2410.21680)."""
    rsc = load_part("failures", "meta-rsc1-a100").spec
    hours = {
        nodes: 1 / 3600 / sum(one.per_second for one in hazards(rsc, cluster(nodes)))
        for nodes in (2048, 16384)
    }
    assert hours == pytest.approx({2048: 1.8, 16384: 0.23}, rel=0.03)


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ("goodput.failures.causes=[{name: a}]", "TW171"),
        ("goodput.failures.causes=[{name: a, count: 3, rate: 0.1}]", "TW171"),
        ("goodput.failures.observed=null", "TW172"),
        ("goodput.checkpoint.every=soon", "TW013"),
        ("goodput.checkpoint.every=30", "TW012"),
        ("goodput.failures=llama4-h100", "TW006"),
    ],
)
def test_a_mistake_is_told_with_its_code(override: str, code: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load("llama-3-405b-16384xh100", [override])
    assert [problem.code for problem in caught.value.problems] == [code]
