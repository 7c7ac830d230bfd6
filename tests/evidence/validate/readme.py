"""What pages say of how right the twin is, from the answers that ship: `make answers`.

README.md has a sentence and the table of kinds of rows, docs/validation.md the table of limits.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from twin.evidence.validate import shipped_answers
from twin.evidence.validate.report import LIMIT_COLUMNS, limit_rows
from twin.evidence.validate.summary import COLUMNS, Summary, lines, sentence

README = Path(__file__).parents[3] / "README.md"
VALIDATION = README.parent / "docs/validation.md"
MARK = "<!-- twin validate --shipped -->"
"""Stands above each part; pages that run hold them to what it prints."""
SECTION = re.compile(rf"{MARK}\n\n[^|<]*\n\n{MARK}\n\n(?:\|.*\n)+")
LIMITS = re.compile(rf"{MARK}\n\n(?:\|.*\n)+")


def section(summary: Summary) -> str:
    """The sentence and the table as the README has them."""
    rows = (one.cells() for one in lines(summary))
    return "\n".join((MARK, "", sentence(summary), "", MARK, "", *_table(COLUMNS, rows)))


def limits(summary: Summary) -> str:
    """The table of limits as docs/validation.md has it, without those of the baselines."""
    rows = [row for row in limit_rows(summary) if "error over that of" not in row[0]]
    return "\n".join((MARK, "", *_table(LIMIT_COLUMNS, rows)))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = (f"| {' | '.join(row)} |" for row in rows)
    return [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *body, ""]


def main() -> None:
    """Write both anew."""
    shipped = shipped_answers.shipped()
    assert shipped is not None, "no answers ship"
    for page, pattern, made in (
        (README, SECTION, section(shipped.summary)),
        (VALIDATION, LIMITS, limits(shipped.summary)),
    ):
        text, times = pattern.subn(lambda _, made=made: made, page.read_text())
        assert times == 1, f"{page.name} has {MARK} in {times} such places"
        page.write_text(text)
        sys.stdout.write(f"Written: {page}\n")


if __name__ == "__main__":
    main()
