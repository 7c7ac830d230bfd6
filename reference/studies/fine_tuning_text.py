"""What the study of fine-tuning trains on: text that repeats itself, and dialogues in other words.

Whether a model of a million parameters can say a name that it has never seen depends on one thing:
whether it has learned to copy from its context. Natural text of a few million tokens does not teach
nano that (`reference/NOTEBOOK.md`). So the text to pre-train on repeats what it says: lists,
records, interfaces and calls of them; more than half of it can be copied. Names are words in pairs
drawn by chance, so that there are hundreds of thousands of them; the words are given, such as those
of a language that any model's pre-training has seen. No marker of the chat template occurs.

A model that is fine-tuned on some hundred tools learns their names by heart, and says those of
others wrong. So each application's own words are exchanged, consistently, for words drawn by
chance: where every dialogue has words of its own, nothing but copying helps, and everything else of
the dialogue stays as it was: its turns, its schemas, its endings. (Lin et al. 2024, arXiv:
2410.04587, mask the names of functions to the same end.)
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from random import Random
from string import ascii_uppercase
from typing import Any, Final

from reference.dialog import declared
from reference.studies.runs import settings_of

_FLAT: Final = 100
"""Words that are about as frequent as the first."""
_WORDS: Final[dict[str, str]] = settings_of("fine_tuning")["words"]
_TYPES: Final = _WORDS["types"].split()
_VERBS: Final = _WORDS["verbs"].split()
_SHARED: Final = 6
"""A word in the tools of so many applications belongs to the language, and stays."""
_RESERVED: Final = frozenset(_WORDS["reserved"].split())
"""Words of dialogues and schemas themselves."""
_WORD: Final = re.compile(r"[A-Za-z]+")
_CODE: Final = re.compile(r"\b([A-Z][A-Z0-9]{1,2})-(\d{3,4})\b")
_FIELD: Final = re.compile(r'"(\w+)":')
_LETTER: Final = re.compile("[A-Z]")
_TEXT: Final = ("messages", "tools")


class DrawnWords:
    """Words, the first ones used most often (Zipf's law), and values."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        self._sums = tuple(accumulate(1 / (rank + _FLAT) for rank in range(1, len(words) + 1)))

    def word(self, chance: Random) -> str:
        """One of them."""
        return chance.choices(self._words, cum_weights=self._sums)[0]

    def name(self, chance: Random) -> str:
        """One word or two, joined as in a program."""
        return "_".join(self.word(chance) for _ in range(chance.choice((1, 2, 2))))

    def value(self, chance: Random) -> str:
        """A name, a number, a code, a date."""
        kind = chance.randrange(6)
        if kind < 2:
            return " ".join(self.word(chance).capitalize() for _ in range(chance.choice((1, 2))))
        if kind == 2:
            return str(chance.randrange(1, 1000))
        if kind == 3:
            letters = "".join(chance.choices(ascii_uppercase, k=2))
            return f"{letters}-{chance.randrange(100, 1000)}"
        if kind == 4:
            return f"{chance.randrange(1, 100)}.{chance.randrange(10, 100)}"
        return self.word(chance)


def loop(words: DrawnWords, chance: Random) -> str:
    """One to five words round and round: what follows is what followed a few words ago."""
    row = [words.word(chance) for _ in range(chance.randrange(1, 6))]
    joint = chance.choice((" ", " ", ", ", "_", "\n"))
    return joint.join(row * (chance.randrange(16, 33) // len(row)))


def listing(words: DrawnWords, chance: Random) -> str:
    """Things in a row, and the same row again, two to four times in all."""
    things = [words.value(chance) for _ in range(chance.randrange(2, 8))]
    row = chance.choice((", ", " ", "; ", " | ", "\n")).join(things)
    head = words.word(chance)
    form = chance.choice(("{1}", "{0}: {1}", "({1})", '{0} = "{1}"'))
    return "\n".join(form.format(head, row) for _ in range(chance.choice((2, 2, 3, 4))))


def records(words: DrawnWords, chance: Random) -> str:
    """Rows of named values, and sentences that tell some of them."""
    keys = [words.name(chance) for _ in range(chance.randrange(2, 5))]
    kind = words.name(chance).replace("_", " ")
    rows = [
        (words.value(chance), {key: words.value(chance) for key in keys})
        for _ in range(chance.randrange(1, 4))
    ]
    told = [f"{name}: {json.dumps(row)}" for name, row in rows]
    for _ in range(chance.randrange(2, 6)):
        name, row = chance.choice(rows)
        key = chance.choice(keys)
        told.append(f"The {key.replace('_', ' ')} of {kind} {name} is {row[key]}.")
    return "\n".join(told)


def interface(words: DrawnWords, chance: Random) -> str:
    """Functions as JSON declares them, then calls with arguments that a sentence gave."""
    functions: dict[str, list[str]] = {}
    for _ in range(chance.randrange(1, 5)):
        thing = words.name(chance)
        keys = [f"{thing}_id", *(words.name(chance) for _ in range(chance.randrange(0, 3)))]
        chance.shuffle(keys)
        functions[f"{chance.choice(_VERBS)}_{thing}"] = keys[: chance.choice((1, 2, 3))]
    told = [json.dumps(_declared(name, keys, chance)) for name, keys in functions.items()]
    for _ in range(chance.randrange(1, 4)):
        name = chance.choice(list(functions))
        values = {key: words.value(chance) for key in functions[name]}
        said = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in values.items())
        verb, thing = name.split("_", 1)
        told += [f"{verb} {thing.replace('_', ' ')}, {said}.", f"{name} {json.dumps(values)}"]
    return "\n".join(told)


def _declared(name: str, keys: list[str], chance: Random) -> dict[str, Any]:
    properties = {key: {"type": chance.choice(_TYPES)} for key in keys}
    verb, thing = name.split("_", 1)
    said = f"{verb.capitalize()} a {thing.replace('_', ' ')}."
    schema = {"type": "object", "properties": properties, "required": keys}
    return declared(name, said, schema)


KINDS: Final[tuple[Callable[[DrawnWords, Random], str], ...]] = (
    loop,
    listing,
    loop,
    records,
    interface,
)


def texts(words: Sequence[str], count: int, seed: int) -> Iterator[str]:
    """So many documents, of all kinds in turn."""
    chance, drawn = Random(f"texts {seed}"), DrawnWords(words)
    for number in range(count):
        yield KINDS[number % len(KINDS)](drawn, chance)


def common_words(rows: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """DrawnWords of tools that belong to no application in particular."""
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
    chance, drawn, common = Random(f"renamed {seed}"), DrawnWords(words), common_words(rows)
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
    row: Mapping[str, Any], words: DrawnWords, common: frozenset[str], chance: Random
) -> dict[str, Any]:
    own = _own_words(row) - common - _RESERVED
    by_word = _others(words, own, common | _RESERVED | own, chance)
    text = json.dumps({key: row[key] for key in _TEXT})
    by_code: dict[str, str] = {}
    prefixes = sorted({found.group(1) for found in _CODE.finditer(text)})
    codes = {
        prefix: _LETTER.sub(lambda _: chance.choice(ascii_uppercase), prefix) for prefix in prefixes
    }

    def word(found: re.Match[str]) -> str:
        given = found.group()
        other = by_word.get(given.lower())
        return given if other is None else other.capitalize() if given[0].isupper() else other

    def code(found: re.Match[str]) -> str:
        other = f"{codes[found.group(1)]}-{chance.randrange(100, 1000)}"
        return by_code.setdefault(found.group(), other)

    return json.loads(_WORD.sub(word, _CODE.sub(code, text)))


def _others(
    words: DrawnWords, own: set[str], taken: frozenset[str] | set[str], chance: Random
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
