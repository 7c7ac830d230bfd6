"""The README's section on how right the twin is, from the answers that ship: `make answers`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from twin.evidence.validate import shipped_answers
from twin.evidence.validate.summary import COLUMNS, Summary, lines, sentence

README = Path(__file__).parents[3] / "README.md"
MARK = "<!-- twin validate --shipped -->"
"""Stands above the sentence and above the table; pages that run hold both to what it prints."""
SECTION = re.compile(rf"{MARK}\n\n[^|<]*\n\n{MARK}\n\n(?:\|.*\n)+")


def section(summary: Summary) -> str:
    """The sentence and the table as the README has them."""
    head = (f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}")
    rows = (f"| {' | '.join(one.cells())} |" for one in lines(summary))
    return "\n".join((MARK, "", sentence(summary), "", MARK, "", *head, *rows, ""))


def main() -> None:
    """Write the section anew."""
    shipped = shipped_answers.shipped()
    assert shipped is not None, "no answers ship"
    text, times = SECTION.subn(lambda _: section(shipped.summary), README.read_text())
    assert times == 1, f"{README.name} has {MARK} not twice"
    README.write_text(text)
    sys.stdout.write(f"Written: {README}\n")


if __name__ == "__main__":
    main()
