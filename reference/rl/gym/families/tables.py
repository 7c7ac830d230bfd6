"""Questions on small tables of invented people and towns, of one to three steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from reference.agentic.chance import drawn
from reference.rl.gym.environments import Check, asked
from reference.rl.gym.family import Item, texts

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
        return next(one for one in self.people if one.name == name)


TableQuestion = tuple[str, str, str, bool]
"""A question, its answer, its tag, and whether it needs the second table."""


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    draw = drawn("tables", level, seed)
    tables = _tables(level, draw)
    question, answer, tag, both = draw.choice(_KINDS[level - 1])(tables, draw)
    text = f"{_written(tables, level, both=both)}\n{question}"
    values = {str(value) for one in tables.people for value in (one.name, one.age, one.pay)}
    hacks = {
        "all values": " ".join(sorted(values)),
        "two answers": f"{answer} or {answer}",
        "the table": _written(tables, level, both=both),
    }
    return asked(text, _same(answer), answer, (tag,), hacks)


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
    lines += [" ".join(str(getattr(one, name)) for name in columns) for one in tables.people]
    if both:
        lines.append("town mayor size")
        lines += [f"{town} {mayor} {size}" for town, (mayor, size) in tables.towns.items()]
    return "\n".join(lines)


def _age(tables: Tables, draw: Random) -> TableQuestion:
    one = draw.choice(tables.people)
    return f"age of {one.name}?", str(one.age), "lookup", False


def _field(tables: Tables, draw: Random) -> TableQuestion:
    one, name = draw.choice(tables.people), draw.choice(("town", "job", "age", "pay"))
    return f"{name} of {one.name}?", str(getattr(one, name)), "lookup", False


def _reverse(tables: Tables, draw: Random) -> TableQuestion:
    one = draw.choice(tables.people)
    return f"who has pay {one.pay}?", one.name, "reverse lookup", False


def _count(tables: Tables, draw: Random) -> TableQuestion:
    town = draw.choice(tables.people).town
    count = sum(one.town == town for one in tables.people)
    return f"how many live in {town}?", str(count), "count", False


def _sum(tables: Tables, draw: Random) -> TableQuestion:
    town = draw.choice(tables.people).town
    total = sum(one.pay for one in tables.people if one.town == town)
    return f"total pay in {town}?", str(total), "sum", False


def _most(tables: Tables, draw: Random) -> TableQuestion:
    name = draw.choice(("age", "pay"))
    best = max(tables.people, key=lambda one: getattr(one, name))
    return f"who has the most {name}?", best.name, "maximum", False


def _size(tables: Tables, draw: Random) -> TableQuestion:
    one = draw.choice(tables.people)
    return f"size of the town of {one.name}?", str(tables.towns[one.town][1]), "join", True


def _mayor(tables: Tables, draw: Random) -> TableQuestion:
    one = draw.choice(tables.people)
    return f"mayor of the town of {one.name}?", tables.towns[one.town][0], "join", True


def _mayor_pay(tables: Tables, draw: Random) -> TableQuestion:
    oldest = max(tables.people, key=lambda one: one.age)
    mayor = tables.named(tables.towns[oldest.town][0])
    del draw
    text = "pay of the mayor of the town of the oldest?"
    return text, str(mayor.pay), "three hops", True


def _job_of_mayor(tables: Tables, draw: Random) -> TableQuestion:
    town = max(tables.towns, key=lambda one: tables.towns[one][1])
    mayor = tables.named(tables.towns[town][0])
    others = sum(one.town == mayor.town for one in tables.people)
    del draw
    text = "how many live where the mayor of the largest town lives?"
    return text, str(others), "three hops", True


_KINDS: Final[Sequence[Sequence[Callable[[Tables, Random], TableQuestion]]]] = (
    (_age,),
    (_field, _reverse),
    (_count, _sum, _most),
    (_size, _mayor),
    (_mayor_pay, _job_of_mayor),
)


def _same(right: str) -> Check:
    wanted = right.lower()
    return lambda text: {"right": text.lower().removesuffix(".").strip() == wanted}
