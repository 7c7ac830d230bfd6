"""The answers to an update: JSON, sentences, verbs, and what is wrong with an input."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import twin
from tests.kinds.weight_update.updates import H800, QUICK, SMALL, planned, reported, scenario
from twin.cli.main import main
from twin.errors import ScenarioError
from twin.kinds.weight_update.plan import STAGES
from twin.kinds.weight_update.report import WORDS, verdict
from twin.spec.kpis import UPDATE_KPIS


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def test_the_breakdown_sums_to_the_update_exactly() -> None:
    for name, sets in ((SMALL, ()), (H800, ()), (SMALL, ("weight_update.event=recover",))):
        report = reported(name, *sets)
        assert sum(report.breakdown_ns.values()) == report.update_ns
        assert report.kpis["update_seconds"] == report.update_ns / 1e9


def test_the_json_has_what_the_contract_promises(capsys) -> None:
    code, out, _ = run(capsys, "run", H800, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["kind"] == "weight_update"
    assert document["kpis"].keys() == document["intervals"].keys() == {k.key for k in UPDATE_KPIS}
    assert document["kpis"]["update_seconds"] < 30
    assert set(document["breakdown"]) == set(document["stages"]) == set(STAGES) == set(WORDS)
    assert {"nvlink", "pcie", "nic", "dram"} <= set(document["links"])
    assert all(0 <= link["use"] <= 1 for link in document["links"].values())
    assert [one["passed"] for one in document["expectations"]] == [True]
    assert document["provenance"]["updater"] == "checkpoint-engine-vllm"
    assert document["provenance"]["reproduce"] == f"twin run {H800}"
    assert {"no-interval", "no-price", "updater-of-another-gpu"} == {
        one["code"] for one in document["warnings"]
    }
    assert {(one["method"], one["stages"]) for one in document["alternatives"]} == {
        (method, stages) for method in ("broadcast", "p2p") for stages in ("two", "three")
    }


def test_the_five_verbs_take_a_weight_update() -> None:
    loaded = twin.load(SMALL, QUICK)
    plan = twin.plan(loaded)
    report = twin.report(plan, twin.simulate(twin.lower(plan)))
    assert report.to_json()["kind"] == "weight_update"
    (same,) = twin.compare([report, report]).deltas
    assert same.kpis["update_seconds"].delta == 0


def test_a_price_makes_a_cost() -> None:
    report = reported(SMALL, "cost={gpu_hour: 2USD}")
    hours = 16 * report.update_ns / 1e9 / 3600
    assert report.kpis["cost_usd"] == pytest.approx(2 * hours)


def test_the_verdict_says_fit_time_and_cause() -> None:
    text = verdict(reported(H800))
    assert text.startswith("Fits with ")
    assert "all 8 instances" in text
    assert "Broadcasts take" in text


def test_what_does_not_fit_is_named(capsys) -> None:
    code, out, _ = run(capsys, "run", H800, "--set", "weight_update.replica.gpus=8", "-q")
    assert code == 4
    assert out.startswith("Does not fit: weights of the engine")
    assert "If it did fit:" in out


def test_host_memory_counts(capsys) -> None:
    code, out, _ = run(capsys, "check", SMALL, "--set", "cluster.node.host.memory=256GB")
    assert code == 4
    assert "host memory" in out


def test_a_comparison_names_the_stage_and_judges_limits(capsys) -> None:
    words = ("compare", SMALL, SMALL.replace("16x", "256x"))
    code, out, _ = run(capsys, *words, "--fail-if", "update_seconds > +2%")
    assert code == 5
    assert "handing over buckets" in out
    code, out, _ = run(capsys, *words, "--json")
    (one,) = json.loads(out)["candidates"]
    change = one["kpis"]["update_seconds"]["delta"]
    assert sum(one["breakdown"].values()) == pytest.approx(change)


def test_a_comparison_of_what_cannot_run_says_so() -> None:
    report = reported(SMALL, *QUICK)
    (delta,) = twin.compare([report, replace(report, fits=False)]).deltas
    assert not delta.notes
    larger = replace(report, travel=replace(report.travel, checkpoint_bytes=1.0))
    assert [note.code for note in twin.compare([report, larger]).deltas[0].notes] == [
        "different-work"
    ]
    assert not delta.fits


def test_strict_refuses_what_was_not_measured(capsys) -> None:
    code, out, _ = run(capsys, "run", H800, "--strict", "-q")
    assert code == 6
    assert "updater-of-another-gpu" in out
    assert run(capsys, "run", SMALL, "--strict", "-q")[0] == 0


@pytest.mark.parametrize("verb", ["explain", "export"])
def test_verbs_for_training_say_so(capsys, verb, tmp_path) -> None:
    words = (
        ["update_seconds"] if verb == "explain" else ["--format", "csv", "-o", str(tmp_path / "x")]
    )
    words = ["mfu"] if verb == "explain" else words
    code, _, err = run(capsys, verb, SMALL, *words)
    assert code == 2
    assert "TW158" in err


def test_a_limit_on_a_figure_of_training_is_refused(capsys) -> None:
    code, _, err = run(capsys, "compare", SMALL, SMALL, "--fail-if", "mfu > +2%")
    assert code == 2
    assert "TW152" in err


WRONG = {
    "TW150": ("train={tokens: 1T}",),
    "TW151": ("weight_update.replica={gpus: 16, tensor: 3}",),
    "TW152": ('expect=["mfu > 0.3"]',),
    "TW153": ("weight_update.replica.gpus=12",),
    "TW154": ("weight_update.event=start",),
    "TW155": ("weight_update.event=recover", "weight_update.method=p2p"),
    "TW156": ("weight_update.free_memory=4GiB",),
    "TW157": ("cluster.nodes=2048",),
}


def test_the_nearest_number_that_works_is_told() -> None:
    hints: dict[str, str] = {}
    for code in ("TW153", "TW157"):
        with pytest.raises(ScenarioError) as caught:
            planned(SMALL, *WRONG[code])
        hints |= {one.code: one.hint for one in caught.value.problems}
    assert hints["TW153"] == "nearest gpus=8 or 16"
    assert hints["TW157"] == "at most 1,024 nodes"


def test_storage_that_nobody_reads_is_told() -> None:
    storage = "weight_update.storage={per_node: 10GB/s, total: 100GB/s}"
    for event, idle in (("update", True), ("start", False), ("recover", True)):
        found = planned(SMALL, storage, f"weight_update.event={event}").warnings
        assert ("idle-storage" in {one.code for one in found}) is idle


@pytest.mark.parametrize("code", WRONG)
def test_what_is_wrong_is_told_at_its_place_with_a_fix(code) -> None:
    with pytest.raises(ScenarioError) as caught:
        planned(SMALL, *WRONG[code])
    (problem,) = (one for one in caught.value.problems if one.code == code)
    assert problem.hint
    assert problem.origin is not None


def test_sections_of_both_kinds_are_told_apart() -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario("kimi-k2-256xh800", "weight_update={precision: fp8}")
    told = {one.path for one in caught.value.problems if one.code == "TW150"}
    assert told == {"parallel", "memory", "train", "software"}


def test_a_training_run_has_no_update_time() -> None:
    with pytest.raises(ScenarioError, match="TW152"):
        twin.load("kimi-k2-256xh800", ['expect=["update_seconds < 3s"]'])
