"""Questions on small tables of invented people and towns, of one to three steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from reference.agentic.chance import drawn
from reference.rl.gym.environments import Check, Item, question_item, texts

_TEXTS: Final = texts("tables")


@dataclass(frozen=True, slots=True)
class Person:
    """A row of the first table."""

    name: str
    town: str
    job: str
    age: int
    pay: int


@dataclass(frozen=True, slots=True)
class Tables:
    """Both tables: people, and each town's mayor and inhabitants."""

    people: tuple[Person, ...]
    towns: Mapping[str, tuple[str, int]]

    def named(self, name: str) -> Person:
        """The row of a person."""
        return next(person for person in self.people if person.name == name)


TableQuestion = tuple[str, str, str, bool]
"""A question, its answer, its tag, and whether it needs the second table."""


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    draw = drawn("tables", level, seed)
    tables = _tables(level, draw)
    question, answer, tag, both = draw.choice(_KINDS[level - 1])(tables, draw)
    text = f"{_written(tables, level, both=both)}\n{question}"
    values = {
        str(value) for person in tables.people for value in (person.name, person.age, person.pay)
    }
    hacks = {
        "all values": " ".join(sorted(values)),
        "two answers": f"{answer} or {answer}",
        "the table": _written(tables, level, both=both),
    }
    return question_item(text, _same(answer), answer, (tag,), hacks)


def _tables(level: int, draw: Random) -> Tables:
    count = (2, 4, 5, 5, 6)[level - 1]
    names = draw.sample(_TEXTS["people"], count)
    towns = draw.sample(_TEXTS["towns"], min(3, max(2, count - 1)))
    ages, pays = draw.sample(range(20, 80), count), draw.sample(range(10, 99), count)
    people = tuple(
        Person(name, draw.choice(towns), draw.choice(_TEXTS["jobs"]), age, pay)
        for name, age, pay in zip(names, ages, pays, strict=True)
    )
    mayors = draw.sample(names, len(towns))
    sizes = draw.sample(range(100, 999), len(towns))
    pairs = zip(mayors, sizes, strict=True)
    return Tables(people, dict(zip(towns, pairs, strict=True)))


def _written(tables: Tables, level: int, *, both: bool) -> str:
    columns = ("name", "age") if level == 1 else ("name", "town", "job", "age", "pay")
    lines = [" ".join(columns)]
    lines += [" ".join(str(getattr(person, name)) for name in columns) for person in tables.people]
    if both:
        lines.append("town mayor size")
        lines += [f"{town} {mayor} {size}" for town, (mayor, size) in tables.towns.items()]
    return "\n".join(lines)


def _field(
    tables: Tables, draw: Random, names: Sequence[str] = ("town", "job", "age", "pay")
) -> TableQuestion:
    person, name = draw.choice(tables.people), draw.choice(names)
    return f"{name} of {person.name}?", str(getattr(person, name)), "lookup", False


def _reverse(tables: Tables, draw: Random) -> TableQuestion:
    person = draw.choice(tables.people)
    return f"who has pay {person.pay}?", person.name, "reverse lookup", False


def _count(tables: Tables, draw: Random) -> TableQuestion:
    town = draw.choice(tables.people).town
    count = sum(person.town == town for person in tables.people)
    return f"how many live in {town}?", str(count), "count", False


def _sum(tables: Tables, draw: Random) -> TableQuestion:
    town = draw.choice(tables.people).town
    total = sum(person.pay for person in tables.people if person.town == town)
    return f"total pay in {town}?", str(total), "sum", False


def _most(tables: Tables, draw: Random) -> TableQuestion:
    name = draw.choice(("age", "pay"))
    best = max(tables.people, key=lambda person: getattr(person, name))
    return f"who has the most {name}?", best.name, "maximum", False


def _of_town(tables: Tables, draw: Random, field: str) -> TableQuestion:
    person = draw.choice(tables.people)
    mayor, size = tables.towns[person.town]
    answer = mayor if field == "mayor" else str(size)
    return f"{field} of the town of {person.name}?", answer, "join", True


def _mayor_pay(tables: Tables, draw: Random) -> TableQuestion:
    oldest = max(tables.people, key=lambda person: person.age)
    mayor = tables.named(tables.towns[oldest.town][0])
    del draw
    text = "pay of the mayor of the town of the oldest?"
    return text, str(mayor.pay), "three hops", True


def _job_of_mayor(tables: Tables, draw: Random) -> TableQuestion:
    town = max(tables.towns, key=lambda person: tables.towns[person][1])
    mayor = tables.named(tables.towns[town][0])
    others = sum(person.town == mayor.town for person in tables.people)
    del draw
    text = "how many live where the mayor of the largest town lives?"
    return text, str(others), "three hops", True


_KINDS: Final[Sequence[Sequence[Callable[[Tables, Random], TableQuestion]]]] = (
    (partial(_field, names=("age",)),),
    (_field, _reverse),
    (_count, _sum, _most),
    (partial(_of_town, field="size"), partial(_of_town, field="mayor")),
    (_mayor_pay, _job_of_mayor),
)


def _same(right: str) -> Check:
    wanted = right.lower()
    return lambda text: {"right": text.lower().removesuffix(".").strip() == wanted}
