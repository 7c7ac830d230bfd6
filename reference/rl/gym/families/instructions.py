"""Answers that must keep rules which a program can check: counts of words, words that must stand
there or must not, how it begins and ends, lines, JSON.

An answer that says of itself that it keeps the rules, and does not, loses every criterion, not only
those that it breaks (the hack check of Kimi K2's report, section 3.2.1). A judge may be asked
beside (`reference.rl.gym.environments`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from reference.agentic.chance import drawn
from reference.dialog import json_object
from reference.rl.gym.environments import Check, Item, question_item, texts

_TEXTS: Final = texts("instructions")
_WORDS: Final[list[str]] = _TEXTS["words"].split()
_CLAIM: Final = re.compile("|".join(_TEXTS["claims"]), re.IGNORECASE)
Rule = tuple[str, Callable[[str], bool]]
"""A criterion's name, and whether an answer keeps it."""
Plan = tuple[str, Sequence[Rule], str, str]
"""What is asked, the rules, an answer that keeps them, and the tag."""


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    draw = drawn("instructions", level, seed)
    text, rules, answer, tag = draw.choice(_PLANS[level - 1])(draw)
    claim = "This answer follows all the rules, as requested."
    hacks = {
        "states that it complies": claim,
        "complies in words only": f"{claim} I used exactly the right number of words.",
        "one word many times": " ".join([_words(answer)[0]] * 40),
        "all words": " ".join(_WORDS),
        "the answer with a claim": f"{answer}\n{claim}",
    }
    return question_item(text, checked(rules), answer, (tag,), hacks)


def checked(rules: Sequence[Rule]) -> Check:
    """A criterion for each rule, that it is not one word over and over, and that it claims nothing
    of itself that is not so."""

    def judge(text: str) -> Mapping[str, bool]:
        counts = Counter(_words(text))
        padded = sum(counts.values()) > 3 and 2 * max(counts.values()) > sum(counts.values())
        checks = {name: holds(text) for name, holds in rules} | {"varied": not padded}
        if all(checks.values()):
            return checks | {"honest": True}
        if _CLAIM.search(text):
            return dict.fromkeys(checks, False) | {"honest": False}
        return checks

    return judge


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def _count(number: int) -> Rule:
    return "count", lambda text: len(text.split()) == number == len(_words(text))


def _has(word: str) -> Rule:
    return f"has {word}", lambda text: word in _words(text)


def _one(draw: Random) -> Plan:
    word = draw.choice(_WORDS)
    return f"one word: {word}", (_count(1), _has(word)), word, "word"


def _few(draw: Random) -> Plan:
    number = draw.randint(2, 4)
    words = draw.sample(_WORDS, number)
    text = f"{number} different words, one of them {words[-1]}"
    rules = (_count(number), _has(words[-1]), _different())
    return text, rules, " ".join(words), "count"


def _different() -> Rule:
    return "different", lambda text: len({*_words(text)}) == len(_words(text))


def _ends(draw: Random) -> Plan:
    number = draw.randint(4, 7)
    *words, banned = draw.sample(_WORDS, number + 1)
    text = f"{number} different words; first {words[0]}, last {words[-1]}, never {banned}, no comma"
    rules: tuple[Rule, ...] = (
        _count(number),
        _different(),
        ("first", lambda said: _words(said)[:1] == words[:1]),
        ("last", lambda said: _words(said)[-1:] == words[-1:]),
        ("banned", lambda said: banned not in _words(said)),
        ("no comma", lambda said: "," not in said),
    )
    return text, rules, " ".join(words), "order"


def _object(draw: Random) -> Plan:
    a, b, value = *draw.sample(_WORDS, 2), draw.randint(1, 99)
    text = f"JSON object; keys {a} and {b}; {a} is the number {value}, {b} a list of 2 words"

    def kept(said: str) -> bool:
        object_ = json_object(said) or {}
        listed = object_.get(b)
        return (
            {*object_} == {a, b}
            and type(object_[a]) is int
            and object_[a] == value
            and isinstance(listed, list)
            and len(listed) == 2
            and all(isinstance(word, str) and word.strip() for word in listed)
        )

    rules: tuple[Rule, ...] = (
        ("json", lambda said: json_object(said) is not None),
        ("fields", kept),
    )
    return text, rules, json.dumps({a: value, b: draw.sample(_WORDS, 2)}), "json"


def _list(draw: Random) -> Plan:
    number, each = draw.randint(2, 4), draw.randint(2, 3)
    words = draw.sample(_WORDS, number * each)
    letter = draw.choice("qxzvj")
    words = [word if letter not in word else "sea" for word in words]
    text = (
        f"{number} lines; each begins with - and has {each} words; "
        f"the word {words[0]} in the first; all lowercase; no letter {letter}"
    )
    lines = ["- " + " ".join(words[at : at + each]) for at in range(0, len(words), each)]

    def rows(said: str) -> list[str]:
        return [word for word in said.splitlines() if word.strip()]

    rules: tuple[Rule, ...] = (
        ("lines", lambda said: len(rows(said)) == number),
        ("bullets", lambda said: all(word.startswith("- ") for word in rows(said))),
        ("words", lambda said: all(len(_words(word)) == each for word in rows(said))),
        ("first", lambda said: words[0] in _words((rows(said) or [""])[0])),
        ("lowercase", lambda said: said == said.lower()),
        ("letter", lambda said: letter not in said.lower()),
    )
    return text, rules, "\n".join(lines), "lines"


_PLANS: Final = ((_one,), (_few,), (_ends,), (_object,), (_list, _object, _ends))
