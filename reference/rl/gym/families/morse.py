"""Letters to Morse code and back (ITU-R M.1677-1, section 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reference.agentic.chance import drawn
from reference.rl.gym.environments import Check, asked
from reference.rl.gym.family import Family, Item

_MARKS: Final = (
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- "
    "-..- -.-- --.. ----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----."
)
CODE: Final[Mapping[str, str]] = dict(
    zip("abcdefghijklmnopqrstuvwxyz0123456789", _MARKS.split(), strict=True)
)
_LETTERS: Final = ("etianm", *["abcdefghijklmnopqrstuvwxyz"] * 3, "".join(CODE))
"""By level."""
_LENGTH: Final = (1, 1, 1, 3, 6)


def _make(level: int, seed: int) -> Item:
    draw = drawn("morse", level, seed)
    letters = _LETTERS[level - 1]
    word = "".join(draw.choices(letters, k=_LENGTH[level - 1]))
    code = " ".join(CODE[one] for one in word)
    back = level == 3 or (level > 3 and draw.random() < 0.5)
    if back:
        hacks = {"all letters": letters, "the code again": code, "another": word + "e"}
        return asked(f"letters: {code}", _same(word), word, ("decode",), hacks)
    all_codes = " ".join(CODE[one] for one in letters)
    hacks = {"all codes": all_codes, "the word again": word, "marks run on": "...---...---..."}
    return asked(f"morse: {word}", _same(code), code, ("encode",), hacks)


def _same(right: str) -> Check:
    wanted = right.split()
    return lambda text: {"right": text.lower().split() == wanted}


FAMILY = Family(
    "morse",
    "Morse code, both ways",
    (
        "the code of one of six letters",
        "the code of a letter",
        "the letter of a code",
        "words of three letters, both ways",
        "six letters or digits, both ways",
    ),
    _make,
)
