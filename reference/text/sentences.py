"""Sentences and pieces of a text, none of it lost.

A piece is as many sentences as fit (Kimi K2's figure 4: about 256 tokens; here words between white
space, since the tokenizer is trained later). A sentence longer than a piece is cut between words.
"""

from __future__ import annotations

import re
from typing import Final

_BORDER: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9\-])|\n+|(?<=[。！？])\s*")
_WORD: Final = re.compile(r"[\u4e00-\u9fff]\s*|[^\s\u4e00-\u9fff]+\s*")
"""Between white space; a Chinese character counts as a word."""
_ABBREVIATION: Final = re.compile(r"(?:\b[A-Z]|\b(?:Mr|Mrs|Dr|Prof|St|No|vs|e\.g|i\.e))\.$")


def sentences(text: str) -> list[str]:
    """The sentences, white space around them left out. A border is the end of a line, and `.`, `!`
    or `?` before white space and a capital, a digit or a dash, but behind an initial or a title;
    and their Chinese forms anywhere."""
    found: list[str] = []
    start = 0
    for border in _BORDER.finditer(text):
        part = text[start : border.start()]
        if "\n" not in border[0] and _ABBREVIATION.search(part):
            continue
        found.append(text[start : border.end()])
        start = border.end()
    return [one.strip() for one in [*found, text[start:]] if one.strip()]


def cut(text: str, words: int) -> list[tuple[int, int]]:
    """Begin and end of each piece in characters; they follow each other and cover the text."""
    borders = [found.end() for found in _BORDER.finditer(text)]
    spaces = [found.end() for found in _WORD.finditer(text)]
    ends: list[int] = []
    begin = 0
    while begin < len(text):
        inside = [end for end in spaces if end > begin]
        if len(inside) <= words:
            ends.append(len(text))
            break
        limit = inside[words - 1]
        end = max((one for one in borders if begin < one <= limit), default=limit)
        ends.append(end)
        begin = end
    return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []
