"""Does a passage support a sentence? A judge of single sentences, trained on planted claims: a
logistic regression on few features, fitted by Newton's method in milliseconds, the same on every
machine to rounding. The claims are about invented factories; there are two sets of names, wordings
and kinds of error, and training sees the first only.

`python -m reference.rl.gym.support` prints the AUROC on held-out claims. Their names and wordings,
and some of their kinds of error, are not in the training data; features and ridge were chosen with
such claims of another seed in view. The judge knows no synonyms, no order of words and no
inference: a true sentence in quite other words may count as unsupported, and two lower-case words
exchanged as supported.

Legend: R rows, F features.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reference.rl.gym.environments import texts

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


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Logistic:
    """A logistic regression."""

    weights: tuple[float, ...]
    """Of the features, and of the constant behind them."""

    def chance(self, features: Sequence[float]) -> float:
        """The chance of class 1 for a row."""
        total = float(np.dot(self.weights, (*features, 1.0)))
        return float(1 / (1 + np.exp(-np.clip(total, -50, 50))))


def fit_logistic(
    rows: Sequence[Sequence[float]], labels: Sequence[float], ridge: float = 1e-4
) -> Logistic:
    """The weights of the likeliest labels, less `ridge` times half their squares (the constant's
    apart); labels are 0 to 1. Hastie, Tibshirani, Friedman 2009, section 4.4.1."""
    features_RF: Floats = np.c_[np.asarray(rows, dtype=np.float64), np.ones(len(rows))]
    label_R = np.asarray(labels, dtype=np.float64)
    ridge_F = np.full(features_RF.shape[1], ridge * len(rows))
    ridge_F[-1] = 1e-9 * len(rows)
    weight_F = np.zeros(features_RF.shape[1])
    for _ in range(50):
        chance_R = 1 / (1 + np.exp(-np.clip(features_RF @ weight_F, -50, 50)))
        gradient_F = features_RF.T @ (chance_R - label_R) + ridge_F * weight_F
        hessian_FF = (features_RF.T * (chance_R * (1 - chance_R))) @ features_RF + np.diag(ridge_F)
        step_F = np.linalg.solve(hessian_FF, gradient_F)
        weight_F = weight_F - step_F
        if np.abs(step_F).max() < 1e-9:
            break
    return Logistic(tuple(map(float, weight_F)))


def auroc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """The chance that a row of the class scores higher than another, ties half (Hanley and McNeil
    1982, Radiology 143). Raises ValueError without rows of both kinds."""
    good = np.asarray([score for score, label in zip(scores, labels, strict=True) if label])
    bad = np.sort([score for score, label in zip(scores, labels, strict=True) if not label])
    if not len(good) or not len(bad):
        raise ValueError("both classes are needed")
    below = np.searchsorted(bad, good, "left") + np.searchsorted(bad, good, "right")
    return float(below.mean() / 2 / len(bad))


def auroc_error(area: float, good: int, bad: int) -> float:
    """The standard error of an AUROC of so many rows of each class (the same paper, equation 1,
    with Q1 and Q2 of its exponential model)."""
    first, second = area / (2 - area), 2 * area * area / (1 + area)
    square = area * (1 - area) + (good - 1) * (first - area**2) + (bad - 1) * (second - area**2)
    return float(np.sqrt(max(0.0, square) / (good * bad)))


TRAINED_ON: Final = 1200
"""Claims; more change the AUROC in the third digit."""
_SENTENCE: Final = re.compile(r"[^.!?\n]+[.!?]?")
_WORD: Final = re.compile(r"[A-Za-z]+|\d+")
_NO: Final = "not no never none nobody nothing without neither nor hardly"
_LITTLE: Final = (
    "a an the of in at to is was are were has have had be been by it its there this that and or "
    "what who which one since with for on as from into known not never no"
)
_NEGATIONS: Final = frozenset(_NO.split())
_COMMON: Final = frozenset(_LITTLE.split())


def sentences(text: str) -> list[str]:
    """The sentences of a text, without those that hold no word."""
    parts = (part.strip() for part in _SENTENCE.findall(text))
    return [part for part in parts if _WORD.search(part)]


def features(passage: str, sentence: str) -> tuple[float, ...]:
    """What of a sentence the passage lacks: shares of its numbers, names and other words; of its
    words, those that no one sentence of the passage has together; of those that the passage knows,
    too; whether two of its names and numbers stand together nowhere; what the nearest sentence
    has and it has not; whether the word beside a number is another; negation. The order of words
    counts for nothing (`in_disorder`)."""
    stated = [_terms(words) for words in sentences(passage)]
    own, every = _terms(sentence), {word for words in stated for word in words}
    numbers, names = [w for w in own if w.isdigit()], _names(sentence, passage)
    plain = [w for w in own if not w.isdigit() and w not in names]
    best = max(stated, key=lambda words: len({*own} & {*words}), default=[])
    facts = {*numbers, *names}
    apart = not any(facts <= {*words} for words in stated)
    known = [w for w in own if w in every]
    whole = (
        max((len({*known} & {*words}) / len({*known}) for words in stated), default=0)
        if known
        else 0
    )
    return (
        _lacking(numbers, every),
        _lacking(names, every),
        _lacking(plain, every),
        _lacking(own, {*best}),
        1.0 - whole,
        _lacking(best, {*own}),
        float(len(facts) > 1 and apart),
        float(bool(numbers) and _unlike(sentence, passage)),
        float(_denials(sentence) % 2 != _denials(_nearest(passage, own)) % 2),
        float(not facts),
    )


def _terms(text: str) -> list[str]:
    """Words that carry meaning, cut to their first five letters."""
    words = (word.lower() for word in _WORD.findall(text))
    return [
        word if word.isdigit() else word[:5].removesuffix("s")
        for word in words
        if word not in _COMMON
    ]


def _names(sentence: str, passage: str) -> list[str]:
    """Words with a capital in the sentence that are not only its first word; a first word counts
    where the passage has it with a capital within a sentence, or where nothing else is lower."""
    words = re.findall(r"[A-Za-z]+", sentence)
    inside = {word for word in words[1:] if word[0].isupper()}
    first = (
        {words[0]} if words and words[0].lower() not in _COMMON and words[0][0].isupper() else set()
    )
    known = {*re.findall(r"\b[A-Z][a-z]+", passage)}
    kept = inside | {word for word in first if word in known or len(word) > 3}
    return [word.lower()[:5].removesuffix("s") for word in words if word in kept]


def _lacking(words: Sequence[str], among: set[str]) -> float:
    return sum(word not in among for word in words) / len(words) if words else 0.0


def _unlike(sentence: str, passage: str) -> bool:
    """Whether a number of the sentence stands beside another kind of word than in the passage:
    bare, as years do, or before what is counted."""
    here, there = _counted(sentence), _counted(passage)
    return any(number in there and there[number] != kind for number, kind in here.items())


def _counted(text: str) -> dict[str, bool]:
    """Numbers, and whether what is counted stands behind them."""
    pairs = re.findall(r"\b(\d+)\b(?: ([a-z]+))?", text)
    return {number: bool(word) and word not in _COMMON for number, word in pairs}


def _nearest(passage: str, own: Sequence[str]) -> str:
    parts = sentences(passage)
    return max(parts, key=lambda part: len({*own} & {*_terms(part)}), default="")


def _denials(text: str) -> int:
    return sum(word.lower() in _NEGATIONS for word in _WORD.findall(text))


@cache
def judge() -> Logistic:
    """The judge, trained on planted claims; chances are that a sentence is not supported."""
    given = claims(TRAINED_ON, unseen=False, seed=0)
    rows = [features(claim.passage, claim.sentence) for claim in given]
    return fit_logistic(rows, [float(claim.kind != "supported") for claim in given])


def in_disorder(passage: str, sentence: str) -> bool:
    """Whether a sentence is words of the passage in no order: of its neighbours that are both known
    to the passage, two at least, half or more are neighbours nowhere in it. OURS."""
    there = [_WORD.findall(one.lower()) for one in sentences(passage)]
    known, pairs = {w for one in there for w in one}, {p for one in there for p in pairwise(one)}
    own = [p for p in pairwise(_WORD.findall(sentence.lower())) if {*p} <= known]
    return len(own) >= 2 and 2 * sum(one not in pairs for one in own) >= len(own)


def unsupported(passage: str, text: str) -> list[float]:
    """For each sentence of a text the chance that the passage does not support it."""
    return [judge().chance(features(passage, part)) for part in sentences(text)]


def measured(count: int = 2000, seed: int = 2) -> dict[str, Any]:
    """AUROC on held-out claims with its standard error, for all and by kind, and what the threshold
    of one half catches and refuses."""
    given = claims(count, unseen=True, seed=seed)
    scores = [judge().chance(features(claim.passage, claim.sentence)) for claim in given]
    kinds = sorted({claim.kind for claim in given} - {"supported"})
    return {
        "version": 1,
        "claims": count,
        "all": _area(given, scores, kinds),
        "kinds": {kind: _area(given, scores, [kind]) for kind in kinds},
        "caught": _share(given, scores, kinds),
        "refused": _share(given, scores, ["supported"]),
    }


def _area(
    given: Sequence[Claim], scores: Sequence[float], kinds: Sequence[str]
) -> dict[str, float]:
    kept = [at for at, claim in enumerate(given) if claim.kind in ("supported", *kinds)]
    labels = [given[at].kind != "supported" for at in kept]
    area = auroc([scores[at] for at in kept], labels)
    return {"auroc": area, "error": auroc_error(area, sum(labels), len(labels) - sum(labels))}


def _share(given: Sequence[Claim], scores: Sequence[float], kinds: Sequence[str]) -> float:
    kept = [score > 0.5 for claim, score in zip(given, scores, strict=True) if claim.kind in kinds]
    return sum(kept) / len(kept)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured(), indent=1) + "\n")
