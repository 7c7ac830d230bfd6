"""Rows for these tests: shipped ones by name, and made ones."""

from __future__ import annotations

from functools import cache
from typing import Any

from twin.evidence.validate.suite import PublishedRow, read_suite


@cache
def _all() -> dict[str, PublishedRow]:
    return {row.id: row for row in read_suite()}


def shipped(name: str) -> PublishedRow:
    return _all()[name]


def row(
    metrics: dict[str, Any], *, gpu: str, category: str = "kernel", **fields: Any
) -> PublishedRow:
    """A row with these metrics, on one GPU unless `gpus` says more."""
    system = {"gpu": gpu, "gpus": fields.pop("gpus", 1), "network": fields.pop("network", "")}
    made = {"id": "made", "category": category, "system": system, "metrics": metrics, **fields}
    return PublishedRow(made, {})
