"""Suites: files of published rows, read into `Row`s.

A `.yaml` file has `measurements`, and `models` that they name; a `.csv` file is vTrain's table of
iterations; a folder holds such files. Formats are described in scenarios/published/README.md.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from twin.errors import Problem, UsageError
from twin.evidence.validate.row import Fields, Row, is_fields
from twin.loading.files import display, shipped_folder

SHIPPED: Final = "published"
"""The folder of suites among the scenarios."""
_VTRAIN: Final = {
    "# GPUs": "gpus", "global batch": "gbs", "micro batch": "mbs", "hidden size": "hidden",
    "attention heads": "heads", "# layers": "layers", "sequence length": "seq",
    "tensor parallelism": "tp", "data parallelism": "dp", "pipeline parallelism": "pp",
    "iteration time (ms)": "ms",
}  # fmt: skip
"""Columns of vTrain's tables."""


def read_suite(path: Path | None = None) -> tuple[Row, ...]:
    """The rows of a file, of a folder's files, or of all that are shipped. Raises `UsageError` for
    what is no suite."""
    place = path or shipped_folder() / SHIPPED
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix in (".yaml", ".yml", ".csv"))
        found = tuple(row for file in files for row in _rows(file, strict=False))
        if not found:
            raise _no_suite(place, "no file in it has rows", "name a file of rows")
        return found
    if not place.is_file():
        raise _no_suite(place, "there is no such file", "name a file or folder of rows")
    return _rows(place, strict=True)


def _rows(file: Path, strict: bool) -> tuple[Row, ...]:
    if file.suffix == ".csv":
        return _iterations(file, strict)
    if file.suffix not in (".yaml", ".yml"):
        raise _no_suite(file, "its name ends in neither .yaml nor .csv", "name a file of rows")
    found = _document(file)
    text: Fields = found if is_fields(found) else {}
    rows: Any = text.get("measurements")
    if not isinstance(rows, list):
        if strict:
            raise _no_suite(file, "it has no list `measurements`", "see scenarios/published")
        return ()
    models: Any = text.get("models")
    every = cast("list[Any]", rows)
    own: Fields = models if is_fields(models) else {}
    return tuple(Row(one, own) for one in every if is_fields(one))


def _document(file: Path) -> Any:
    try:
        # ruamel leaves the type of its streams open.
        return YAML(typ="safe").load(file)  # pyright: ignore[reportUnknownMemberType]
    except (YAMLError, UnicodeDecodeError) as error:
        first = str(error).split("\n", 1)[0]
        raise _no_suite(file, f"it is no YAML: {first}", "correct it") from None


def _iterations(file: Path, strict: bool) -> tuple[Row, ...]:
    """Iterations of GPT models on nodes of 8 A100 80 GB with 4 NICs of 200 Gb/s (vTrain)."""
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            table = list(csv.DictReader(lines))
    except UnicodeDecodeError:
        raise _no_suite(file, "it is no text", "name a table in UTF-8") from None
    if not table or not set(_VTRAIN) <= set(table[0]):
        if strict:
            lost = ", ".join(name for name in _VTRAIN if not table or name not in table[0])
            raise _no_suite(file, f"it has no column {lost}", "name a table in vTrain's format")
        return ()
    return tuple(_iteration(file.stem, number, cells) for number, cells in enumerate(table, 1))


def _iteration(stem: str, index: int, cells: Mapping[str, str]) -> Row:
    numbers: dict[str, Any] = {
        name: _number(cells[column]) for column, name in _VTRAIN.items() if name != "ms"
    }
    milliseconds = _number(cells["iteration time (ms)"])
    gpus = numbers["gpus"]
    nodes = "several nodes" if isinstance(gpus, int) and gpus > 8 else "one node"
    hidden = numbers["hidden"]
    fields = {
        "id": f"{stem}-{index}",
        "category": "train_step",
        "reproducible": True,
        "source": {"title": f"VIA-Research/vTrain (MICRO 2024), {nodes}"},
        "system": {"gpu": "A100-80GB", "gpus": gpus, "gpus_per_nvlink_domain": 8,
                   "network": "4x200G IB per node"},
        "model": {"name": f"gpt {numbers['layers']}x{hidden}", "layers": numbers["layers"],
                  "hidden": hidden, "heads": numbers["heads"]},
        "parallelism": {"tp": numbers["tp"], "pp": numbers["pp"], "dp": numbers["dp"],
                        "recompute": "full", "zero": 0},
        "precision": "FP16 mixed",
        "gbs": numbers["gbs"], "mbs": numbers["mbs"], "seq": numbers["seq"],
        "metrics": {} if milliseconds is None else {"step_s": milliseconds / 1e3},
        "use": "fit" if tuple(cells[column] for column in _VTRAIN) in _fitted() else "check",
    }  # fmt: skip
    return Row(fields, {})


def _number(text: str) -> Any:
    """A cell as a number where it is one; as it is where not, for the reader of rows to name."""
    for kind in (int, float):
        try:
            return kind(text)
        except (TypeError, ValueError):
            continue
    return text or None


@cache
def _fitted() -> frozenset[tuple[str, ...]]:
    """The iterations that a fit has seen: those of the shipped files of rows to fit on."""
    found: set[tuple[str, ...]] = set()
    for kind in ("single", "multi"):
        file = shipped_folder() / SHIPPED / f"vtrain-fit-{kind}-node.csv"
        with file.open(newline="", encoding="utf-8") as lines:
            found |= {tuple(cells[c] for c in _VTRAIN) for cells in csv.DictReader(lines)}
    return frozenset(found)


def _no_suite(path: Path, why: str, fix: str) -> UsageError:
    return UsageError([Problem("TW380", "--suite", f"`{display(path)}` is no suite: {why}", fix)])


def by_category(rows: Iterable[Row]) -> dict[str, tuple[Row, ...]]:
    """Rows by what was measured, in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.category, []).append(row)
    return {name: tuple(own) for name, own in found.items()}
