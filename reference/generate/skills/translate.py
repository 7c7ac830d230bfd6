"""Translate sums told in German, French or Chinese into English: a toy of fixed phrases.

The phrases are those that `reference.data.toy` writes its foreign sums of. Numbers and names go
through as they stand, goods by a list; any other text is refused (TW475), since rules know no
language. OURS: all of it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from reference.generate.skill import Answer, Skill
from reference.generate.skills.rephrase import passage_of
from twin.errors import Problem, UsageError

ENGLISH: Final = (
    "{name} has {have} boxes of {goods} and buys {more} more boxes.",
    "First we compute the sum: {have} + {more} = {sum} boxes.",
    "Each box holds {times} pieces of {goods}, none of them broken.",
    "Then we multiply: {sum} x {times} = {all} pieces.",
    "Therefore {name} has {all} pieces of {goods}.",
)
"""A sum in five sentences."""
FOREIGN: Final[dict[str, tuple[str, ...]]] = {
    "de": (
        "{name} hat {have} Kisten mit {goods} und kauft {more} weitere Kisten.",
        "Zuerst berechnen wir die Summe: {have} + {more} = {sum} Kisten.",
        "In jeder Kiste liegen {times} Stück {goods}, keines davon zerbrochen.",
        "Dann multiplizieren wir: {sum} x {times} = {all} Stück.",
        "Also hat {name} {all} Stück {goods}.",
    ),
    "fr": (
        "{name} a {have} caisses de {goods} et achète {more} caisses de plus.",
        "D'abord nous calculons la somme : {have} + {more} = {sum} caisses.",
        "Chaque caisse contient {times} pièces de {goods}, dont aucune n'est cassée.",
        "Ensuite nous multiplions : {sum} x {times} = {all} pièces.",
        "Donc {name} a {all} pièces de {goods}.",
    ),
    "zh": (
        "{name}有{have}箱{goods}，又买了{more}箱。",
        "首先我们求和：{have} + {more} = {sum}箱。",
        "每箱装有{times}件{goods}，没有一件是坏的。",
        "然后我们相乘：{sum} x {times} = {all}件。",
        "因此{name}有{all}件{goods}。",
    ),
}
"""The same five sentences by language."""
GOODS: Final[dict[str, dict[str, str]]] = {
    "de": {"glass": "Glas", "paper": "Papier", "tea": "Tee", "lace": "Spitze", "cheese": "Käse"},
    "fr": {
        "glass": "verre",
        "paper": "papier",
        "tea": "thé",
        "lace": "dentelle",
        "cheese": "fromage",
    },
    "zh": {"glass": "玻璃", "paper": "纸张", "tea": "茶", "lace": "花边", "cheese": "奶酪"},
}
"""English goods and their names by language."""
_SLOT: Final = re.compile(r"\\\{(\w+)\\\}")
_SPACE: Final = re.compile(r"\s+")


@cache
def _phrases() -> tuple[tuple[re.Pattern[str], str, dict[str, str]], ...]:
    """What a sentence is matched by, its English, and the goods of its language."""
    found: list[tuple[re.Pattern[str], str, dict[str, str]]] = []
    for language, phrases in FOREIGN.items():
        goods = {word: english for english, word in GOODS[language].items()}
        for phrase, english in zip(phrases, ENGLISH, strict=True):
            found.append((_pattern(phrase, "|".join(goods)), english, goods))
    return tuple(found)


def _pattern(phrase: str, goods: str) -> re.Pattern[str]:
    seen: set[str] = set()

    def slot(match: re.Match[str]) -> str:
        name = match[1]
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        kinds = {"name": r"[A-Z]\w*?", "goods": goods}
        return f"(?P<{name}>{kinds.get(name, r'[0-9]+')})"

    return re.compile(_SLOT.sub(slot, re.escape(phrase)) + r"\s*")


def translate(text: str) -> str:
    """The English of a text of these phrases. Raises UsageError (TW475) for any other."""
    said: list[str] = []
    left = _SPACE.sub(" ", text).strip()
    while left:
        for pattern, english, goods in _phrases():
            found = pattern.match(left)
            if found:
                slots = found.groupdict()
                slots |= {"goods": goods[slots["goods"]]} if "goods" in slots else {}
                said.append(english.format(**slots))
                left = left[found.end() :]
                break
        else:
            wrong = f"the rules cannot translate `{left[:40]}`: it is none of their fixed phrases"
            hint = "choose a generator with a language model, or leave this rephrasing out"
            raise UsageError([Problem("TW475", "rephrase.style", wrong, hint)])
    return " ".join(said)


SKILL = Skill(
    "translate",
    f"The user's last turn in English, where it is a toy sum in {', '.join(FOREIGN)}.",
    lambda task: Answer(translate(passage_of(task))),
)
