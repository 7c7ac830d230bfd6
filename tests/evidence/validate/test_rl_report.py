"""Lines that the report of published iterations takes from the twin, between its own words."""

from __future__ import annotations

import pytest

from twin.evidence.validate.rl_report import into

REPORT = """# Iterations

<!-- came of it -->
<!-- came of it -->

In words.

<!-- worth -->

| old | 1 |

<!-- worth -->
"""


def test_lines_stand_between_their_marks_and_words_stay() -> None:
    found = into(REPORT, {"came of it": ["1 of 2 rows", "", "| a |"], "worth": ["| new | 2 |"]})
    assert (
        found
        == """# Iterations

<!-- came of it -->

1 of 2 rows

| a |

<!-- came of it -->

In words.

<!-- worth -->

| new | 2 |

<!-- worth -->
"""
    )
    assert into(found, {"worth": ["| new | 2 |"]}) == found


def test_a_report_without_marks_is_refused_as_it_is() -> None:
    with pytest.raises(ValueError, match="<!-- worth --> 0 times, not twice"):
        into("# Iterations", {"worth": ["| new | 2 |"]})
