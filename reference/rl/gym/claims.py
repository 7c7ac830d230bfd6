"""Invented places with facts, sentences that tell them, and sentences that only seem to: what the
judge of `support` is trained and tried on, and what the family `faithfulness` asks about.

Two sets of names, wordings and ways to go wrong, of which training sees the first only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

_NAMES: Final = (
    ("Almira", "Borvik", "Corsund", "Dalmere", "Estavo", "Fjorden", "Gravosa", "Helmond"),
    ("Ivarra", "Juneau", "Kestrel", "Lindow", "Morava", "Nyborg", "Ostrava", "Pelham"),
)
_HEADS: Final = (
    ("Anders", "Brunhild", "Casper", "Dorothea", "Eskil", "Fredrik", "Gudrun", "Henrik"),
    ("Ingrid", "Joakim", "Katrin", "Ludvig", "Magnus", "Nanna", "Oskar", "Petra"),
)
_GOODS: Final = (
    ("cheese", "rope", "glass", "paper", "clocks", "boots"),
    ("tea", "bricks", "lamps", "flour", "violins", "nails"),
)
_TELLS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "year": (
        ("{name} was founded in {value}.", "In {value} {name} was founded."),
        ("{name} goes back to {value}.", "Since {value} there has been {name}."),
    ),
    "people": (
        ("{name} has {value} workers.", "There are {value} workers at {name}."),
        ("{value} workers are busy at {name}.", "{name} employs {value} workers."),
    ),
    "head": (
        ("{name} is led by {value}.", "{value} is the head of {name}."),
        ("The one who leads {name} is {value}.", "At the head of {name} stands {value}."),
    ),
    "goods": (
        ("{name} makes {value}.", "The works of {name} make {value}."),
        ("What {name} makes is {value}.", "{name} is known to make {value}."),
    ),
}
RELATIONS: Final = tuple(_TELLS)


@dataclass(frozen=True, slots=True)
class Place:
    """A works, and what is so of it."""

    name: str
    year: str
    people: str
    head: str
    goods: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence beside a passage, and whether the passage supports it."""

    passage: str
    sentence: str
    kind: str
    """What is wrong with it, or `supported`."""


def places(count: int, unseen: bool, draw: Random) -> list[Place]:
    """Places that differ in all facts; `unseen` of the names that training does not see."""
    names, heads = (draw.sample(pool[unseen], count) for pool in (_NAMES, _HEADS))
    goods = draw.sample(_GOODS[unseen], count)
    years, people = draw.sample(range(1700, 1990), count), draw.sample(range(20, 900), count)
    return [
        Place(name, str(year), str(many), head, made)
        for name, year, many, head, made in zip(names, years, people, heads, goods, strict=True)
    ]


def tell(place: Place, relation: str, wording: int, *, unseen: bool) -> str:
    """The sentence that says one fact of a place."""
    form = _TELLS[relation][unseen][wording % 2]
    return form.format(name=place.name, value=getattr(place, relation))


def passage(facts: Sequence[tuple[Place, str]], draw: Random) -> str:
    """A sentence for each fact, a place and a relation, in the wordings that training sees."""
    lines = (tell(one, relation, draw.randrange(2), unseen=False) for one, relation in facts)
    return " ".join(lines)


Plant = Callable[[Place, Place, str, Random], tuple[Place, str] | None]
"""A place, another one, the relation that is told, and chance give the place as it is wrongly told
and the relation; None where this fits not."""


def _another_number(
    place: Place, _: Place, relation: str, draw: Random
) -> tuple[Place, str] | None:
    if relation not in ("year", "people"):
        return None
    return _with(place, relation, str(int(getattr(place, relation)) + draw.randint(1, 9))), relation


def _another_name(place: Place, _: Place, relation: str, draw: Random) -> tuple[Place, str] | None:
    if relation not in ("head", "goods"):
        return None
    pool = ["Zeno", "Ylva", "Xaver"] if relation == "head" else ["soap", "coal", "hats"]
    return _with(place, relation, draw.choice(pool)), relation


def _exchanged(place: Place, other: Place, relation: str, _: Random) -> tuple[Place, str] | None:
    """The other's value."""
    return _with(place, relation, getattr(other, relation)), relation


def _other_subject(place: Place, _: Place, relation: str, draw: Random) -> tuple[Place, str] | None:
    """Said of a place of which nothing is known."""
    return replace(place, name=draw.choice(("Quarn", "Rhenn", "Stovik"))), relation


def _wrong_relation(place: Place, _: Place, relation: str, __: Random) -> tuple[Place, str] | None:
    """The year as the number of workers, and the other way round."""
    if relation not in ("year", "people"):
        return None
    other = {"year": "people", "people": "year"}[relation]
    return _with(place, other, getattr(place, relation)), other


SEEN: Final[Mapping[str, Plant]] = {
    "number changed": _another_number,
    "name replaced": _another_name,
    "values exchanged": _exchanged,
    "another relation": _wrong_relation,
}
UNSEEN: Final[Mapping[str, Plant]] = {
    **SEEN,
    "another subject": _other_subject,
}
"""With those that training does not plant; `denied` and `added` are planted in words, below."""
_ADDED: Final = (
    "Its owners plan to move abroad.",
    "It won several prizes for its gardens.",
    "Visitors praise the view from its tower.",
    "Most of it burned down in a storm.",
)


def claims(count: int, *, unseen: bool, seed: int) -> list[Claim]:
    """Sentences beside passages, half of them supported, the rest planted by kinds in turn. With
    `unseen` names, wordings and some kinds are those that training never has."""
    draw = Random(f"claims {unseen} {seed}")
    plants = UNSEEN if unseen else SEEN
    kinds = [*plants, "denied", *(["added"] if unseen else [])]
    found: list[Claim] = []
    while len(found) < count:
        told = places(2, unseen, draw)
        others = draw.sample(RELATIONS, draw.randint(1, len(RELATIONS)))
        relation = draw.choice(others)
        text = passage([(one, other) for one in told for other in others], draw)
        good = tell(told[0], relation, draw.randrange(2), unseen=unseen)
        kind = kinds[len(found) // 2 % len(kinds)]
        bad = _planted(kind, told, relation, draw, unseen=unseen)
        if bad is not None:
            found += [Claim(text, good, "supported"), Claim(text, bad, kind)]
    return found[:count]


def _planted(
    kind: str, told: list[Place], relation: str, draw: Random, *, unseen: bool
) -> str | None:
    if kind == "added":
        return draw.choice(_ADDED)
    if kind == "denied":
        sentence = tell(told[0], relation, 0, unseen=unseen)
        return (
            f"It is not true that {sentence[0].lower()}{sentence[1:]}" if unseen else _no(sentence)
        )
    plants = UNSEEN if unseen else SEEN
    made = plants[kind](told[0], told[1], relation, draw)
    if made is None:
        return None
    place, relation = made
    return tell(place, relation, draw.randrange(2), unseen=unseen)


def _no(sentence: str) -> str:
    for verb in (" was ", " is ", " has ", " are "):
        if verb in sentence:
            return sentence.replace(verb, f"{verb}not ", 1)
    return sentence.replace(" makes ", " never makes ").replace(" make ", " never make ")


def _with(place: Place, relation: str, value: str) -> Place:
    """The place as it is told with another value."""
    facts = {name: getattr(place, name) for name in ("name", *RELATIONS)}
    return Place(**{**facts, relation: value})
