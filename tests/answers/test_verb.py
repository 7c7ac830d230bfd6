"""`twin runs`, and what the other verbs do with stored runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command
from twin.answers import stored
from twin.cli.runs import asked
from twin.engine.trace import Trace
from twin.kinds.step import Step
from twin.loading import scenario_hash
from twin.scenario import Scenario

pytestmark = pytest.mark.usefixtures("small")


def test_a_run_is_listed_with_what_tells_it_from_others(
    twin_command: Command, small: Scenario
) -> None:
    twin_command("run", "small.yaml")
    twin_command("run", "small.yaml", "--set", "cluster.node.gpu.memory=8GiB")
    lines = twin_command("runs").out.splitlines()
    header, *rows = [line for line in lines if line.strip()]
    headings = "Hash Scenario File Changed in it Step Fits When Fidelity"
    assert header.split() == headings.split()
    assert len(rows) == 2
    (fitting,) = [row for row in rows if scenario_hash(small) in row]
    (other,) = [row for row in rows if row != fitting]
    for word in (" small ", " small.yaml ", " nothing ", " yes ", " events"):
        assert word in fitting
    for word in (" small.yaml ", " cluster.node.gpu.memory=8GiB ", " no "):
        assert word in other
    assert rows == [other, fitting]
    document = json.loads(twin_command("runs", "--json").out)
    assert document["version"] == 1
    assert {one["hash"]: one["fits"] for one in document["runs"]}[scenario_hash(small)]
    assert {one["fits"] for one in document["runs"]} == {True, False}
    assert all(one["bytes"] > 10_000 and one["current"] for one in document["runs"])
    assert [one["file"] for one in document["runs"]] == ["small.yaml", "small.yaml"]
    assert [one["changes"] for one in document["runs"]] == [["cluster.node.gpu.memory=8GiB"], []]


@pytest.mark.parametrize(
    ("command", "file", "changes"),
    [
        ("twin run 'my file.yaml' --set a.b='x y' --fidelity fast", "my file.yaml", ["a.b=x y"]),
        ("twin run s --set a=1 --set b=2", "s", ["a=1", "b=2"]),
        ("twin run 'unclosed", None, []),
        ("rm -r .", None, []),
        ("twin run", None, []),
        (None, None, []),
    ],
)
def test_a_command_tells_its_file_and_changes(
    command: str | None, file: str | None, changes: list[str]
) -> None:
    assert asked(command) == (file, changes)


def test_where_nothing_is_stored_the_list_says_so(twin_command: Command) -> None:
    assert twin_command("runs").out.startswith("No run is stored in ")
    assert json.loads(twin_command("runs", "--json").out)["runs"] == []


def test_quiet_lists_the_names_alone(twin_command: Command, small: Scenario) -> None:
    twin_command("run", "small.yaml")
    assert twin_command("runs", "--quiet").out == f"{scenario_hash(small)}\n"


def test_a_stored_run_is_shown_as_it_was_answered(
    twin_command: Command, small: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.loads(twin_command("run", "small.yaml", "--json").out)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing must be played")

    monkeypatch.setattr("twin.kinds.step.Step.simulate", never)
    shown = json.loads(twin_command("runs", "show", answer["hash"][:5], "--json").out)
    assert shown["runs"][0]["report"] == answer
    done = twin_command("runs", "show", scenario_hash(small))
    assert done.out.startswith(f"small: {answer['verdict']}\n")
    for text in ("Step time", "twin run small.yaml", "as it runs now", "events", " KiB"):
        assert text in done.out


def test_a_second_run_is_answered_from_the_store_and_no_cache_plays_it(
    twin_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[bool] = []

    def counted(*words: Any, **named: Any) -> Trace:
        played.append(True)
        return simulate(*words, **named)

    simulate = Step.simulate
    monkeypatch.setattr(Step, "simulate", counted)
    first, second, third = (
        twin_command("run", "small.yaml", "--json", *flags).out
        for flags in ((), (), ["--no-cache"])
    )
    assert first == second
    assert json.loads(third)["kpis"] == json.loads(first)["kpis"]
    assert len(played) == 2
    again = ("compare", "small.yaml", "small.yaml", "--no-attribution", "--json")
    twin_command(*again)
    assert len(played) == 2
    twin_command(*again, "--no-cache")
    assert len(played) == 4


def test_remove_takes_hashes_ages_or_all(twin_command: Command, small: Scenario) -> None:
    def fill() -> None:
        for price in ("1USD", "2USD", "3USD"):
            twin_command("run", "small.yaml", "--set", f"cost.gpu_hour={price}")

    fill()
    gone = scenario_hash(small)
    assert twin_command("runs", "remove", gone[:6]).out.startswith("Removed 1 stored run, ")
    assert gone not in {one.hash for one in stored()}
    assert len(stored()) == 2
    aged = stored()[0].path / "run.json"
    entry = json.loads(aged.read_text())
    entry["created"] = (datetime.now(UTC) - timedelta(days=31)).isoformat()
    aged.write_text(json.dumps(entry))
    done = twin_command("runs", "remove", "--older-than", "30d", "--json")
    assert json.loads(done.out)["removed"] == [aged.parent.name]
    fill()
    assert twin_command("runs", "remove", "--all").out.startswith("Removed 3 stored runs, ")
    assert stored() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show"], "name the run"),
        (["show", "zzzz"], "TW060"),
        (["show", ""], "TW060"),
        (["list", "abc"], "twin runs show HASH"),
        (["list", "--all"], "only `remove` takes"),
        (["remove"], "name hashes"),
        (["remove", "--all", "abc"], "name hashes"),
        (["remove", "--older-than", "30"], "TW066"),
        (["remove", "--older-than", "yesterday"], "write `30d`"),
        (["rmeove"], "remove"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error_with_the_way_out(
    words: list[str], said: str, twin_command: Command
) -> None:
    twin_command("run", "small.yaml")
    done = twin_command("runs", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(stored()) == 1


def test_the_beginning_of_two_names_names_neither(
    twin_command: Command, small: Scenario, runs: Path
) -> None:
    twin_command("run", "small.yaml")
    entry = runs / scenario_hash(small)
    twin_command("run", "small.yaml", "--fidelity", "group")
    done = twin_command("runs", "show", entry.name[:8])
    assert (done.code, "TW061" in done.err) == (2, True)
    assert f"{entry.name}, {entry.name}-group" in done.err
    assert twin_command("runs", "show", entry.name).code == 0


@pytest.mark.parametrize("name", ["report.json", "ledger.json"])
def test_an_entry_that_lost_a_file_says_how_to_store_it_again(
    name: str, twin_command: Command, small: Scenario, runs: Path
) -> None:
    twin_command("run", "small.yaml")
    (runs / scenario_hash(small) / name).write_text("{")
    words = ("export", scenario_hash(small), "--format", "csv", "--output", "a.csv")
    done = twin_command(*words)
    assert done.code == 2
    assert "TW062" in done.err
    assert "`twin run small.yaml`" in done.err


_ODD_RECORDS: dict[str, Any] = {
    "no number": {"step_seconds": float("nan")},
    "no finite time": {"wall_seconds": float("inf")},
    "a date before all dates": {"created": "0001-01-01T00:00:00+14:00"},
    "a date without its zone": {"created": "2026-01-01T00:00:00"},
    "a command that is no text": {"command": ["twin"]},
    "a name that is no text": {"name": {"a": 1}},
    "another version": {"version": 2},
}


@pytest.mark.parametrize("change", _ODD_RECORDS.values(), ids=_ODD_RECORDS.keys())
def test_an_entry_that_somebody_edited_is_not_listed_and_is_played_again(
    change: dict[str, Any], twin_command: Command
) -> None:
    twin_command("run", "small.yaml")
    (entry,) = stored()
    record = entry.path / "run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | change))
    for words in (("runs",), ("runs", "--json"), ("runs", "remove", "--older-than", "1d")):
        assert twin_command(*words).code == 0
    assert stored() == []
    assert twin_command("run", "small.yaml", "--json").code == 0
    assert len(stored()) == 1


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", "[" * 100_000, '{"verdict": 1, "kpis": {}}', '{"kpis": NaN}']
)
def test_a_report_that_somebody_edited_is_not_shown(text: str, twin_command: Command) -> None:
    twin_command("run", "small.yaml")
    (entry,) = stored()
    (entry.path / "report.json").write_text(text)
    for words in (("runs", "show"), ("runs", "show", "--json"), ("runs", "show", "--quiet")):
        done = twin_command(*words, entry.hash)
        assert done.code == 2
        assert "TW062" in done.err


def test_a_stored_run_is_never_exported_as_another_scenario(twin_command: Command) -> None:
    twin_command("run", "small.yaml")
    (entry,) = stored()
    report = entry.path / "report.json"
    text = report.read_text()
    assert '"sequence": "2048tok"' in text
    report.write_text(text.replace('"sequence": "2048tok"', '"sequence": "1024tok"'))
    done = twin_command("export", entry.hash, "--format", "csv", "--output", "a.csv")
    assert done.code == 2
    assert "TW062" in done.err
    assert not Path("a.csv").exists()


def test_no_age_is_too_great(twin_command: Command) -> None:
    twin_command("run", "small.yaml")
    assert twin_command("runs", "remove", "--older-than", "1e300d").code == 0
    assert len(stored()) == 1


def test_a_file_whose_name_is_no_text_is_run_listed_and_exported(
    twin_command: Command, tmp_path: Path
) -> None:
    name = "b\udcff.yaml"
    (tmp_path / "small.yaml").rename(tmp_path / name)
    assert twin_command("run", name).code == 0
    (entry,) = stored()
    assert entry.command == "twin run 'b?.yaml'"
    for form in ("csv", "html", "parquet", "perfetto"):
        done = twin_command("export", name, "--format", form, "--output", f"out.{form}")
        assert done.code == 0, done.err
