"""Causes of misses: each family of check rows that is missed by more than 15 % has one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final, cast

import pytest

from tests.evidence.validate.made import answer
from twin.evidence.validate import score
from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.shipped_answers import shipped
from twin.evidence.validate.suite import SHIPPED, read_suite
from twin.loading.files import read_data, shipped_folder

MOST: Final = 0.15
"""Median error of a family from which on its cause is asked for."""
APART: Final = ("kernel", "kernel_trace", "collective", "optimizer")
"""Categories whose errors have pages of their own (docs/kernels.md, docs/collectives.md)."""
FILE: Final = shipped_folder() / SHIPPED / "misses.yaml"


@cache
def ids() -> tuple[str, ...]:
    return tuple(row.id for row in read_suite())


def entries() -> list[Mapping[str, Any]]:
    said = cast("dict[str, list[Mapping[str, Any]]]", read_data(FILE))
    return said["misses"]


def missed(answers: Iterable[RowResult]) -> Iterator[RowResult]:
    """Rows beyond the limit, of families beyond the limit."""
    own = [one for one in score.judged(answers) if one.category not in APART]
    for group in score.grouped(own, score.family):
        if group.errors.median > MOST:
            yield from (one for one in group.answers if abs(one.error or 0.0) > MOST)


def unexplained(answers: Iterable[RowResult], patterns: Iterable[str]) -> list[str]:
    known = tuple(patterns)
    return [
        f"{one.id} ({one.metric}, {100 * (one.error or 0.0):+.0f} %)"
        for one in missed(answers)
        if not any(fnmatchcase(one.id.partition("[")[0], pattern) for pattern in known)
    ]


def test_a_family_beyond_the_limit_is_missed_and_one_within_is_not() -> None:
    rows = (
        answer("far", -0.2),
        answer("farther", 0.4),
        answer("near", 0.1, model="other"),
        answer("seen", 0.9, model="third", use="fit"),
        answer("kernel", 0.9, model="fourth", category="kernel"),
    )
    assert [one.id for one in missed(rows)] == ["far", "farther"]
    assert unexplained(rows, ["far"]) == ["farther (step_seconds, +40 %)"]
    assert unexplained(rows, ["far*"]) == []


def test_each_family_of_check_rows_beyond_15_percent_has_its_cause() -> None:
    found = shipped()
    assert found is not None
    patterns = [pattern for entry in entries() for pattern in entry["rows"]]
    assert unexplained(found.summary.answers, patterns) == []


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry["family"][:40])
def test_an_entry_says_cause_evidence_and_what_would_tell(entry: Mapping[str, Any]) -> None:
    assert entry["cause"].strip()
    assert entry["measurement_that_would_tell"].strip()
    assert all(one["url"].startswith("https://") for one in entry["evidence"])
    for pattern in entry["rows"]:
        assert any(fnmatchcase(name, pattern) for name in ids()), pattern
