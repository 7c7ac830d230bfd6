"""The nearest valid word to a wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LISTED = 12
"""A hint that lists more words than this is no help."""
_CLOSE = 0.7
"""Similarity (difflib) from which a word is taken for a slip: at 0.6 `mha` would become `mla`."""


def nearest(word: str, options: Iterable[str]) -> str | None:
    """The option that a mistyped or shortened word most likely means."""
    names = {option.lower().replace("-", "_"): option for option in options}
    loose = word.lower().replace("-", "_")
    close = get_close_matches(loose, names, n=1, cutoff=_CLOSE)
    holding = [name for name in names if loose in name] if len(loose) > 2 else []
    found = close or holding
    return names[found[0]] if found else None


def hint(word: str, options: Iterable[str], listing: str = "write one of") -> str:
    """`did you mean` the nearest option, or else what there is to choose from."""
    choices = list(options)
    near = nearest(word, choices)
    if near is not None:
        return f"did you mean `{near}`?"
    shown = ", ".join(choices[:_LISTED]) + (", ..." if len(choices) > _LISTED else "")
    return f"{listing}: {shown}" if choices else ""
