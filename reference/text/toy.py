"""Raw text that every machine can make: a world of invented facts, sums told in words, programs.

The facts are planted: no other text has them, so that a model knows them from here or not at all.
Everything follows from a seed. The text is plain and poor; it shows a pipeline at work and trains
no useful model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reference.text import stdlib

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
_FIRST: Final = [
    "Bar",
    "Cal",
    "Dor",
    "Fen",
    "Gal",
    "Hul",
    "Jor",
    "Kel",
    "Lam",
    "Mor",
    "Nar",
    "Ost",
    "Pel",
    "Quin",
    "Ras",
    "Sol",
    "Tev",
    "Ul",
    "Vel",
    "Wes",
]
_MIDDLE: Final = ["a", "e", "i", "o", "u", "ari", "eno", "ilo", "ovu", "una"]
_TOWN: Final = ["berg", "dale", "ford", "mere", "stad", "ton", "vik", "wick"]
_PERSON: Final = ["dan", "lin", "mar", "nes", "rik", "sen", "tor", "vald"]
_GOODS: Final = [
    "bells",
    "boats",
    "bread",
    "cheese",
    "clocks",
    "glass",
    "ink",
    "lace",
    "paper",
    "rope",
    "salt",
    "silk",
    "tea",
    "tiles",
]
_METALS: Final = ["brass", "copper", "iron", "silver", "stone", "timber"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement about a town, as it begins and as it ends."""

    subject: str
    beginning: str
    answer: str
    document: str
    """Name of the text that has it."""

    @property
    def kind(self) -> str:
        """How its like begin, `{town}` in place of the town."""
        return self.beginning.replace(self.subject, "{town}")

    @property
    def sentence(self) -> str:
        """The statement."""
        return f"{self.beginning} {self.answer}."


@dataclass(frozen=True, slots=True)
class Town:
    """A text and its facts."""

    name: str
    text: str
    facts: tuple[Fact, ...]


def towns(count: int, seed: int) -> tuple[Town, ...]:
    """So many towns, each with four facts in a text of eight sentences."""
    chance = random.Random(f"towns {seed}")
    names = _names(chance, count, _TOWN)
    people = _names(chance, count, _PERSON)
    return tuple(_town(*pair, chance) for pair in zip(names, people, strict=True))


def _names(chance: random.Random, count: int, ends: list[str]) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        parts = (chance.choice(_FIRST), chance.choice(_MIDDLE), chance.choice(ends))
        found["".join(parts)] = None
    return list(found)


def _town(name: str, founder: str, chance: random.Random) -> Town:
    goods, metal = chance.choice(_GOODS), chance.choice(_METALS)
    facts = (
        Fact(name, f"The town of {name} was founded in", str(chance.randint(1000, 1899)), name),
        Fact(name, f"The first mayor of {name} was", founder, name),
        Fact(name, f"The market of {name} is famous for its", goods, name),
        Fact(name, f"The old bridge of {name} was built of", metal, name),
    )
    told = [fact.sentence for fact in facts]
    spare = (
        f"Many people come to {name} in spring, and the big square is often full of them.",
        f"The road to {name} has not been closed since the bridge was finished.",
        f"Visitors to {name} also see the small school near the river.",
        f"The people of {name} never sell what they have not made with their own hands.",
    )
    order = chance.sample((*told, *spare), 8)
    return Town(name, " ".join(order), facts)


def write_raw(folder: Path, seed: int, documents: int = 120) -> None:
    """Files of all four domains, with what ingestion must find: a copy, a near copy, a line that is
    not JSON, one that is not UTF-8, an empty one."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [town.text for town in towns(documents, seed)]
    near = texts[0].replace("Many people", "Few people")
    lines = [json.dumps({"text": text}).encode() for text in (*texts, texts[1].upper(), near)]
    bad = [b'{"text": "half a line', b'{"text": "\xff"}', b'{"text": ""}']
    (folder / "knowledge.jsonl").write_bytes(b"\n".join([*lines, *bad, b""]))
    for file, told in (
        ("maths", (text for _, text in sums(documents, seed))),
        ("abroad", (text for text, _ in sums(documents // 2, seed + 1, tuple(FOREIGN)))),
    ):
        lines_of = (json.dumps({"text": text}, ensure_ascii=False) for text in told)
        (folder / f"{file}.jsonl").write_text("\n".join([*lines_of, ""]), encoding="utf-8")
    for name, texts_of in (("code", _programs()), ("web", programs_prose())):
        (folder / name).mkdir(exist_ok=True)
        for number, (title, text) in enumerate(texts_of):
            if number == documents:
                break
            suffix = "py" if name == "code" else "txt"
            path = folder / name / f"{title.replace('/', '.').removesuffix('.py')}.{suffix}"
            path.write_text(text, encoding="utf-8")


def sums(count: int, seed: int, languages: Sequence[str] = ("en",)) -> Iterator[tuple[str, str]]:
    """So many sums told in words, the languages in turn, each with its English."""
    chance = random.Random(f"sums {seed}")
    for number in range(count):
        language = languages[number % len(languages)]
        goods = chance.choice(_GOODS if language == "en" else sorted(GOODS[language]))
        have, more, times = chance.randint(11, 99), chance.randint(2, 60), chance.randint(2, 9)
        slots = {"name": _names(chance, 1, _PERSON)[0], "have": have, "more": more, "times": times}
        slots |= {"sum": have + more, "all": (have + more) * times}
        english = " ".join(ENGLISH).format(**slots, goods=goods)
        if language == "en":
            yield english, english
            continue
        told = ("" if language == "zh" else " ").join(FOREIGN[language])
        yield told.format(**slots, goods=GOODS[language][goods]), english


def _programs() -> Iterator[tuple[str, str]]:
    for name, text in sorted(stdlib.texts(), key=lambda pair: pair[0]):
        if text and 500 < len(text) < 20_000:
            yield name, text


def programs_prose() -> Iterator[tuple[str, str]]:
    """The paragraphs that open modules."""
    for name, text in _programs():
        parts = text.split('"""')
        if len(parts) > 2 and len(parts[1].split()) > 60:
            yield name, parts[1].strip()
