"""The number of an answer is the target's, within `tolerance` (absolute, 0 if absent).

Of several numbers the one behind the last `answer is` or `####` counts, else the first of a
continuation's first line, else the last one of the text.
"""

from __future__ import annotations

import re
from decimal import Decimal

from reference.evaluate.scorers.scorer import Judging, Row, Scorer

_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+]?\.\d+")
_SAID = re.compile(r"answer is|####", re.IGNORECASE)


def number_of(text: str) -> Decimal | None:
    """The number that a text answers."""
    parts = _SAID.split(text)
    if len(parts) > 1:
        found = _NUMBER.findall(parts[-1])[:1]
    else:
        first = next((line for line in text.splitlines() if line.strip()), "")
        found = _NUMBER.findall(first)[:1] or _NUMBER.findall(text)[-1:]
    return Decimal(found[0].replace(",", "")) if found else None


def _right(row: Row, text: str) -> bool:
    found = number_of(text)
    if found is None:
        return False
    return abs(found - Decimal(str(row["target"]))) <= Decimal(str(row.get("tolerance", 0)))


def _judge(judging: Judging) -> list[float]:
    pairs = zip(judging.rows, judging.texts, strict=True)
    return [float(_right(row, text)) for row, text in pairs]


def _answer(text: str) -> str | None:
    found = number_of(text)
    return None if found is None else f"{found.normalize():f}"


SCORER = Scorer("its number is the target", ("target",), _judge, _answer)
