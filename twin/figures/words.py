"""Words as titles and labels have them."""

from __future__ import annotations


def capital(words: str) -> str:
    """The words with a capital at their beginning."""
    return words[:1].upper() + words[1:]
