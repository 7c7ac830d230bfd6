"""Ten step times of a GPU whose profile is withheld say most of what its profile would."""

from __future__ import annotations

import pytest

from twin.evidence.calibrate.withheld import ROWS, draw, sources


def test_no_row_that_judges_can_be_drawn_and_no_base_is_of_the_same_gpu() -> None:
    for source in sources():
        assert sum(row.use == "fit" for row in source.rows) >= ROWS
        gpu = source.rows[0].scenario.cluster.node.gpu.name
        assert gpu[0] != source.base[0].upper()


@pytest.mark.slow
def test_rows_left_out_are_missed_by_a_tenth_of_what_the_base_missed() -> None:
    """docs/reports/2026-11-20-calibration.md, draw 0."""
    source, _ = sources()
    found = draw(source, 0)
    before, after = found.errors("before", "fit"), found.errors("left_out", "fit")
    assert before is not None
    assert after is not None
    assert (before.rows, after.rows) == (ROWS, ROWS)
    assert before.mean == pytest.approx(0.408, abs=0.002)
    assert after.mean == pytest.approx(0.035, abs=0.002)
