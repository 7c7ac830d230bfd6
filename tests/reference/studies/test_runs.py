"""Runs of a study: really trained, at toy size."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference.config import RunSpec, load_run
from reference.studies import optimizers, runs
from reference.studies.outcome import read
from reference.studies.runs import Workplace, conduct
from reference.studies.scale import Scale
from twin.errors import UsageError

TOY = [
    "model.layers=2",
    "model.hidden=32",
    "model.vocab=260",
    "model.ffn.width=32",
    "model.moe.experts=4",
    "model.moe.top_k=2",
    "model.moe.width=16",
    "train.steps=6",
    "train.sequence=16",
    "train.micro_batch=2",
    "train.evaluate_sequences=4",
    "train.final_sequences=4",
    "train.device=cpu",
    "data.tokenizer.kind=bytes",
    "data.held_out=0.4",
]


@pytest.fixture
def scale(tmp_path: Path) -> Scale:
    """Two layers on a page of text."""
    text = tmp_path / "text"
    text.mkdir()
    for number in range(12):
        words = " ".join(str((number + 7) ** power) for power in range(40))
        (text / f"{number}.txt").write_text(words)
    overrides = [*TOY, f"data.source={text}", f"data.cache={tmp_path / 'data'}"]
    return Scale(load_run("nano", overrides), (0, 1))


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path / "kept", 1, lambda _: None)


@pytest.mark.slow
def test_a_study_runs_from_its_grid_to_its_report(scale: Scale, place: Workplace) -> None:
    found = optimizers.find(scale, (4e-3, 8e-3), 0, (0.5,), place)
    assert found.seeds == (0, 1)
    page = optimizers.report(found, scale)
    assert len(page.findings) == 4
    assert {len(of) for of in found.tried.values()} == {2}
    # MuonClip clipped nothing at this size, so that Muon's runs are its own.
    assert found.full["muon", 1] is found.full["muonclip", 1]
    assert found.full["adamw", 0] != found.full["muonclip", 0]


@pytest.mark.slow
def test_a_run_of_muonclip_that_clips_nothing_is_muons(scale: Scale, place: Workplace) -> None:
    kinds = {kind: scale.run(0, 0.01, kind=kind) for kind in ("muon", "muonclip")}
    done = conduct(kinds, place)
    assert not any(done["muonclip"].clipped_heads)
    assert done["muon"].losses == done["muonclip"].losses
    assert done["muon"].held_out == done["muonclip"].held_out
    assert done["muon"].entropies == done["muonclip"].entropies


@pytest.mark.slow
def test_muon_is_run_itself_at_a_rate_that_muonclip_has_not(scale: Scale, place: Workplace) -> None:
    runs_: dict[tuple[optimizers.Kind, int], RunSpec] = {
        ("muonclip", 0): scale.run(0, 0.01),
        ("muon", 0): scale.run(0, 0.02, kind="muon"),
    }
    done = optimizers.with_muon(runs_, place)
    assert done["muon", 0].losses != done["muonclip", 0].losses


def test_a_study_that_was_killed_runs_only_what_is_missing(
    scale: Scale, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = conduct({"a": scale.run(0, 0.01)}, place)
    trained = []
    real = runs.train
    monkeypatch.setattr(runs, "train", lambda run: trained.append(run.train.seed) or real(run))
    again = conduct({"b": scale.run(0, 0.01), "c": scale.run(1, 0.01)}, place)
    assert trained == [1]
    assert again["b"] == first["a"]
    assert None not in [read(path) for path in place.cache.iterdir()]


def test_two_names_of_one_run_train_it_once(scale: Scale, place: Workplace) -> None:
    told: list[str] = []
    run = scale.run(0, 0.01)
    done = conduct({"a": run, "b": run}, Workplace(place.cache, 1, told.append))
    assert done["a"] == done["b"]
    assert [line.partition(":")[0] for line in told] == ["1 runs, 1 at once; 0 were kept", "1/1"]


def test_a_folder_that_cannot_hold_outcomes_is_named(scale: Scale, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = Workplace(tmp_path / "file" / "kept", 1, lambda _: None)
    with pytest.raises(UsageError, match="TW280"):
        conduct({"a": scale.run(0, 0.01)}, place)
