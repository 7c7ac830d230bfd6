"""What is kept of a run, and under which name."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from reference.config import RunSpec, load_run
from reference.studies.outcome import code, key_of, read, write
from tests.reference.studies.runs_of import outcome


@pytest.fixture(scope="module")
def run() -> RunSpec:
    return load_run("nano")


def test_an_outcome_is_read_back_as_it_was_written(run: RunSpec, tmp_path: Path) -> None:
    kept = outcome(entropies={"layers.1.ffn.experts.up.weight": (0.5, 0.75)})
    write(kept, run, tmp_path / "new" / "a.json")
    assert read(tmp_path / "new" / "a.json") == kept
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.json"]


def test_a_run_that_diverged_is_read_back_too(run: RunSpec, tmp_path: Path) -> None:
    diverged = outcome(inf)
    object.__setattr__(diverged, "ended", "diverged")
    write(diverged, run, tmp_path / "a.json")
    assert read(tmp_path / "a.json") == diverged
    assert diverged.final == inf


@pytest.mark.parametrize("text", ["", "{", "[]", '{"outcome": {"ended": "done"}}'])
def test_what_cannot_be_understood_is_run_again(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    assert read(tmp_path / "a.json") is None
    assert read(tmp_path / "missing.json") is None


def test_the_name_depends_on_what_decides_the_numbers_and_on_nothing_else(run: RunSpec) -> None:
    assert key_of(run) == key_of(load_run("nano", ["train.output=elsewhere"]))
    changed = ["train.seed=1", "data.seed=1", "optimizer.lr=0.1", "model.moe.experts=8"]
    names = {key_of(load_run("nano", [one])) for one in changed}
    assert len(names | {key_of(run)}) == 5


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
