"""Text to pre-train on that repeats what it says: lists, records, interfaces and calls of them.

Whether a model of a million parameters can say a name that it has never seen depends on one thing:
whether it has learned to copy from its context. Natural text of a few million tokens does not teach
nano that (`reference/NOTEBOOK.md`); of this text more than half can be copied. Names are words in
pairs drawn by chance, so that there are hundreds of thousands of them; the words are given, such as
those of a language that any model's pre-training has seen. No marker of the chat template occurs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, Final

from reference.dialog import declared

_FLAT: Final = 100
"""Words that are about as frequent as the first."""
_TYPES: Final = ("string", "string", "integer", "number", "boolean")
_VERBS: Final = (
    *("get", "find", "set", "list", "delete", "add", "update", "count"),
    *("open", "close", "send", "move", "check", "create", "cancel", "rename"),
)


class Words:
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
            letters = "".join(chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=2))
            return f"{letters}-{chance.randrange(100, 1000)}"
        if kind == 4:
            return f"{chance.randrange(1, 100)}.{chance.randrange(10, 100)}"
        return self.word(chance)


def loop(words: Words, chance: Random) -> str:
    """One to five words round and round: what follows is what followed a few words ago."""
    row = [words.word(chance) for _ in range(chance.randrange(1, 6))]
    joint = chance.choice((" ", " ", ", ", "_", "\n"))
    return joint.join(row * (chance.randrange(16, 33) // len(row)))


def listing(words: Words, chance: Random) -> str:
    """Things in a row, and the same row again, two to four times in all."""
    things = [words.value(chance) for _ in range(chance.randrange(2, 8))]
    row = chance.choice((", ", " ", "; ", " | ", "\n")).join(things)
    head = words.word(chance)
    form = chance.choice(("{1}", "{0}: {1}", "({1})", '{0} = "{1}"'))
    return "\n".join(form.format(head, row) for _ in range(chance.choice((2, 2, 3, 4))))


def records(words: Words, chance: Random) -> str:
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


def interface(words: Words, chance: Random) -> str:
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


KINDS: Final[tuple[Callable[[Words, Random], str], ...]] = (loop, listing, loop, records, interface)


def texts(words: Sequence[str], count: int, seed: int) -> Iterator[str]:
    """So many documents, of all kinds in turn."""
    chance, drawn = Random(f"texts {seed}"), Words(words)
    for number in range(count):
        yield KINDS[number % len(KINDS)](drawn, chance)


def write_texts(path: Path, words: Sequence[str], count: int, seed: int) -> Path:
    """The same as JSONL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": one}) + "\n" for one in texts(words, count, seed))
    return partial.replace(path)
