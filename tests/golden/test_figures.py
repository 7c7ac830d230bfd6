"""Every figure of every shipped scenario, of all kinds, is the recorded one, to the last digit.

A change that is meant is recorded: `python -m tests.golden.test_figures` writes the table anew, and
the commit says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from twin.answers import ask, check
from twin.loading import load

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("figures.json")
FOLDERS = ("scenarios", "scenarios/studies", "scenarios/reference")
KEYS = ("intervals", "step_ns", "breakdown_ns", "update_ns", "phases", "busy", "idle", "spent",
        "speed_of_light_seconds", "partial_gain")  # fmt: skip
"""What a row holds beside hash, fit and key figures, where its kind has it."""
OF_A_PHASE = ("step_ns", "kpis", "checkpoints", "steps")
LONG = {
    "kimi-k2-256xh800",
    "kimi-k2-2048xh800-experts",
    "kimi-k2-2048xh800-experts-equal-loss",
    "kimi-k2-2048xh800-heads",
    "kimi-k2-512xh800",
    "kimi-k2-rephrasing-256xh800",
    "kimi-k2-rl-256xh800-disaggregated",
    "kimi-k2-rl-256xh800-one-step-off",
    "kimi-k2-whole-run-256xh800",
}
"""Scenarios that take seconds: compared by `make verify`."""


def files() -> dict[str, Path]:
    """Every shipped scenario, by name."""
    found = (file for folder in FOLDERS for file in (ROOT / folder).glob("*.yaml"))
    return {file.stem: file for file in sorted(found)}


def row(file: Path) -> dict[str, Any]:
    """The figures of a scenario, as the table holds them."""
    scenario = load(file)
    document = ask(scenario, cache=False).report.to_json()
    figures = {key: document[key] for key in KEYS if key in document}
    if isinstance(phases := figures.get("phases"), list):
        figures["phases"] = [{key: phase[key] for key in OF_A_PHASE} for phase in phases]
    checked = check(scenario).to_json()
    memory = checked.get("memory")
    found = {
        "hash": document["hash"],
        "fits": document["fits"],
        "kpis": document["kpis"],
        **figures,
        "warnings": sorted({warning["code"] for warning in document["warnings"]}),
        "check": {
            "fits": checked["fits"],
            "memory": memory["categories"] if isinstance(memory, dict) else memory,
        },
    }
    return json.loads(json.dumps(found))


def test_every_shipped_scenario_is_in_the_table() -> None:
    assert set(files()) == set(json.loads(TABLE.read_text()))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in files()],
)
def test_figures_are_the_recorded_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The table holds no suggestions, which take seconds where a plan does not fit.
    monkeypatch.setattr("twin.answers.answer.nearest_fit", lambda _: ())
    recorded = json.loads(TABLE.read_text())[name]
    found = row(files()[name])
    assert found.keys() == recorded.keys()
    for key, value in recorded.items():
        assert found[key] == value, key


if __name__ == "__main__":
    table = {name: row(file) for name, file in files().items()}
    TABLE.write_text(json.dumps(table, indent=1) + "\n")
