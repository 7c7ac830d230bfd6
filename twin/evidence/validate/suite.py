"""Suites: files of published rows, read into `PublishedRow`s.

A `.yaml` file has `measurements`, and `models` that they name; a `.csv` file is vTrain's table of
iterations; a folder holds such files (formats: scenarios/published/README.md). Only types are
checked here: a value of the wrong kind raises `Unreadable`, which names it, and only its own row is
lost.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from twin.errors import Problem, UsageError
from twin.loading.files import display, shipped_folder

Use = Literal["fit", "near-fit", "check"]
Fields = Mapping[str, Any]
_FP8: Final = re.compile(r"FP8", re.IGNORECASE)
_FP4: Final = re.compile(r"FP4", re.IGNORECASE)


class Unreadable(ValueError):  # noqa: N818  a row that cannot be read, not an error of the program
    """What a row has in a place where it cannot be read."""


NO_BATCH: Final = "the row does not say batch and sequence"
NO_LAYOUT: Final = "the row names its system, and no degrees of parallelism"
UNTOLD: Final = frozenset({NO_BATCH, NO_LAYOUT})
NOT_TOLD: Final = "not told: "
"""How other reasons begin that are the source's: a fact that a prediction needs, by name."""
AN_INPUT: Final = "an input: "
"""How reasons begin of rows that say what a scenario is given, and nothing that it answers."""
Refusal = Literal["untold", "input", "beyond"]
"""Why a row has no prediction: its source leaves out a fact, there is nothing to predict, or the
twin cannot express it."""


WHY: Final[Mapping[Refusal, str]] = {
    "untold": "untold by its source",
    "input": "an input",
    "beyond": "beyond the twin",
}
"""The classes in words."""


def refusal(reason: str) -> Refusal:
    """The class of a reason."""
    if reason in UNTOLD or reason.startswith(NOT_TOLD):
        return "untold"
    return "input" if reason.startswith(AN_INPUT) else "beyond"


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row of a suite. `models` are those that its file defines beside the rows."""

    fields: Fields
    models: Fields

    @property
    def id(self) -> str:
        """What the row is called."""
        return str(self.fields.get("id", "a row without id"))

    @property
    def category(self) -> str:
        """What kind of measurement it is."""
        return str(self.fields.get("category", "train_step"))

    @property
    def use(self) -> Use:
        """Whether a fit may see the row: `fit`; whether it judges: `check`, as rows do that say
        nothing; or neither."""
        use = self.fields.get("use", "check")
        return use if use in ("fit", "near-fit") else "check"

    @property
    def source(self) -> str:
        """Title of what it is cited from."""
        source = self.fields.get("source", "")
        return str(source.get("title", "") if is_fields(source) else source)

    @property
    def reproducible(self) -> bool:
        """Whether its source tells model, layout, batch, sequence, GPUs and a result."""
        return bool(self.fields.get("reproducible", False))

    @property
    def system(self) -> Fields:
        """Where it ran."""
        return section(self.fields, "system")

    @property
    def layout(self) -> Fields:
        """Degrees of parallelism and what else the source says beside them."""
        return section(self.fields, "parallelism")

    @property
    def metrics(self) -> Fields:
        """What was measured."""
        return section(self.fields, "metrics")

    @property
    def derived(self) -> Fields:
        """What was computed from the row."""
        return section(self.fields, "derived")

    @property
    def gpu(self) -> str:
        """The GPU's name, in the source's words."""
        return str(self.system.get("gpu", ""))

    @property
    def gpus(self) -> int | None:
        """How many."""
        return count(self.system, "gpus")

    @property
    def model(self) -> str:
        """The model's name, or its sizes where it has none."""
        model = self.fields.get("model")
        if is_fields(model):
            own = model.get("name")
            return str(own or f"{model.get('layers')} layers of {model.get('hidden')}")
        return str(model or "")

    @property
    def precision(self) -> str:
        """Numbers of the products: bf16 (or fp16), fp8, fp4."""
        words = str(self.fields.get("precision", ""))
        if _FP4.search(words):
            return "fp4"
        return "fp8" if _FP8.search(words) else "bf16"

    @property
    def batch(self) -> int | None:
        """Sequences per step."""
        return count(self.fields, "gbs")

    @property
    def sequence(self) -> int | None:
        """Tokens per sequence."""
        return count(self.fields, "seq")

    @property
    def told(self) -> str:
        """Where the row is from and what it ran on, in its source's words."""
        source = self.fields.get("source")
        return f"{source} {self.system}"

    @property
    def words(self) -> str:
        """All that the source says about how it ran, in lower case."""
        says = (
            self.fields.get("precision", ""),
            self.fields.get("notes", ""),
            self.fields.get("workload", ""),
            *self.layout.items(),
        )
        return " ".join(str(word) for word in says).lower()

    @property
    def family(self) -> tuple[str, str, str, str]:
        """Rows that are near copies of each other: source, model, GPU, precision."""
        return self.source, self.model, self.gpu, self.precision


def is_fields(value: object) -> TypeGuard[Fields]:
    """Whether something in a file is a mapping."""
    return isinstance(value, Mapping)


def section(fields: Fields, name: str) -> Fields:
    """A mapping in a row; empty where it has none."""
    found = fields.get(name)
    if found is None:
        return {}
    if not is_fields(found):
        raise Unreadable(f"`{name}` is no mapping")
    return found


def count(fields: Fields, name: str) -> int | None:
    """A positive whole number, or None where there is none."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Unreadable(f"`{name}` is {value!r}, and no count")
    return value


def degree(layout: Fields, name: str) -> int:
    """A degree of parallelism; 1 where there is none, or where the source wrote 0."""
    return 1 if layout.get(name) == 0 else count(layout, name) or 1


def number(fields: Fields, name: str) -> float | None:
    """A positive number; the middle of a range of two; None where there is none."""
    value = fields.get(name)
    if value is None:
        return None
    ends = cast("list[Any]", value if isinstance(value, list) else [value])
    if not ends or any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
        raise Unreadable(f"`{name}` is {value!r}, and no number")
    middle = sum(ends) / len(ends)
    if not 0 < middle < 1e18:
        raise Unreadable(f"`{name}` is {value!r}, and nothing that was measured")
    return middle


MICROBATCH: Final = "microbatch_step_s"
"""Seconds of one micro-batch on each replica, of rows that give no batch."""
SHIPPED: Final = "published"
"""The folder of suites among the scenarios."""
_VTRAIN: Final = {
    "# GPUs": "gpus", "global batch": "gbs", "micro batch": "mbs", "hidden size": "hidden",
    "attention heads": "heads", "# layers": "layers", "sequence length": "seq",
    "tensor parallelism": "tp", "data parallelism": "dp", "pipeline parallelism": "pp",
    "iteration time (ms)": "ms",
}  # fmt: skip
"""Columns of vTrain's tables."""


def read_suite(path: Path | None = None) -> tuple[PublishedRow, ...]:
    """The rows of a file, of a folder's files, or of all that are shipped, which are read once.
    Raises `UsageError` for what is no suite."""
    return _shipped_rows() if path is None else _read(path)


@cache
def _shipped_rows() -> tuple[PublishedRow, ...]:
    return _read(shipped_folder() / SHIPPED)


def _read(place: Path) -> tuple[PublishedRow, ...]:
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix in (".yaml", ".yml", ".csv"))
        found = tuple(row for file in files for row in _rows(file, strict=False))
        if not found:
            raise _no_suite(place, "no file in it has rows", "name a file of rows")
        return found
    if not place.is_file():
        raise _no_suite(place, "there is no such file", "name a file or folder of rows")
    return _rows(place, strict=True)


def _rows(file: Path, strict: bool) -> tuple[PublishedRow, ...]:
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
    return tuple(PublishedRow(one, own) for one in every if is_fields(one))


def _document(file: Path) -> Any:
    try:
        # ruamel leaves the type of its streams open.
        return YAML(typ="safe").load(file)  # pyright: ignore[reportUnknownMemberType]
    except (YAMLError, UnicodeDecodeError) as error:
        first = str(error).split("\n", 1)[0]
        raise _no_suite(file, f"it is no YAML: {first}", "correct it") from None


def _iterations(file: Path, strict: bool) -> tuple[PublishedRow, ...]:
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


def _iteration(stem: str, index: int, cells: Mapping[str, str]) -> PublishedRow:
    numbers: dict[str, Any] = {
        name: _parsed(cells[column]) for column, name in _VTRAIN.items() if name != "ms"
    }
    milliseconds = _parsed(cells["iteration time (ms)"])
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
                  "hidden": hidden, "heads": numbers["heads"], **_vocabulary(numbers)},
        "parallelism": {"tp": numbers["tp"], "pp": numbers["pp"], "dp": numbers["dp"],
                        "recompute": "full", "zero": 0},
        "precision": "FP16 mixed",
        "gbs": numbers["gbs"], "mbs": numbers["mbs"], "seq": numbers["seq"],
        "metrics": {} if milliseconds is None else {"step_s": milliseconds / 1e3},
        "use": "fit" if tuple(cells[column] for column in _VTRAIN) in _fitted() else "check",
    }  # fmt: skip
    return PublishedRow(fields, {})


def _vocabulary(numbers: Fields) -> dict[str, int]:
    """Of one node: what vTrain's model cuts over tensor ranks, GPT-2's without padding and without
    the rest (`vocab_size // world_size`, `src/model/gpt_modeling.py`)."""
    gpus, tensor = numbers["gpus"], numbers["tp"]
    if not isinstance(gpus, int) or not isinstance(tensor, int) or gpus > 8 or tensor < 1:
        return {}
    return {"vocab": _GPT2 // tensor * tensor}


_GPT2: Final = 50_257
"""Tokens of GPT-2."""


def _parsed(text: str) -> Any:
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
