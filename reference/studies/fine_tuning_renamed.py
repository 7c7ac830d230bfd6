"""Dialogues with other words: each application's own words, consistently, by words drawn by chance.

A model that is fine-tuned on some hundred tools learns their names by heart, and says those of
others wrong. Where every dialogue has words of its own, nothing but copying helps, and everything
else of the dialogue stays as it was: its turns, its schemas, its endings. (Lin et al. 2024, arXiv:
2410.04587, mask the names of functions to the same end.)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from reference.studies.fine_tuning_text import Words

_SHARED: Final = 6
"""A word in the tools of so many applications belongs to the language, and stays."""
_FORM: Final = (
    "type function name description parameters properties required enum string number integer",
    "boolean object array items minimum maximum true false null role content user assistant system",
    "tool calls answers id arguments total matches error known unknown missing",
    "is not has the of a an to by with in on at",
)
"""Words of dialogues and schemas themselves."""
_RESERVED: Final = frozenset(word for line in _FORM for word in line.split())
_WORD: Final = re.compile(r"[A-Za-z]+")
_CODE: Final = re.compile(r"\b([A-Z][A-Z0-9]{1,2})-(\d{3,4})\b")
_FIELD: Final = re.compile(r'"(\w+)":')
_LETTER: Final = re.compile("[A-Z]")
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TEXT: Final = ("messages", "tools")


def common_words(rows: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Words of tools that belong to no application in particular."""
    by_application: dict[str, set[str]] = {}
    for row in rows:
        own = by_application.setdefault(row["provenance"]["application"], set())
        own.update(_own_words(row))
    counts = Counter(word for own in by_application.values() for word in own)
    return frozenset(word for word, count in counts.items() if count >= _SHARED)


def renamed(
    rows: Sequence[Mapping[str, Any]], words: Sequence[str], copies: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Each dialogue so many times, with other words each time, copy by copy."""
    chance, drawn, common = Random(f"renamed {seed}"), Words(words), common_words(rows)
    for copy in range(copies):
        for row in rows:
            made = _renamed(row, drawn, common, chance)
            yield {**row, **made, "id": f"{row['id']}~{copy}"}


def _own_words(row: Mapping[str, Any]) -> set[str]:
    """Of tools, their arguments, and the fields of what they answer."""
    functions = [tool["function"] for tool in row["tools"]]
    names = {one["name"] for one in functions}
    names.update(key for one in functions for key in one["parameters"]["properties"])
    answers = [one["content"] for one in row["messages"] if one["role"] == "tool"]
    names.update(key for one in answers for key in _FIELD.findall(one))
    return {word for name in names for word in _WORD.findall(name)}


def _renamed(
    row: Mapping[str, Any], words: Words, common: frozenset[str], chance: Random
) -> dict[str, Any]:
    own = _own_words(row) - common - _RESERVED
    by_word = _others(words, own, common | _RESERVED | own, chance)
    text = json.dumps({key: row[key] for key in _TEXT})
    by_code: dict[str, str] = {}
    codes = {
        prefix: _LETTER.sub(lambda _: chance.choice(_LETTERS), prefix) for prefix in _prefixes(text)
    }

    def word(found: re.Match[str]) -> str:
        given = found.group()
        other = by_word.get(given.lower())
        return given if other is None else other.capitalize() if given[0].isupper() else other

    def code(found: re.Match[str]) -> str:
        other = f"{codes[found.group(1)]}-{chance.randrange(100, 1000)}"
        return by_code.setdefault(found.group(), other)

    return json.loads(_WORD.sub(word, _CODE.sub(code, text)))


def _prefixes(text: str) -> list[str]:
    return sorted({found.group(1) for found in _CODE.finditer(text)})


def _others(
    words: Words, own: set[str], taken: frozenset[str] | set[str], chance: Random
) -> dict[str, str]:
    """Another word for each; what was a plural of one of them stays one."""
    singles = sorted(word for word in own if word.removesuffix("s") not in own - {word})
    found: dict[str, str] = {}
    used = set(taken)
    for single in singles:
        other = words.word(chance)
        while other in used or f"{other}s" in used:
            other = words.word(chance)
        used.add(other)
        found |= {single: other, f"{single}s": f"{other}s"}
    return found


def without_mistakes(row: Mapping[str, Any]) -> dict[str, Any]:
    """The dialogue in which no call that a tool answered with an error is learned."""
    messages = row["messages"]
    learned = list(row.get("learned") or [one["role"] == "assistant" for one in messages])
    for at, message in enumerate(messages):
        if message["role"] == "tool" and message["content"].startswith("Error"):
            asked = next(back for back in range(at, -1, -1) if messages[back]["role"] != "tool")
            learned[asked] = False
    return {**row, "learned": learned}
