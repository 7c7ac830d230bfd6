"""An evaluation: same seed, same bytes; killed, it goes on; two are compared case by case."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reference.evaluate import run as running
from reference.evaluate.__main__ import main
from reference.evaluate.journal import read_rows
from reference.evaluate.report import compare
from reference.evaluate.run import evaluate
from reference.evaluate.subject import generator_subject
from reference.evaluate.task import EvaluateSpec
from twin.errors import TwinError

TASKS = [
    "held-out",
    {"name": "copying", "limit": 20},
    {"name": "repeat", "limit": 5},
    {"name": "store", "limit": 4, "context_tokens": 900, "output_tokens": 4},
]


def _spec(run, folder, **more) -> EvaluateSpec:
    said = {"model": run.train.output, "tasks": TASKS, "output": str(folder), **more}
    return EvaluateSpec.model_validate(said)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def judged(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged") / "out"
    return evaluate(_spec(run, folder)), folder


def test_a_result_has_every_task_with_intervals_counts_and_who_was_judged(judged):
    found, folder = judged
    assert json.loads((folder / "result.json").read_text()) == found
    assert found["model"]["kind"] == "run"
    copying, repeat, store = (found["tasks"][name] for name in ("copying", "repeat", "store"))
    assert copying["cases"] == 20
    assert copying["counts"]["prompts_cut"] == 20  # trained on 16 tokens, prompts have more
    metrics = repeat["metrics"]
    assert list(metrics) == ["avg@4", "pass@1", "pass@2", "pass@4", "vote@4", "best-of-4"]
    for one in metrics.values():
        assert 0 <= one["low"] <= one["value"] <= one["high"] <= 1
    assert repeat["counts"]["samples"] == 20
    assert store["counts"]["dialogues"] == 4
    assert "cut" in (folder / "table.md").read_text()


def test_the_same_evaluation_writes_the_same_bytes(judged, run, tmp_path):
    evaluate(_spec(run, tmp_path / "again"))
    assert _files(tmp_path / "again") == _files(judged[1])


def test_a_killed_evaluation_goes_on_and_asks_nothing_twice(run, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "ROUND", 8)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    evaluate(_spec(run, whole))

    class KilledError(Exception):
        pass

    def kill(task, done, _):
        if (task, done) == ("copying", 16):
            raise KilledError

    with pytest.raises(KilledError):
        evaluate(_spec(run, cut), progress=kill)
    # Half a round and half a line, as a kill in the middle of writing leaves them.
    with (cut / "cases" / "copying.jsonl").open("a") as file:
        file.write('{"id": "copying-16", "group": "copying-16"}\n{"id": "copy')
    assert not (cut / "result.json").exists()
    with pytest.raises(TwinError, match="TW586"):
        evaluate(_spec(run, cut))
    evaluate(_spec(run, cut), existing="resume")
    assert _files(cut) == _files(whole)
    evaluate(_spec(run, cut), existing="resume")
    assert _files(cut) == _files(whole)


def test_another_evaluation_does_not_go_on_in_a_folder(judged, run):
    with pytest.raises(TwinError, match="another seed"):
        evaluate(_spec(run, judged[1], seed=1), existing="resume")


def test_a_model_is_no_better_than_itself_and_other_cases_are_not_compared(judged, run, tmp_path):
    found = compare(judged[1], judged[1])["tasks"]
    assert found["copying"]["difference"]["value"] == 0
    assert found["copying"]["difference"]["low"] is None
    assert found["copying"]["verdict"] == "not told apart"
    other = tmp_path / "other"
    evaluate(_spec(run, other, tasks=[{"name": "copying", "limit": 9}]))
    assert "different cases" in compare(judged[1], other)["tasks"]["copying"]["skipped"]


def test_a_paired_difference_is_told_and_signed_by_what_is_better(judged, tmp_path):
    better = tmp_path / "better"
    for name, text in _files(judged[1]).items():
        path = better / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    cases = better / "cases" / "copying.jsonl"
    rows = [json.loads(line) for line in cases.read_text().splitlines()]
    cases.write_text("".join(json.dumps({**row, "score": 1.0}) + "\n" for row in rows))
    found = compare(judged[1], better)["tasks"]["copying"]
    before = [row["score"] for row in read_rows(judged[1], "copying")]
    assert found["difference"]["value"] == pytest.approx(1 - sum(before) / len(before))
    assert found["verdict"] == "better"
    assert compare(better, judged[1])["tasks"]["copying"]["verdict"] == "worse"


def test_rules_are_asked_what_they_have_a_skill_for_and_the_rest_is_skipped_aloud(tmp_path):
    said = {"name": "echoes", "about": "x.", "source": "here", "ask": "generate"}
    said |= {"cases": "echoes.jsonl", "scorer": "exact", "form": "chat"}
    (tmp_path / "echoes.yaml").write_text(json.dumps({**said, "metadata": {"kind": "echo"}}))
    rows = [{"prompt": word, "target": word if word != "c" else "d"} for word in "abc"]
    (tmp_path / "echoes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = [str(tmp_path / "echoes.yaml"), "copying", "held-out", "sums"]
    spec = {"model": "rules", "tasks": tasks, "output": str(tmp_path / "out")}
    found = evaluate(EvaluateSpec.model_validate(spec))
    assert found is not None
    assert found["tasks"]["echoes"]["metrics"]["pass@1"]["value"] == pytest.approx(2 / 3)
    assert found["tasks"]["echoes"]["counts"]["tokens_per_solved"] == pytest.approx(3 / 2)
    assert "held-out" in found["tasks"]["held-out"]["skipped"]
    assert all("skipped" in found["tasks"][name] for name in ("copying", "sums"))


def test_a_server_cannot_be_asked_for_log_likelihoods():
    subject = generator_subject("rules", None, 2)
    assert subject.refusal(chat=True, reads=False) is None
    assert "log-likelihoods" in str(subject.refusal(chat=False, reads=True))


def test_the_command_shows_compares_and_tells_what_is_wrong(judged, capsys, tmp_path):
    folder = str(judged[1])
    assert main(["--compare", folder, folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1
    assert main(["quick", "--set", f"output={folder}", "--show", "repeat", "2"]) == 0
    assert len(json.loads(capsys.readouterr().out)["samples"]) == 4
    assert main(["quick", "--set", f"output={folder}", "--show", "repeat", "99"]) == 2
    assert main(["--compare", folder, str(tmp_path)]) == 2
    assert main(["quik"]) == 2
    assert main([]) == 2
    assert main(["quick", "--set", "tasks=[a, a]"]) == 3
    assert main(["quick", "--set", f"model={tmp_path}", "--set", f"output={tmp_path}/o"]) == 2
    told = capsys.readouterr().err
    assert all(code in told for code in ("TW588", "TW589", "TW580", "TW491", "`quick`"))
