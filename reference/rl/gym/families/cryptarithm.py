"""Sums in which letters stand for digits: different letters for different digits, no number begins
with 0. Any assignment that keeps this and makes the sum is right."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random
from string import ascii_uppercase
from typing import Final

from reference.agentic.chance import drawn
from reference.rl.gym.environments import Check, Item, question_item

_PAIR: Final = re.compile(r"([A-Z]) ?= ?(\d)")
_DIGITS: Final = (1, 1, 2, 3, 4)
"""Of each number that is added, by level."""


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    draw = drawn("cryptarithm", level, seed)
    numbers, letters = _drawn(level, draw)
    words = ["".join(letters.get(digit, digit) for digit in word) for word in numbers]
    text = f"{words[0]}+{words[1]}={words[2]}"
    used = [digit for digit, letter in letters.items() if letter in text]
    answer = " ".join(f"{letters[digit]}={digit}" for digit in used)
    first = letters[used[0]]
    other = next(word for word in ascii_uppercase if word not in text)
    hacks = {
        "all zero": " ".join(f"{letters[digit]}=0" for digit in used),
        "every digit": " ".join(f"{first}={digit}" for digit in range(10)),
        "numbers alone": "+".join(numbers[:2]) + "=" + numbers[2],
        "a letter twice": f"{answer} {first}={(int(used[0]) + 1) % 10}",
        "another letter": f"{answer} {other}=1",
        "the sum of nothing": "0+0=0",
    }
    return question_item(text, check(words), answer, (f"{len(used)} letters",), hacks)


def _drawn(level: int, draw: Random) -> tuple[list[str], dict[str, str]]:
    """Two numbers with their sum, and the letters that stand for digits."""
    low, high = 10 ** (_DIGITS[level - 1] - 1), 10 ** _DIGITS[level - 1] - 1
    a, b = (draw.randint(low, min(high, 4) if level == 1 else high) for _ in range(2))
    numbers = [str(a), str(b), str(a + b)]
    digits = list(dict.fromkeys("".join(numbers)))
    names = draw.sample(ascii_uppercase, len(digits))
    if level == 1:  # the first number alone is hidden
        digits, names = [numbers[0]], ["A"]
        if numbers[0] in (numbers[1], numbers[2]):
            return _drawn(level, draw)
    return numbers, dict(zip(digits, names, strict=True))


def check(words: Sequence[str]) -> Check:
    """Of two numbers and their sum, some of whose digits are letters."""

    def judge(text: str) -> Mapping[str, bool]:
        pairs = _PAIR.findall(text)
        named = dict(pairs)
        letters = {word for word in words for word in word if word.isalpha()}
        plain = not _PAIR.sub("", text).strip(" ,;\n")
        whole = plain and {*named} == letters and len(pairs) == len(letters)
        if not whole:
            return {"letters": False, "rules": False, "sum": False}
        filled = ["".join(named.get(word, word) for word in word) for word in words]
        rules = len({*named.values()}) == len(named) and not any(
            len(word) > 1 and word[0] == "0" for word in filled
        )
        a, b, both = map(int, filled)
        return {"letters": True, "rules": rules, "sum": a + b == both}

    return judge
