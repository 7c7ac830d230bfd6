"""Checkpoints are whole or absent, and what is damaged is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from reference.checkpoint import folder
from reference.checkpoint.folder import (
    DamagedError,
    Snapshot,
    load_tensors,
    newest,
    read,
    remove_unfinished,
    save,
)
from reference.checkpoint.piece import Piece, Whole, piece_of


def snapshot(step: int) -> Snapshot:
    """Tensors of several types and shapes, one of them a view, one a scalar."""
    generator = torch.Generator().manual_seed(step)
    wide = torch.randn(6, 4, generator=generator)
    tensors = {
        "empty": torch.zeros(0, 3),
        "model/a": wide[1:3],
        "model/b": wide.bfloat16(),
        "optimizer/a/step": torch.tensor(float(step)),
        "rng/cpu": generator.get_state(),
    }
    pieces = {name: piece_of(tensor) for name, tensor in tensors.items()}
    return Snapshot(step, pieces, {"tokens": step * 10, "loader": {"at": [1, 2]}}, {"seed": 0})


def blank(whole: Whole) -> torch.Tensor:
    kind, shape = whole
    return torch.zeros(shape, dtype=getattr(torch, kind))


def tensors_file(path: Path) -> Path:
    return next(path.glob("tensors/*.distcp"))


def test_what_is_read_is_what_was_saved_bit_by_bit(tmp_path: Path) -> None:
    before = snapshot(3)
    found = read(save(tmp_path, before, keep=1))
    after = {name: blank(found.shapes[name]) for name in before.tensors}
    load_tensors(found, {name: piece_of(tensor) for name, tensor in after.items()})
    for name, piece in before.tensors.items():
        assert isinstance(piece, Piece)
        assert torch.equal(after[name].view(-1), piece.tensor)
    assert (found.step, found.facts, found.config) == (3, before.facts, before.config)
    assert found.shapes["model/b"] == ("bfloat16", (6, 4))


def test_the_newest_few_are_kept(tmp_path: Path) -> None:
    for step in (2, 4, 10, 100):
        save(tmp_path, snapshot(step), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000010", "step-00000100"]
    found, refused = newest(tmp_path)
    assert found is not None
    assert (found.step, refused) == (100, [])


def cut_short(path: Path) -> None:
    file = tensors_file(path)
    file.write_bytes(file.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    file = tensors_file(path)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def lose_a_file(path: Path) -> None:
    path.joinpath("tensors", ".metadata").unlink()


def lose_the_manifest(path: Path) -> None:
    path.joinpath("manifest.json").unlink()


def cut_the_manifest(path: Path) -> None:
    file = path / "manifest.json"
    file.write_text(file.read_text()[:-9])


def change_the_manifest(path: Path) -> None:
    file = path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"step": 99}))


DAMAGES = {
    cut_short: "`tensors/__0_0.distcp` has",
    flip_a_bit: "`tensors/__0_0.distcp` does not hold what was written",
    lose_a_file: "`tensors/.metadata` is missing",
    lose_the_manifest: "`manifest.json` is missing",
    cut_the_manifest: "`manifest.json` cannot be read",
    change_the_manifest: "`manifest.json` does not hold what was written",
}


@pytest.mark.parametrize(
    ("damage", "says"), DAMAGES.items(), ids=[damage.__name__ for damage in DAMAGES]
)
def test_a_damaged_one_is_refused_by_name_and_the_one_before_it_used(
    tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    save(tmp_path, snapshot(4), keep=2)
    path = save(tmp_path, snapshot(8), keep=2)
    damage(path)
    found, refused = newest(tmp_path)
    assert found is not None
    assert found.step == 4
    assert [problem.code for problem in refused] == ["TW233"]
    assert refused[0].message.startswith("checkpoint `step-00000008` is refused: ")
    assert says in refused[0].message
    with pytest.raises(DamagedError):
        read(path)


def test_one_of_another_layout_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, snapshot(4), keep=2)
    monkeypatch.setattr(folder, "VERSION", 3)
    with pytest.raises(DamagedError, match="layout is version 2, this is 3"):
        read(path)


def test_a_damaged_one_is_replaced_by_the_next_of_its_step(tmp_path: Path) -> None:
    flip_a_bit(save(tmp_path, snapshot(4), keep=2))
    save(tmp_path, snapshot(4), keep=2)
    found, refused = newest(tmp_path)
    assert found is not None
    assert refused == []


def test_a_checkpoint_gets_its_name_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed: list[tuple[list[str], bool]] = []
    rename = Path.rename

    def look(path: Path, target: Path) -> Path:
        if path.is_dir():  # torch renames a file of its own
            manifest = json.loads((path / "manifest.json").read_text())
            renamed.append((sorted(manifest["files"]), target.exists()))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", look)
    save(tmp_path, snapshot(8), keep=1)
    assert renamed == [(["tensors/.metadata", "tensors/__0_0.distcp"], False)]


@pytest.mark.parametrize("calls", range(6))
def test_a_save_that_dies_anywhere_leaves_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Dies at the n-th step of saving: what is on disk then is what a killed process leaves."""
    save(tmp_path, snapshot(4), keep=1)
    left = calls

    def dying(work: Callable[..., object]) -> Callable[..., object]:
        def die_or_work(*inputs: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return work(*inputs)

        return die_or_work

    for name in ("_write_tensors", "_write_manifest", "sync", "_remove"):
        monkeypatch.setattr(folder, name, dying(getattr(folder, name)))
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, snapshot(8), keep=1)
    monkeypatch.undo()
    found, refused = newest(tmp_path)
    assert found is not None
    assert found.step in (4, 8)
    assert refused == []
    remove_unfinished(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"step-00000004", "step-00000008"}
