"""Translate sums told in German, French or Chinese into English: a toy of fixed phrases.

The phrases are those that `reference.text.toy` writes its foreign sums of. Numbers and names go
through as they stand, goods by a list; any other text is refused (TW475), since rules know no
language. OURS: all of it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from reference.generate.rules import Skill, SkillAnswer
from reference.generate.skills.rephrase import passage_of
from reference.text.toy import ENGLISH, FOREIGN, GOODS
from twin.errors import Problem, UsageError

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


SKILLS = (
    Skill(
        "translate",
        f"The user's last turn in English, where it is a toy sum in {', '.join(FOREIGN)}.",
        lambda task: SkillAnswer(translate(passage_of(task))),
    ),
)
