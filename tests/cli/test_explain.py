"""`twin explain`: a tree for people, one document for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import Command
from twin.cli.main import main
from twin.reports import KPIS
from twin.reports.explain import Explanation

SMALL = ["--set", "cluster.nodes=1", "--set", "train.global_batch=8seq"]
SMALL += ["--set", "model=gpt-22b", "--set", "parallel.pipeline=1", "--set", "parallel.virtual=1"]
SMALL += ["--set", "parallel.schedule=1f1b"]


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path))


def test_the_tree_goes_from_the_figure_to_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gpt-175b-64xa100-full", "mfu", *SMALL]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("mfu = ")
    assert "= model_flop / step_seconds / (gpus * bf16_dense)" in shown
    assert "scenarios/catalog/gpus/a100-80gb.yaml:" in shown
    assert "as above" in shown


def test_quiet_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gpt-175b-64xa100-full", "step_seconds", "-q", *SMALL]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_the_document_holds_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gpt-175b-64xa100-full", "days", "--json", *SMALL]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 1
    assert document["kpi"] == document["explanation"]["name"] == "days"
    assert document["explanation"]["formula"] == "tokens / global_batch * step_seconds / 86400"


def test_without_a_figure_all_are_named_and_nothing_is_played(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "no-such-scenario"]) == 2
    said = capsys.readouterr().err
    assert [kpi.key for kpi in KPIS if kpi.key not in said] == []


def test_flop_are_read_without_counting_zeros() -> None:
    assert Explanation("work", 1.38e19, "FLOP per step", "", "").shown == "13.8 EFLOP per step"


def test_a_wrong_figure_is_told_before_anything_is_played(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "no-such-scenario", "mfuu"]) == 2
    assert "did you mean `mfu`?" in capsys.readouterr().err


K2 = ["--set", "model.layers=9", "--set", "model.moe.experts=16", "--set", "cluster.nodes=4"]
K2 += ["--set", "parallel.pipeline=4", "--set", "parallel.virtual=2", "--set", "parallel.expert=8"]
K2 += ["--set", "train.global_batch=64seq"]
TOPICS = {
    "overlap": ("takes", "window: can hide an all-to-all", {"overlap", "exposure"}),
    "links": ("busiest class of link", "host copies", {"links"}),
    "hidden-expert": ("heads", "64", {"trials", "limit", "largest_hidden", "fidelity"}),
    "software": ("Under in-house (as written)", "h800-megatron", {"stacks", "fidelity"}),
    "tornado": ("matters most", "change", {"influences", "fidelity"}),
}
"""Each topic with a word of its sentence, one of its table, and keys of its document."""


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_a_sentence_a_table_and_a_document(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said, shown, keys = TOPICS[topic]
    words = ["explain", "kimi-k2-256xh800", topic, *K2]
    words += ["--field", "calibration.bandwidth"] if topic == "tornado" else []
    assert main(words) == 0
    text = capsys.readouterr().out
    assert said in text.partition("\n")[0]
    assert shown in text
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["topic"] == topic
    assert keys <= set(document)


@pytest.mark.parametrize("topic", ["links", "overlap"])
def test_what_has_no_step_has_no_topic_of_one(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "kimi-k2-weight-update-16xh20", topic]) == 2
    assert "TW158" in capsys.readouterr().err


def test_only_a_tornado_has_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "kimi-k2-256xh800", "links", "--field", "calibration.gemm"]) == 2
    assert "only a tornado has fields" in capsys.readouterr().err


def test_a_wrong_topic_is_told_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "kimi-k2-256xh800", "hidden-experts"]) == 2
    assert "did you mean `hidden-expert`?" in capsys.readouterr().err


def test_the_trainer_s_step_of_an_rl_run_has_its_hidden_experts(
    twin_command: Command, tmp_path: Path
) -> None:
    """Not its rollouts, which have no breakdown."""
    (tmp_path / "small.yaml").write_text(
        "schema: 1\nextends: kimi-k2-rollout-256xh800\nmodel: {layers: 4, moe: {experts: 16}}\n"
        "cluster: {nodes: 2}\nparallel: {pipeline: 2, virtual: 2, expert: 8}\n"
        "train: {global_batch: 32seq}\n"
    )
    done = twin_command("explain", "small.yaml", "hidden-expert", "-q")
    assert done.code == 0, done.err
