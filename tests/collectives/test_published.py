"""The twin's collectives against every published row, and what docs/collectives.md says of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import median

import pytest

from tests.collectives import rows
from twin.evidence.validate.answer import not_predicted
from twin.evidence.validate.exchanges import EFA, MeasuredTransfer
from twin.evidence.validate.suite import read_suite

OUTSIDE = {
    name: reason for reason, names in not_predicted()["collectives"].items() for name in names
}
"""Rows that are not priced, and why."""
PAGE = Path(__file__).parents[2] / "docs" / "collectives.md"


@cache
def points() -> tuple[tuple[str, MeasuredTransfer], ...]:
    return tuple(rows.points())


def within(family: str) -> list[float]:
    return [abs(point.error) for _, point in points() if point.family == family]


def test_every_collective_row_is_priced_or_refused_with_a_reason() -> None:
    known = {row for row, _ in points()}
    listed = {row.id for row in read_suite() if row.category == "collective"}
    assert len(listed) == 119
    assert known | set(OUTSIDE) == listed
    assert not known & set(OUTSIDE)


def test_the_median_error_over_all_rows_is_under_a_tenth() -> None:
    errors = [abs(point.error) for _, point in points() if point.family != EFA]
    assert len(errors) > 300
    assert median(errors) < 0.10


@pytest.mark.parametrize(
    ("family", "middle", "most"),
    [
        ("NCCL in a node, H100", 0.10, 0.25),
        ("NCCL in a node, A100", 0.10, 0.30),
        ("NCCL in a node, best of a sweep", 0.10, 0.30),
        ("NCCL in a node, small payloads", 0.11, 0.50),
        ("DeepEP on H800", 0.05, 0.14),
        ("Low latency (plain copies), H800", 0.08, 0.20),
        ("DeepEP V2, H100 and B200", 0.05, 0.11),
        ("DeepEP on H100", 0.15, 0.55),
        ("pplx-garden and its DeepEP, H100", 0.10, 0.55),
        (f"NCCL over {EFA}", 0.06, 0.20),
        ("Host copies, PCIe Gen5", 0.02, 0.02),
        ("A hop between NICs", 0.01, 0.01),
    ],
)
def test_each_family_is_met(family: str, middle: float, most: float) -> None:
    errors = within(family)
    assert median(errors) < middle
    assert max(errors) < most


def test_from_two_thousand_tokens_on_deepep_on_h100_is_met_better() -> None:
    """Small batches pay a start of their own; two nodes' combine does not reach its links."""
    errors: list[float] = []
    for row, point in points():
        if point.family == "DeepEP on H100":
            stage, tokens, _ = point.what.split()
            slow = "ep16" in row and stage == "combine"
            if int(tokens.replace(",", "")) >= 2048 and not slow:
                errors.append(abs(point.error))
    assert median(errors) < 0.09
    assert max(errors) < 0.25


def test_the_page_shows_the_tables_as_they_come_out() -> None:
    page = PAGE.read_text()
    assert rows.copies() in page, rows.copies()
    assert rows.table() in page, rows.table()
    reasons = {f"| `{name}` | {reason} |" for name, reason in OUTSIDE.items()}
    assert not {one for one in reasons if one not in page}
