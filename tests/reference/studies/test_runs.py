"""Runs of a study: really trained, at toy size."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from reference.config import RunSpec, load_run
from reference.studies import optimizers, runs
from reference.studies.runs import Scale, code, key_of, read, train_all, write
from reference.studies.study import Workplace
from tests.reference.studies.runs_of import outcome
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
    "train.threads=1",  # two would spin where others use the cores, too
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
    assert "## SVD entropy at the end" in optimizers.page(found, scale).text("here")
    assert {len(of) for of in found.tried.values()} == {2}
    # MuonClip clipped nothing at this size, so that Muon's runs are its own.
    assert found.full["muon", 1] is found.full["muonclip", 1]
    assert found.full["adamw", 0] != found.full["muonclip", 0]


@pytest.mark.slow
def test_a_run_of_muonclip_that_clips_nothing_is_muons(scale: Scale, place: Workplace) -> None:
    kinds = {kind: scale.run(0, 0.01, kind=kind) for kind in ("muon", "muonclip")}
    done = train_all(kinds, place)
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
    first = train_all({"a": scale.run(0, 0.01)}, place)
    trained = []
    real = runs.train
    monkeypatch.setattr(runs, "train", lambda run: trained.append(run.train.seed) or real(run))
    again = train_all({"b": scale.run(0, 0.01), "c": scale.run(1, 0.01)}, place)
    assert trained == [1]
    assert again["b"] == first["a"]
    assert None not in [read(path) for path in place.cache.iterdir()]


def test_two_names_of_one_run_train_it_once(scale: Scale, place: Workplace) -> None:
    told: list[str] = []
    run = scale.run(0, 0.01)
    done = train_all({"a": run, "b": run}, Workplace(place.cache, 1, told.append))
    assert done["a"] == done["b"]
    assert [line.partition(":")[0] for line in told] == ["1 runs, 1 in parallel; 0 reused", "1/1"]


def test_a_folder_that_cannot_hold_outcomes_is_named(scale: Scale, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = Workplace(tmp_path / "file" / "kept", 1, lambda _: None)
    with pytest.raises(UsageError, match="TW280"):
        train_all({"a": scale.run(0, 0.01)}, place)


@pytest.fixture(scope="module")
def nano_run() -> RunSpec:
    return load_run("nano")


def test_an_outcome_is_read_back_as_it_was_written(nano_run: RunSpec, tmp_path: Path) -> None:
    kept = outcome(entropies={"layers.1.ffn.experts.up.weight": (0.5, 0.75)})
    write(kept, nano_run, tmp_path / "new" / "a.json")
    assert read(tmp_path / "new" / "a.json") == kept
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.json"]


def test_a_run_that_diverged_is_read_back_too(nano_run: RunSpec, tmp_path: Path) -> None:
    diverged = outcome(inf)
    object.__setattr__(diverged, "ended", "diverged")
    write(diverged, nano_run, tmp_path / "a.json")
    assert read(tmp_path / "a.json") == diverged
    assert diverged.final == inf


@pytest.mark.parametrize("text", ["", "{", "[]", '{"outcome": {"ended": "done"}}'])
def test_what_cannot_be_understood_is_run_again(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    assert read(tmp_path / "a.json") is None
    assert read(tmp_path / "missing.json") is None


def test_the_name_depends_on_what_decides_the_numbers_and_on_nothing_else(
    nano_run: RunSpec,
) -> None:
    assert key_of(nano_run) == key_of(load_run("nano", ["train.output=elsewhere"]))
    changed = ["train.seed=1", "data.seed=1", "optimizer.lr=0.1", "model.moe.experts=8"]
    names = {key_of(load_run("nano", [one])) for one in changed}
    assert len(names | {key_of(nano_run)}) == 5


def test_an_outcome_of_other_code_is_none_of_this(tmp_path: Path) -> None:
    """A loader that reads in another order gives other numbers for the same configuration."""
    digests = set()
    for number, text in enumerate(("order = 1", "order = 2")):
        folder = tmp_path / str(number)
        for room in ("data", "studies"):
            (folder / room).mkdir(parents=True)
        (folder / "data" / "loader.py").write_text(text)
        digests.add(code(folder))
        (folder / "studies" / "report.py").write_text(text)
        code.cache_clear()
        assert code(folder) in digests
    assert len(digests) == 2


def test_tokens_and_curve_count_from_steps() -> None:
    run = outcome(held_out=[(5, 4.0), (10, 3.5)], steps=10, tokens_per_step=100)
    assert run.tokens == 1000
    assert run.curve == ((500, 4.0), (1000, 3.5))
    assert run.final == 3.5
