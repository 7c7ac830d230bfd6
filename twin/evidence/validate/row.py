"""A published row: what ran, where, and what was measured, as its source has it.

Rows come from files of two formats (`twin.evidence.validate.suite`); whichever it was, a row is the
mapping of `scenarios/published/README.md`. Nothing is interpreted here but types: a value of the
wrong kind raises `Unreadable`, which names it, and only its own row is lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeGuard, cast

Use = Literal["fit", "near-fit", "check"]
Fields = Mapping[str, Any]
_FP8: Final = re.compile(r"FP8", re.IGNORECASE)
_FP4: Final = re.compile(r"FP4", re.IGNORECASE)


class Unreadable(ValueError):  # noqa: N818  a row that cannot be read, not an error of the program
    """What a row has in a place where it cannot be read."""


@dataclass(frozen=True, slots=True)
class Row:
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
