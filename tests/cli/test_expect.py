"""What is expected and what is too much decide the exit code, and are told in words and in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from tests.command import Command
from twin.spec.kpis import KPIS

TIGHT = ("--set", "cluster.node.gpu.memory=24GiB")
"""So that the small plan does not fit."""


def expect(*texts: str) -> tuple[str, str]:
    """The option that expects these."""
    return "--set", f"expect={json.dumps(texts)}"


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        (["fits == true", "step_seconds < 100s", "mfu > 1%", "cost_usd > 1USD"], 0),
        (["fits == true", "mfu > 99%"], 5),
        (["fits == false"], 5),
    ],
)
def test_run_exits_with_5_where_an_expectation_fails(
    texts: list[str], code: int, twin_command: Command, small: str
) -> None:
    done = twin_command("run", small, "--json", *expect(*texts))
    assert done.code == code
    found = json.loads(done.out)["expectations"]
    assert [one["text"] for one in found] == texts
    assert all(one["passed"] for one in found) is (code == 0)


def test_every_key_figure_is_judged_on_the_value_that_the_report_has(
    twin_command: Command, small: str
) -> None:
    """Also where it is the bound itself: nothing is rounded in between."""
    kpis = json.loads(twin_command("run", small, "--json").out)["kpis"]
    units = {"s": "s", "d": "d", "%": "", "bytes": "B"}
    texts = {
        kpi.key: f"{kpi.key} <= {kpis[kpi.key]!r}{units.get(kpi.unit, kpi.unit)}"
        for kpi in KPIS
        if kpis[kpi.key] is not None
    }
    done = twin_command("run", small, "--json", *expect(*texts.values()))
    assert done.code == 0
    assert [one["value"] for one in json.loads(done.out)["expectations"]] == [
        value for value in kpis.values() if value is not None
    ]


def test_a_plan_that_does_not_fit_is_exit_4_whatever_is_expected(
    twin_command: Command, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twin.answers.answer.nearest_fit", lambda _: ())
    for verb in ("run", "check"):
        for text, passed in (("fits == false", True), ("fits == true", False)):
            done = twin_command(verb, small, "--json", *TIGHT, *expect(text))
            assert done.code == 4
            (judged,) = json.loads(done.out)["expectations"]
            assert (judged["value"], judged["passed"]) == (False, passed)


def test_check_judges_what_a_plan_answers_and_leaves_the_rest_open(
    twin_command: Command, small: str
) -> None:
    done = twin_command("check", small, *expect("step_seconds < 1ms", "fits == true"), "--json")
    assert done.code == 0
    found = json.loads(done.out)["expectations"]
    assert [(one["value"], one["passed"]) for one in found] == [(None, None), (True, True)]
    assert twin_command("check", small, *expect("peak_device_bytes < 1GiB")).code == 5


def test_a_failed_expectation_is_told_even_quietly(twin_command: Command, small: str) -> None:
    wanted = expect("step_seconds < 1ms", "mfu > 1%")
    quiet = twin_command("run", small, "--quiet", *wanted).out.splitlines()
    assert len(quiet) == 2
    assert quiet[1].startswith("step_seconds < 1ms: failed, it is ")
    full = twin_command("run", small, *wanted).out
    assert "mfu > 1%: holds, it is " in full
    assert "step_seconds < 1ms: not answered here." in twin_command("check", small, *wanted).out


def test_a_wrong_expectation_is_exit_3_with_its_place(
    twin_command: Command, tmp_path: Path
) -> None:
    text = 'expect: ["fits == true", "step_seconds < 25GiB", "mfuu > 0.3"]\n'
    (tmp_path / "wrong.yaml").write_text(SMALL + text)
    done = twin_command("check", "wrong.yaml")
    assert done.code == 3
    line = len(SMALL.splitlines()) + 1
    column = text.index('"step') + 1
    assert (
        f"wrong.yaml:{line}:{column}: TW013 `25GiB` is bytes; this field takes a time" in done.err
    )
    assert "TW051 no key figure is called `mfuu`\n" in done.err
    assert "hint: did you mean `mfu`?" in done.err


def test_strict_exits_with_6_where_times_were_not_measured(
    twin_command: Command, small: str
) -> None:
    """The small scenario's profile has assumed efficiencies; told who measured them, it has none.
    What is not as expected comes first."""
    assert twin_command("run", small, "--strict").code == 6
    assert "Outside the calibrated range: assumed-calibration." in (
        twin_command("run", small, "--strict", "--quiet").out
    )
    assert twin_command("run", small).code == 0
    assert twin_command("run", small, "--strict", *expect("mfu > 99%")).code == 5
    names = ("attention_forward", "attention_backward", "grouped_gemm", "launch")
    document = json.loads(twin_command("resolve", small, "--json").out)
    values = document["scenario"]["calibration"]
    sets = [
        word
        for name in names
        for word in (
            "--set",
            f"calibration.{name}={{value: {values[name]}, source: twin, kind: measured}}",
        )
    ]
    sets += ["--set", "calibration.matmuls=null"]  # whose ramp and groups are assumed, too
    done = twin_command("run", small, "--strict", "--json", *sets)
    assert done.code == 0, done.err
    assert json.loads(done.out)["calibrated"] is True


@pytest.fixture
def selective(tmp_path: Path) -> str:
    """The small scenario with less recomputation: faster, and larger."""
    changed = SMALL.replace("[full]", "[attention_core]").replace("name: small", "name: selective")
    (tmp_path / "selective.yaml").write_text(changed)
    return "selective.yaml"


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (["step_seconds < -2%"], 5),
        (["step_seconds > +2%", "peak_device_bytes > +1GiB"], 5),
        (["peak_device_bytes > +1TiB", "mfu < -1%"], 0),
    ],
)
def test_compare_exits_with_5_where_a_change_is_too_much(
    limits: list[str], code: int, twin_command: Command, small: str, selective: str
) -> None:
    words = [word for limit in limits for word in ("--fail-if", limit)]
    done = twin_command("compare", small, selective, "--json", "--no-attribution", *words)
    assert done.code == code, done.err
    document = json.loads(done.out)
    assert bool(document["failures"]) is (code == 5)
    for one in document["failures"]:
        assert one["name"] == "selective"
        assert one["baseline"] == document["reports"][0]["kpis"][one["figure"]]
        assert one["candidate"] == document["reports"][1]["kpis"][one["figure"]]


def test_jobs_on_one_fabric_are_shown_beside_each_other_alone(
    twin_command: Command, small: str, selective: str
) -> None:
    words = ("compare", small, selective, "--no-attribution", "--together")
    document = json.loads(twin_command(*words, "interleaved", "--json").out)
    for report, tenant in zip(document["reports"], document["together"]["tenants"], strict=True):
        assert tenant["written_ns"] == report["step_ns"] == tenant["step_ns"]
    assert "no step changes" in twin_command(*words, "apart", "--quiet").out
    other = "kimi-k2-rollout-256xh800"
    assert "TW158" in twin_command("compare", other, other, *words[3:], "apart", "--quiet").err


def test_a_failure_is_told_even_quietly(twin_command: Command, small: str, selective: str) -> None:
    limit = ("--fail-if", "step_seconds < -2%")
    lines = twin_command("compare", small, selective, "--quiet", *limit).out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("selective is beyond step_seconds < -2%: ")


def test_what_does_not_fit_is_exit_4_before_any_limit(
    twin_command: Command, small: str, selective: str
) -> None:
    words = ("compare", small, selective, "--quiet", *TIGHT, "--fail-if", "step_seconds < -2%")
    assert twin_command(*words).code == 4


def test_wrong_limits_are_usage_errors_all_at_once(
    twin_command: Command, small: str, selective: str
) -> None:
    words = ("--fail-if", "step_seconds > 2%", "--fail-if", "step_second > +2%")
    done = twin_command("compare", small, selective, *words)
    assert done.code == 2
    assert "--fail-if:1:1: TW050 `2%` says not which way `step_seconds` changes" in done.err
    assert "--fail-if:2:1: TW051 no key figure is called `step_second`" in done.err
    assert done.out == ""


def test_compare_attributes_the_difference_to_edits_that_sum_to_it(
    twin_command: Command, small: str, selective: str
) -> None:
    document = json.loads(twin_command("compare", small, selective, "--json").out)
    assert sum(document["attribution_ns"].values()) == document["step_delta_ns"] < 0
    assert "memory.recompute" in document["attribution"]
    (candidate,) = document["candidates"]
    assert candidate["attribution"]["delta_ns"] == document["step_delta_ns"]
    shown = twin_command("compare", small, selective).out
    assert "Which edit made the step of B other than that of A" in shown
    plain = twin_command("compare", small, selective, "--no-attribution").out
    assert "Which edit" not in plain


def test_one_edit_alone_needs_no_telling_apart_and_none_no_table(
    twin_command: Command, small: str, selective: str
) -> None:
    one = twin_command("compare", small, selective).out
    assert "Which edit" in one
    assert "orders" not in one
    assert "Which edit" not in twin_command("compare", small, small).out


@pytest.mark.parametrize(
    ("limit", "said"),
    [("mfu > +", "names no change"), (f"mfu > +{'9' * 400}%", "more than a number can hold")],
)
def test_a_limit_without_a_change_or_beyond_all_numbers_is_refused(
    limit: str, said: str, twin_command: Command, small: str
) -> None:
    done = twin_command("compare", small, small, "--fail-if", limit)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_a_limit_on_a_figure_of_another_kind_is_refused_before_anything_is_played(
    twin_command: Command, small: str
) -> None:
    done = twin_command("compare", small, small, "--fail-if", "iteration_seconds > +2%")
    assert (done.code, done.out) == (2, "")
    assert "TW152 a training run has no `iteration_seconds`" in done.err


def test_fidelity_reaches_the_answer_and_its_command(twin_command: Command, small: str) -> None:
    group = json.loads(twin_command("run", small, "--fidelity", "group", "--json").out)[
        "provenance"
    ]
    assert (group["fidelity"], group["reproduce"]) == (
        "group",
        "twin run small.yaml --fidelity group",
    )
    played = json.loads(twin_command("run", small, "--json").out)["provenance"]
    assert played["fidelity"] == "events"
    assert twin_command("run", small, "--fidelity", "exact").code == 2


def test_an_older_word_for_a_fidelity_means_events(twin_command: Command, small: str) -> None:
    found = json.loads(twin_command("run", small, "--fidelity", "fast", "--json").out)["provenance"]
    assert (found["fidelity"], found["reproduce"]) == ("events", "twin run small.yaml")
