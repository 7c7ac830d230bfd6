"""Invented factories with facts, sentences that state them, and sentences that only seem to: the
training and test data of the judge in `support`, and the passages of the family `faithfulness`.

There are two sets of names, wordings and kinds of error; training sees the first only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from reference.rl.gym.family import texts

_TEXTS: Final = texts("faithfulness")
RELATIONS: Final = tuple(_TEXTS["tells"])
SEEN: Final = ("number changed", "name replaced", "values exchanged", "another relation", "denied")
"""Kinds of error that training plants."""
UNSEEN: Final = (*SEEN[:-1], "another subject", "denied", "added")
"""With those that it does not."""
_NUMBERS: Final = {"year": "people", "people": "year"}
"""Relations whose values are numbers, each with the other one."""


@dataclass(frozen=True, slots=True)
class Factory:
    """A factory and its facts."""

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
    """The kind of error, or `supported`."""


def factories(count: int, unseen: bool, draw: Random) -> list[Factory]:
    """Factories that differ in all facts; `unseen`: with names that training does not see."""
    pools = (_TEXTS[key][unseen] for key in ("names", "heads", "goods"))
    names, heads, goods = (draw.sample(pool, count) for pool in pools)
    years, people = draw.sample(range(1700, 1990), count), draw.sample(range(20, 900), count)
    return [
        Factory(name, str(year), str(many), head, made)
        for name, year, many, head, made in zip(names, years, people, heads, goods, strict=True)
    ]


def state(factory: Factory, relation: str, wording: int, *, unseen: bool) -> str:
    """The sentence that states a fact."""
    form = _TEXTS["tells"][relation][unseen][wording % 2]
    return form.format(name=factory.name, value=getattr(factory, relation))


def passage(facts: Sequence[tuple[Factory, str]], draw: Random) -> str:
    """A sentence for each fact, a factory and a relation, in wordings that training sees."""
    return " ".join(
        state(factory, relation, draw.randrange(2), unseen=False) for factory, relation in facts
    )


def claims(count: int, *, unseen: bool, seed: int) -> list[Claim]:
    """Sentences beside passages, half of them supported, the rest with errors of all kinds in turn;
    `unseen`: with names, wordings and kinds that training never has."""
    draw = Random(f"claims {unseen} {seed}")
    kinds = UNSEEN if unseen else SEEN
    made: list[Claim] = []
    while len(made) < count:
        told = factories(2, unseen, draw)
        others = draw.sample(RELATIONS, draw.randint(1, len(RELATIONS)))
        relation = draw.choice(others)
        text = passage([(factory, other) for factory in told for other in others], draw)
        good = state(told[0], relation, draw.randrange(2), unseen=unseen)
        kind = kinds[len(made) // 2 % len(kinds)]
        bad = _planted(kind, told, relation, draw, unseen=unseen)
        if bad is not None:
            made += [Claim(text, good, "supported"), Claim(text, bad, kind)]
    return made[:count]


def _planted(
    kind: str, told: Sequence[Factory], relation: str, draw: Random, *, unseen: bool
) -> str | None:
    """A sentence with an error; None where the kind does not fit the relation."""
    if kind == "added":
        return draw.choice(_TEXTS["added"])
    if kind == "denied":
        sentence = state(told[0], relation, 0, unseen=unseen)
        return f"It is not true that {lowered(sentence)}" if unseen else _negated(sentence)
    planted = _wrong(kind, told, relation, draw)
    if planted is None:
        return None
    return state(*planted, draw.randrange(2), unseen=unseen)


def _wrong(
    kind: str, told: Sequence[Factory], relation: str, draw: Random
) -> tuple[Factory, str] | None:
    """The factory with a wrong fact, and the relation that states it."""
    factory, value, stated = told[0], getattr(told[0], relation), relation
    match kind:
        case "number changed" if relation in _NUMBERS:
            value = str(int(value) + draw.randint(1, 9))
        case "name replaced" if relation not in _NUMBERS:
            heads = relation == "head"
            value = draw.choice(["Zeno", "Ylva", "Xaver"] if heads else ["soap", "coal", "hats"])
        case "values exchanged":
            value = getattr(told[1], relation)
        case "another subject":
            return replace(factory, name=draw.choice(("Quarn", "Rhenn", "Stovik"))), relation
        case "another relation" if relation in _NUMBERS:
            stated = _NUMBERS[relation]
        case _:
            return None
    return replace(factory, **{stated: value}), stated


def lowered(sentence: str) -> str:
    """A sentence within another one."""
    return f"{sentence[0].lower()}{sentence[1:]}"


def _negated(sentence: str) -> str:
    for verb in (" was ", " is ", " has ", " are "):
        if verb in sentence:
            return sentence.replace(verb, f"{verb}not ", 1)
    return sentence.replace(" makes ", " never makes ").replace(" make ", " never make ")
