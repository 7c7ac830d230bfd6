"""Letters to Morse code and back (ITU-R M.1677-1, section 1)."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase, digits
from typing import Final

from reference.agentic.chance import drawn
from reference.rl.gym.environments import Check, Item, question_item, texts

_MARKS: Final = texts("morse")["marks"].split()
CODE: Final[Mapping[str, str]] = dict(zip(ascii_lowercase + digits, _MARKS, strict=True))
_LETTERS: Final = ("etianm", *[ascii_lowercase] * 3, "".join(CODE))
"""By level."""
_LENGTH: Final = (1, 1, 1, 3, 6)


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    draw = drawn("morse", level, seed)
    letters = _LETTERS[level - 1]
    word = "".join(draw.choices(letters, k=_LENGTH[level - 1]))
    code = " ".join(CODE[letter] for letter in word)
    back = level == 3 or (level > 3 and draw.random() < 0.5)
    if back:
        hacks = {"all letters": letters, "the code again": code, "another": word + "e"}
        return question_item(f"letters: {code}", _same(word), word, ("decode",), hacks)
    all_codes = " ".join(CODE[letter] for letter in letters)
    hacks = {"all codes": all_codes, "the word again": word, "marks run on": "...---...---..."}
    return question_item(f"morse: {word}", _same(code), code, ("encode",), hacks)


def _same(right: str) -> Check:
    wanted = right.split()
    return lambda text: {"right": text.lower().split() == wanted}
