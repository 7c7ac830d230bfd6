"""Dialogues with invented tools: one call whose every name and value stands in the context.

A model that is fine-tuned on some hundred tools learns their names by heart, and says those of
others wrong. Where every dialogue has tools of its own, of names drawn by chance, nothing but
copying helps. (Lin et al. 2024, arXiv:2410.04587, mask the names of functions to the same end.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from reference.dialog import Dialog, Message, declared, dialog_json, numbered
from reference.studies.fine_tuning_text import Words

_VERBS: Final = ("get", "find", "set", "list", "delete", "add", "move", "adjust")
_TOOLS: Final = (1, 1, 2, 2, 3)
"""How many a dialogue has, one of them drawn."""


def invented(words: Sequence[str], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """So many dialogues, as lines of a file (`reference.data.dialogs.read`)."""
    chance, drawn = Random(f"invented {seed}"), Words(words)
    for number in range(count):
        yield {**dialog_json(_dialog(drawn, chance)), "id": f"invented-{number}", **_KIND}


_KIND: Final = {"provenance": {"split": "train", "application": "invented"}}


def _dialog(words: Words, chance: Random) -> Dialog:
    """A user asks, the assistant calls, is answered, and tells what was asked for."""
    tools = dict(_tool(words, chance) for _ in range(chance.choice(_TOOLS)))
    name = chance.choice(list(tools))
    verb, thing = name.split("_", 1)
    given = {key: _value(words, chance) for key in tools[name]}
    result = {words.name(chance): _value(words, chance) for _ in range(chance.randrange(1, 4))}
    wanted = chance.choice(list(result))
    said = ", ".join(
        value if key.endswith("_id") else f"{_spoken(key)} {value}" for key, value in given.items()
    )
    asked = f"{verb.capitalize()} {_spoken(thing)} {said}. Tell me the {_spoken(wanted)}."
    call = numbered(name, 0, json.dumps(given))
    messages = (
        Message("user", asked),
        Message("assistant", "", (call,)),
        Message("tool", json.dumps(result, separators=(",", ":")), answers=call.id),
        Message("assistant", f"The {_spoken(wanted)} is {result[wanted]}."),
    )
    return Dialog(messages, tuple(_declared(one, keys) for one, keys in tools.items()))


def _tool(words: Words, chance: Random) -> tuple[str, list[str]]:
    """Its name and those of its arguments."""
    thing = words.name(chance)
    keys = [f"{thing}_id" if chance.random() < 0.5 else words.name(chance)]
    if chance.random() < 0.4:
        keys.append(words.name(chance))
    return f"{chance.choice(_VERBS)}_{thing}", list(dict.fromkeys(keys))


def _declared(name: str, keys: Sequence[str]) -> dict[str, Any]:
    verb, thing = name.split("_", 1)
    properties = {key: {"type": "string"} for key in keys}
    schema = {"type": "object", "properties": properties, "required": list(keys)}
    return declared(name, f"{verb.capitalize()} a {_spoken(thing)}.", schema)


def _value(words: Words, chance: Random) -> str:
    """An id in half of all cases."""
    if chance.random() < 0.5:
        return words.value(chance)
    letters = "".join(chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=2))
    return f"{letters}-{chance.randrange(100, 1000)}"


def _spoken(name: str) -> str:
    return name.replace("_", " ")
