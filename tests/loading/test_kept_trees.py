"""Trees of shipped files are kept: the same tree comes back, and never one of another text."""

from __future__ import annotations

from pathlib import Path

import pytest

from twin.errors import Origin
from twin.loading import files, kept_trees
from twin.loading.files import read_tree, shipped_folder
from twin.loading.kept_trees import keep_tree, kept_tree
from twin.loading.yaml_text import read_yaml

TEXT = "name: a\nlist: [1, 2.5, no, true, ~]\nnested: {deep: {er: 1e3}}\nempty:\n"


def locate(line: int, column: int, width: int) -> Origin:
    return Origin("file", line + 1, column + 1, TEXT.split("\n")[line], width)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept_trees, "folders", lambda _: (tmp_path / "not" / "there", tmp_path))
    return tmp_path


def test_a_kept_tree_is_the_tree_with_every_position() -> None:
    tree, problems = read_yaml(TEXT, locate)
    assert tree is not None
    assert not problems
    keep_tree("a", TEXT, tree)
    assert kept_tree("a", TEXT, locate) == tree


def test_every_shipped_part_reads_alike_when_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = sorted(shipped_folder().glob("catalog/gpus/*.yaml"))
    files._tree_of.cache_clear()
    first = [read_tree(path) for path in paths]
    files._tree_of.cache_clear()
    monkeypatch.setattr(files, "read_yaml", None)  # nobody reads the text
    assert [read_tree(path) for path in paths] == first
    files._tree_of.cache_clear()


def test_a_shipped_file_is_kept_however_its_path_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shipped_folder().parent)
    files._tree_of.cache_clear()
    tree, _ = read_tree(Path("scenarios/catalog/gpus/h800.yaml"))
    files._tree_of.cache_clear()
    assert [one.name for one in folder.glob("**/*.json")] == ["catalog.gpus.h800.yaml.json"]
    monkeypatch.setattr(files, "read_yaml", None)  # nobody reads the text
    assert read_tree(shipped_folder() / "catalog/gpus/h800.yaml")[0] == tree
    files._tree_of.cache_clear()


def test_another_text_or_a_damaged_file_is_read_anew(folder: Path) -> None:
    tree, _ = read_yaml(TEXT, locate)
    assert tree is not None
    keep_tree("a", TEXT, tree)
    assert kept_tree("a", TEXT + "more: 1\n", locate) is None
    (kept,) = folder.glob("**/a.json")
    for damaged in (b"", b"{", b"[]", kept.read_bytes()[:-20], b'{"of": 1, "tree": 2}'):
        kept.write_bytes(damaged)
        assert kept_tree("a", TEXT, locate) is None


def test_a_folder_that_cannot_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(kept_trees, "folders", lambda _: (tmp_path / "file",))
    tree, _ = read_yaml(TEXT, locate)
    assert tree is not None
    keep_tree("a", TEXT, tree)
    assert kept_tree("a", TEXT, locate) is None
