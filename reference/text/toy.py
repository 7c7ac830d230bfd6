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
from typing import Any, Final

from reference.files import yaml_table
from reference.text.documents import stdlib_texts

_PARTS: Final[dict[str, Any]] = yaml_table(Path(__file__).with_suffix(".yaml"))
ENGLISH: Final[list[str]] = _PARTS["english"]
"""A sum in five sentences."""
FOREIGN: Final[dict[str, list[str]]] = _PARTS["foreign"]
"""The same five sentences by language."""
GOODS: Final[dict[str, dict[str, str]]] = _PARTS["translated"]
"""English goods and their names by language."""


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
    names = _names(chance, count, _PARTS["town"])
    people = _names(chance, count, _PARTS["person"])
    return tuple(_town(*pair, chance) for pair in zip(names, people, strict=True))


def _names(chance: random.Random, count: int, ends: list[str]) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        parts = (_PARTS["first"], _PARTS["middle"], ends)
        found["".join(map(chance.choice, parts))] = None
    return list(found)


def _town(name: str, founder: str, chance: random.Random) -> Town:
    goods, metal = chance.choice(_PARTS["goods"]), chance.choice(_PARTS["metals"])
    answers = (str(chance.randint(1000, 1899)), founder, goods, metal)
    facts = tuple(
        Fact(name, beginning.format(town=name), answer, name)
        for beginning, answer in zip(_PARTS["facts"], answers, strict=True)
    )
    told = [fact.sentence for fact in facts]
    told += [sentence.format(town=name) for sentence in _PARTS["spare"]]
    return Town(name, " ".join(chance.sample(told, 8)), facts)


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
        goods = chance.choice(_PARTS["goods"] if language == "en" else sorted(GOODS[language]))
        have, more, times = chance.randint(11, 99), chance.randint(2, 60), chance.randint(2, 9)
        (name,) = _names(chance, 1, _PARTS["person"])
        slots = {"name": name, "have": have, "more": more, "times": times}
        slots |= {"sum": have + more, "all": (have + more) * times}
        english = " ".join(ENGLISH).format(**slots, goods=goods)
        if language == "en":
            yield english, english
            continue
        told = ("" if language == "zh" else " ").join(FOREIGN[language])
        yield told.format(**slots, goods=GOODS[language][goods]), english


def _programs() -> Iterator[tuple[str, str]]:
    for name, text in sorted(stdlib_texts(), key=lambda pair: pair[0]):
        if text and 500 < len(text) < 20_000:
            yield name, text


def programs_prose() -> Iterator[tuple[str, str]]:
    """The paragraphs that open modules."""
    for name, text in _programs():
        parts = text.split('"""')
        if len(parts) > 2 and len(parts[1].split()) > 60:
            yield name, parts[1].strip()
