"""The shipped rows: every one once, readable, and with an answer or a reason."""

from __future__ import annotations

from collections import Counter

import pytest

from twin.evidence.validate.answer import not_predicted
from twin.evidence.validate.suite import SHIPPED, read_suite
from twin.evidence.validate.validate import ANSWERS, answer
from twin.loading.files import shipped_folder

FOLDER = shipped_folder() / SHIPPED
QUICK = ("kernel", "kernel_trace", "weight_update", "optimizer", *not_predicted()["categories"])
"""Categories that are answered in a second or two."""


def test_every_row_is_shipped_once() -> None:
    counted = Counter(row.id for row in read_suite())
    assert [name for name, times in counted.items() if times > 1] == []


def test_the_folder_is_the_sum_of_its_suites() -> None:
    tables = [file for file in FOLDER.glob("vtrain-*.csv") if "fit" in file.name]
    suites = [file for file in FOLDER.glob("*.yaml") if file.name != "misses.yaml"]
    files = [*suites, *FOLDER.glob("vtrain-*.csv")]
    assert sum(len(read_suite(file)) for file in files) == len(read_suite())
    assert sum(len(read_suite(file)) for file in tables) == 40


def test_no_iteration_of_vtrain_judges_that_was_fitted() -> None:
    shipped = {kind: FOLDER / f"vtrain-{kind}-single-node.csv" for kind in ("fit", "check")}
    lines = {kind: set(file.read_text().splitlines()[1:]) for kind, file in shipped.items()}
    assert len(lines["fit"]) == 20
    assert not lines["fit"] & lines["check"]


def test_every_row_cites_its_source() -> None:
    assert [row.id for row in read_suite() if not row.source] == []


def test_every_category_is_asked_or_refused() -> None:
    assert {row.category for row in read_suite()} <= set(ANSWERS)


@pytest.mark.parametrize("category", QUICK)
def test_every_row_is_predicted_or_says_why_not(category: str) -> None:
    for row in [row for row in read_suite() if row.category == category]:
        for one in answer(row):
            assert one.id.startswith(row.id)
            if one.status == "predicted":
                assert one.predicted is not None
                assert one.predicted > 0
            else:
                assert one.reason, one.id
