"""What holds for every format, found as the command finds them."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from tests.command import Command
from twin.answers import Run
from twin.errors import UsageError
from twin.interop.export import formats
from twin.interop.export.base import beside, format_of, stamp, write

FORMATS = formats()


def test_there_are_the_formats_of_the_contract() -> None:
    assert {"perfetto", "csv", "parquet", "html"} <= set(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_every_file_says_where_it_came_from_and_how_to_make_it_again(
    name: str, small: Run, tmp_path: Path
) -> None:
    known = stamp(small, name)
    suffix = format_of(name).SUFFIX
    assert known.command == (
        f"twin export small.yaml --set cost.gpu_hour=3USD --format {name} "
        f"--output {small.report.hash}{suffix}"
    )
    for path in write(small, name, tmp_path / f"out{suffix.removesuffix('.gz')}"):
        data = path.read_bytes()
        for text in (known.hash, known.twin_version, known.command, known.catalog):
            assert text.encode() in data, path.name


@pytest.mark.parametrize("name", FORMATS)
def test_when_and_how_long_it_was_played_is_in_no_export(
    name: str, small: Run, tmp_path: Path
) -> None:
    later = replace(small.report.provenance, created="2001-02-03", wall_seconds=1e6)
    again = replace(small, report=replace(small.report, provenance=later))
    first = [path.read_bytes() for path in write(small, name, tmp_path / "first.x")]
    second = [path.read_bytes() for path in write(again, name, tmp_path / "second.x")]
    assert first == second


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_compressed_is_the_same_inside(name: str, small: Run, tmp_path: Path) -> None:
    for path in write(small, name, tmp_path / "out.x"):
        (packed,) = (
            gzip.decompress(other.read_bytes())
            for other in write(small, name, tmp_path / "out.x.gz")
            if other.name == f"{path.name}.gz"
        )
        plain = path.read_bytes()
        assert _members(packed) == _members(plain) if zipfile.is_zipfile(path) else packed == plain


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(BytesIO(data)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


_EXPORT_ALL = """
import sys
from pathlib import Path
from twin.interop.export import formats
from twin.interop.export.base import write
from twin.loading import load
from twin.answers import ask
for _ in range(2):
    done = ask(load("small.yaml"), command="twin run small.yaml")
    for name in formats():
        write(done, name, Path(sys.argv[1]) / f"{name}-{done.cached}.gz")
"""


@pytest.mark.slow
def test_other_processes_and_stored_runs_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    found: list[dict[str, bytes]] = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", _EXPORT_ALL, str(folder)],
            check=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed, "TWIN_RUNS": str(folder / "runs")},
        )
        found.append({path.name: path.read_bytes() for path in folder.glob("*.gz")})
    assert len(found[0]) == 2 * sum(len(format_of(name).PARTS) for name in FORMATS)
    assert found[0] == found[1]
    for name, data in found[0].items():
        assert data == found[0][name.replace("True", "False")], name


@pytest.mark.parametrize(
    ("output", "part", "expected"),
    [
        ("step.csv", "-kpis", "step-kpis.csv"),
        ("step.csv.gz", "-kpis", "step-kpis.csv.gz"),
        ("k2.5.csv", "-kpis", "k2.5-kpis.csv"),
        ("step", "-kpis", "step-kpis"),
        ("step.csv", "", "step.csv"),
    ],
)
def test_parts_lie_beside_the_file_that_was_named(output: str, part: str, expected: str) -> None:
    assert beside(Path("folder") / output, part) == Path("folder") / expected


def test_a_full_disk_leaves_no_half_a_file(
    small: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(UsageError, match=r"TW063 .*step\.csv.* No space left"):
        write(small, "csv", tmp_path / "step.csv")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_a_scenario_and_says_what(
    twin_command: Command, small_file: str
) -> None:
    done = twin_command("export", small_file, "--format", "csv", "--output", "a.csv", "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert document["format"] == "csv"
    assert [one["path"] for one in document["files"]] == ["a.csv", "a-kpis.csv"]
    assert [one["bytes"] for one in document["files"]] == [
        Path(one["path"]).stat().st_size for one in document["files"]
    ]


def test_the_command_takes_a_stored_run_by_its_hash(twin_command: Command, small_file: str) -> None:
    words = ("export", small_file, "--set", "cost.gpu_hour=3USD", "--format", "html")
    first = json.loads(twin_command(*words, "--output", "a.html", "--json").out)
    done = twin_command("export", first["hash"][:6], "--format", "html", "--output", "b.html")
    assert done.code == 0
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()


def test_the_stamped_command_gives_the_same_bytes(twin_command: Command, small_file: str) -> None:
    words = ("--set", "cost.gpu_hour=3USD", "--format", "csv", "--output", "a.csv")
    twin_command("export", small_file, *words)
    (command,) = [
        line.removeprefix("# command: twin ")
        for line in Path("a.csv").read_text().splitlines()
        if line.startswith("# command: ")
    ]
    assert twin_command(*command.split()).code == 0
    assert Path(command.split()[-1]).read_bytes() == Path("a.csv").read_bytes()


@pytest.mark.usefixtures("small_file")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("small.yaml", "--format", "perfeto", "--output", "a"),
            "TW065",
            "did you mean `perfetto`",
        ),
        (("small.yaml", "--format", "csv", "--output", "no/a.csv"), "TW063", "mkdir -p no"),
        (("small.yaml", "--format", "csv", "--output", "."), "TW063", "name a file in it"),
        (("small.yaml", "--format", "csv", "--output", "there.csv"), "TW064", "--force"),
        (("small.yaml", "--format", "csv", "--output", "that.csv"), "TW064", "that-kpis.csv"),
        (("smal.yaml", "--format", "csv", "--output", "a.csv"), "TW001", "small.yaml"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_played(
    words: tuple[str, ...],
    code: str,
    said: str,
    twin_command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("nothing must be played")

    monkeypatch.setattr("twin.answers.ask", never)
    Path("there.csv").write_text("kept")
    Path("that-kpis.csv").write_text("kept")
    done = twin_command("export", *words)
    assert (done.code, done.out) == (2, "")
    assert code in done.err
    assert said in done.err
    assert Path("there.csv").read_text() == "kept"


def test_force_replaces_what_is_there(twin_command: Command, small_file: str) -> None:
    Path("a.csv").write_text("old")
    done = twin_command("export", small_file, "--format", "csv", "--output", "a.csv", "--force")
    assert done.code == 0
    assert Path("a.csv").read_text().startswith("# scenario: small")


def test_a_plan_that_does_not_fit_is_exported_and_says_so(
    twin_command: Command,
    small_file: str,
) -> None:
    tight = ("--set", "cluster.node.gpu.memory=8GiB")
    done = twin_command("export", small_file, *tight, "--format", "html", "--output", "a.html")
    assert done.code == 0
    assert "Does not fit" in done.err
    assert 'class="verdict unfit">Does not fit' in Path("a.html").read_text()


def test_a_link_stays_a_link_and_its_target_is_what_is_written(
    small: Run, twin_command: Command, small_file: str
) -> None:
    Path("target.csv").write_text("precious")
    Path("link.csv").symlink_to("target.csv")
    Path("nowhere.csv").symlink_to("missing.csv")
    for name in ("link.csv", "nowhere.csv"):
        done = twin_command("export", small_file, "--format", "csv", "--output", name)
        assert (done.code, "TW064" in done.err) == (2, True)
    assert Path("target.csv").read_text() == "precious"
    write(small, "csv", Path("link.csv"))
    assert Path("link.csv").is_symlink()
    assert Path("target.csv").read_text().startswith("# scenario")


def test_a_pipe_is_written_to_and_not_replaced(small: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    write(small, "parquet", pipe)
    assert reader.communicate(timeout=10)[0].startswith(b"PAR1")
    assert pipe.is_fifo()


@pytest.mark.parametrize("output", ["-", "x" * 300])
def test_an_output_that_is_no_file_is_refused(
    output: str, twin_command: Command, small_file: str, tmp_path: Path
) -> None:
    for words in (("export", small_file, "--format", "csv"), ("import", "hf-config", "c.json")):
        Path("c.json").write_text(
            '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 9,'
            '"intermediate_size": 8, "num_attention_heads": 4}'
        )
        done = twin_command(*words, "--output", output)
        assert (done.code, done.out) == (2, "")
        assert "TW063" in done.err
    assert {path.name for path in tmp_path.iterdir()} == {small_file, "c.json"}


def test_a_link_in_a_circle_is_no_file(twin_command: Command, small_file: str) -> None:
    Path("circle.csv").symlink_to("circle.csv")
    words = ("export", small_file, "--format", "csv", "--force", "--output", "circle.csv")
    done = twin_command(*words)
    assert (done.code, "TW063" in done.err) == (2, True)


@pytest.mark.parametrize("name", ["page.html", "page.HTML", "page.htm"])
def test_a_page_is_read_by_any_of_its_suffixes_and_one_without_a_scenario_says_so(
    name: str, twin_command: Command, small_file: str
) -> None:
    assert twin_command("export", small_file, "--format", "html", "--output", name).code == 0
    assert twin_command("check", name).code == 0
    Path(name).write_text("<html></html>")
    done = twin_command("check", name)
    assert done.code == 3
    assert f"TW005 the page `{name}` holds no scenario" in done.err
