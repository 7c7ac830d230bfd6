"""Documents: every format, what is left out, and what a user is told."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from reference.text.documents import gather, read_corpus
from reference.text.spec import DataSpec
from twin.errors import UsageError


def names_of(source: Path, field: str = "text") -> dict[str, str]:
    corpus = read_corpus(DataSpec(source=(str(source),), field=field))
    return {document.name: document.text for document in corpus.documents}


def code_of(spec: DataSpec) -> tuple[str, str]:
    with pytest.raises(UsageError) as raised:
        read_corpus(spec)
    (problem,) = raised.value.problems
    return problem.code, f"{problem.message} | {problem.hint}"


def write_lines(path: Path, *records: object) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_the_standard_library_is_there_without_packages_tests_and_tables() -> None:
    corpus = read_corpus(DataSpec())
    names = {document.name for document in corpus.documents}
    assert {"argparse.py", "json/decoder.py", "pydoc_data/topics.py"} <= names
    parts = {part for name in names for part in name.split("/")}
    assert not parts & {"site-packages", "test", "tests", "encodings", "numpy", "torch"}
    assert all(name.endswith(".py") for name in names)
    assert sys.version.split()[0] in corpus.title
    assert [document.name for document in corpus.documents] == sorted(names)


def test_another_process_reads_the_same_corpus() -> None:
    code = (
        "from reference.text.documents import read_corpus\n"
        "from reference.text.spec import DataSpec\n"
        "print(read_corpus(DataSpec()).digest)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == read_corpus(DataSpec()).digest


def test_copies_bad_utf8_and_empty_texts_are_left_out_and_counted() -> None:
    entries = [("b", "same"), ("a", "same"), ("c", None), ("d", " \n"), ("e", "else")]
    corpus = gather("test", entries)
    assert [document.name for document in corpus.documents] == ["a", "e"]
    assert (corpus.duplicates, corpus.undecodable, corpus.empty) == (1, 1, 1)
    assert gather("test", reversed(entries)) == corpus


def test_the_digest_tells_names_and_texts_apart() -> None:
    digests = {
        gather("", entries).digest
        for entries in ([("ab", "c")], [("a", "bc")], [("a", "b"), ("c", "d")], [("ab", "cd")])
    }
    assert len(digests) == 4


def test_plain_files_keep_every_byte(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("line\r\nend \u00e9\r".encode())
    assert names_of(tmp_path / "a.txt") == {"a.txt": "line\r\nend \u00e9\r"}


def test_a_folder_gives_its_readable_files_by_path_and_nothing_hidden(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "deep" / "b.md").write_text("second")
    (folder / "a.TXT").write_text("first")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".git" / "c.txt").write_text("hidden")
    (folder / ".d.txt").write_text("hidden too")
    found = names_of(folder)
    assert found == {"notes/a.TXT": "first", "notes/deep/b.md": "second"}
    shutil.move(folder, tmp_path / "elsewhere" / "notes")
    assert names_of(tmp_path / "elsewhere" / "notes") == found


def test_lines_of_json_are_documents_under_the_field_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "one"}\n\n{"body": "tw\\u00f6", "n": 2}\n{"body": "\\ud800"}\n')
    assert names_of(path, "body") == {"a.jsonl:1": "one", "a.jsonl:3": "tw\u00f6"}
    assert read_corpus(DataSpec(source=(str(path),), field="body")).undecodable == 1


def test_rows_of_parquet_are_documents(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"body": ["one", "tw\u00f6"], "other": [1, 2]})
    parquet.write_table(table, path)  # pyright: ignore[reportUnknownMemberType]
    assert names_of(path, "body") == {"a.parquet:1": "one", "a.parquet:2": "tw\u00f6"}
    code, told = code_of(DataSpec(source=(str(path),), field="text"))
    assert code == "TW222"
    assert "set data.field to one of `body`" in told


def test_several_sources_are_read_together(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first")
    line = write_lines(tmp_path / "b.jsonl", {"text": "second"})
    spec = DataSpec.model_validate({"source": [str(tmp_path / "a.txt"), str(line)]})
    assert [one.text for one in read_corpus(spec).documents] == ["first", "second"]
    assert DataSpec.model_validate({"source": "a.txt"}).source == ("a.txt",)


def test_what_is_not_there_is_told_with_what_is(tmp_path: Path) -> None:
    (tmp_path / "there.txt").write_text("x")
    code, told = code_of(DataSpec(source=(str(tmp_path / "gone.txt"),)))
    assert code == "TW220"
    assert "no such file" in told
    assert "there.txt" in told


def test_an_unknown_suffix_is_told_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x")
    code, told = code_of(DataSpec(source=(str(tmp_path / "a.csv"),)))
    assert code == "TW221"
    assert ".jsonl, .parquet, .txt" in told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"body": "x"}', "record 2 has no text in `text` | set data.field to one of `body`"),
        ('{"text": 3}', "record 2 has no text in `text`"),
        ('["x"]', "record 2 is no JSON object"),
        ('{"text": "x', "record 2 is not JSON"),
    ],
)
def test_a_bad_line_is_told_by_its_number(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "fine"}}\n{line}\n')
    code, found = code_of(DataSpec(source=(str(path),)))
    assert code == "TW222"
    assert told in found


def test_a_broken_parquet_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no parquet at all")
    code, told = code_of(DataSpec(source=(str(tmp_path / "a.parquet"),)))
    assert code == "TW222"
    assert "is no Parquet file" in told


def test_a_corpus_without_a_document_is_told_with_why(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "b.txt").write_text("\n")
    code, told = code_of(DataSpec(source=(str(tmp_path),)))
    assert code == "TW223"
    assert "1 empty, 1 not UTF-8" in told
