"""Raw files: what is a document, and what is counted as none, with its place."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from reference.data.pipeline import read_source
from reference.data.spec import IngestSpec, SourceSpec
from reference.data.stage import Dropped, Record
from twin.errors import UsageError

LIMITS = IngestSpec(max_bytes=200)


def found_in(*paths: Path, limits: IngestSpec = LIMITS) -> list[Record | Dropped]:
    names = tuple(map(str, paths))
    return list(read_source(SourceSpec(name="raw", domain="web", path=names), limits))


def test_each_kind_of_bad_input_is_counted_with_its_place(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    good = json.dumps({"text": "a good one"}).encode()
    long = json.dumps({"text": "x" * 300}).encode()
    longer = json.dumps({"text": "x" * 9000}).encode()
    lines = [good, b'{"text": "half', b"[1]", b'{"title": "t"}', b'{"text": 3}', b"", long, longer]
    lines += [
        b'{"text": "\xff"}',
        b'{"text": "\\ud800"}',
        b'{"text": " \\n"}',
        b'{"text": "\\u0000"}',
    ]
    (folder / "a.jsonl").write_bytes(b"\n".join([*lines, good, b""]))
    (folder / "b.txt").write_bytes(b"y" * 201)
    (folder / "c.txt").write_bytes(b"\x01\x02 control")
    (folder / "d.bin").write_bytes(b"?")
    (folder / ".hidden.txt").write_text("hidden")
    (folder / "e.parquet").write_bytes(b"PAR1 no")
    found = found_in(folder)
    records = [one for one in found if isinstance(one, Record)]
    assert [one.id for one in records] == ["raw/all/a.jsonl:1", "raw/all/a.jsonl:13"]
    losses = [one for one in found if isinstance(one, Dropped)]
    assert {(one.place.removeprefix("all/"), one.reason) for one in losses} == {
        ("a.jsonl:2", "not JSON"),
        ("a.jsonl:3", "no text in `text`"),
        ("a.jsonl:4", "no text in `text`"),
        ("a.jsonl:5", "no text in `text`"),
        ("a.jsonl:6", "empty"),
        ("a.jsonl:7", "huge"),
        ("a.jsonl:8", "huge"),
        ("a.jsonl:9", "not UTF-8"),
        ("a.jsonl:10", "not UTF-8"),
        ("a.jsonl:11", "empty"),
        ("a.jsonl:12", "not text"),
        ("b.txt", "huge"),
        ("c.txt", "not text"),
        ("d.bin", "unknown suffix"),
        (".hidden.txt", "hidden file"),
        ("e.parquet", "not Parquet"),
    }


def test_parquet_gives_rows_and_counts_those_without_text(tmp_path: Path) -> None:
    table: Any = pa.table({"text": ["one", None, "three"], "number": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "t.parquet")
    found = found_in(tmp_path / "t.parquet")
    assert Counter(type(one).__name__ for one in found) == {"Record": 2, "Dropped": 1}
    other = SourceSpec(name="raw", domain="web", path=(str(tmp_path),), field="number")
    (loss,) = read_source(other, LIMITS)
    assert isinstance(loss, Dropped)
    assert loss.reason == "no column of text `number`"


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="TW220"):
        found_in(tmp_path / "nothing")


def test_files_come_by_path_whoever_made_them_first(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    found = [one.text for one in found_in(tmp_path) if isinstance(one, Record)]
    assert found == ["a.txt", "b.txt", "c/a.txt"]
