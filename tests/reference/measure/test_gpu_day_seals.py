"""The predictions for a day on 8 H100 or 8 H800 are sealed, whole, and what the twin says today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import twin
from reference.measure.handover import seals
from reference.measure.plan import LAYOUTS, layouts
from tests.reference.measure.kernel_seals import GPUS, RANKS, rows
from twin.evidence.live.seal import digest_of, read
from twin.evidence.live.seals import read_seals

NEAR = 0.02
"""A prediction that moves further is sealed anew: docs/how-to/gpu.md says how. Never once a machine
has run it."""
SCENARIOS = [path for gpu in GPUS for path in layouts(gpu)]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_step_is_sealed_as_it_is_predicted_today(path: Path) -> None:
    sealed = seals(path.parent)[path.stem]
    scenario = twin.load(path)
    assert scenario.cluster.gpus == RANKS
    report = twin.report(twin.plan(scenario), twin.simulate(twin.lower(twin.plan(scenario))))
    assert sealed["prediction"]["hash"] == report.hash, "the scenario was changed: seal it again"
    for key in ("step_seconds", "mfu"):
        told = sealed["prediction"]["kpis"][key]
        assert told == pytest.approx(report.kpis[key], rel=NEAR), f"{key} moved: seal it again"
        low, high = sealed["prediction"]["intervals"][key]
        assert low < told < high


@pytest.mark.parametrize("gpu", GPUS)
def test_seals_of_steps_were_not_changed(gpu: str) -> None:
    folder = LAYOUTS / gpu / "seals"
    for path in folder.glob("*.json"):
        read(path.read_bytes(), path.name)
    assert len(read_seals(folder).seals) >= len(layouts(gpu)) == 10
    assert {*seals(LAYOUTS / gpu)} == {path.stem for path in layouts(gpu)}


@pytest.mark.parametrize("gpu", GPUS)
def test_kernels_are_sealed_as_they_are_predicted_today(gpu: str) -> None:
    sealed = json.loads((LAYOUTS / gpu / "kernels.json").read_text())
    assert sealed["digest"] == digest_of(sealed), "the file was changed after it was sealed"
    today = {(row["op"], json.dumps(row["shape"])): row["seconds"] for row in rows(gpu)}
    told = {(row["op"], json.dumps(row["shape"])): row["seconds"] for row in sealed["rows"]}
    assert told == pytest.approx(today, rel=NEAR), "seal them again"
    assert all(
        low <= row["seconds"] <= high for row in sealed["rows"] for low, high in [row["interval"]]
    )


def test_an_h800_is_slower_where_links_decide_and_nowhere_else() -> None:
    h100, h800 = (
        {k: v["prediction"]["kpis"]["step_seconds"] for k, v in seals(LAYOUTS / gpu).items()}
        for gpu in GPUS
    )
    assert all(h800[name] > h100[name] for name in h100)
    slower = {name: h800[name] / h100[name] for name in h100}
    assert max(slower, key=slower.__getitem__).startswith(("expert", "pipeline-2-expert"))
