"""Whether a rewriting says what its source says: no more, no less, nothing else.

Each sentence of the source is laid beside the one of the rewriting that shares most of its words,
and the pair must agree in numbers (years and dates are numbers and names of months), in the word
behind each, in names and in the number of negations. All numbers and names of the rewriting must be
in the source. Words and runs of three words count both ways. It is a check by counting: it sees no
swapped roles within a sentence (`A beat B`, `B beat A`), no wrong synonym, and takes a merged or
split sentence with numbers for a loss. What it finds of planted corruptions:
`reference.studies.fidelity` and its report. Thresholds are OURS.

The idea to measure faithfulness apart from quality is that of RePro (github.com/cxcscmu/RePro).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import yaml

from reference.data.spec import Kind
from reference.text.sentences import sentences

_WORD: Final = re.compile(
    r"[A-Za-z\u00c0-\u024f]+(?:['\u2019][a-z]+)?|[\u4e00-\u9fff]|\d[\d,.]*\d|\d"
)
_WORDS: Final[dict[str, str]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
)
_NEGATIONS: Final = frozenset(_WORDS["negations"].split())
_FUNCTION: Final = frozenset(_WORDS["function"].split())
_LONG: Final = 4
_COVERED: Final = 0.5
"""Share of a source sentence's content words that its counterpart must have."""
_KNOWN: Final = 0.34
"""Share of a written sentence's content words that the source must have."""
_LEAST: Final = 3
"""Content words from which a written sentence may be called invented; fewer are a frame."""
_RATIO: Final = (0.5, 2.5)
_LENGTH_OF_TRANSLATION: Final = (0.4, 3.0)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What was counted, and what is wrong."""

    faults: tuple[str, ...]
    """Kind and example of each, sorted; none: the rewriting is kept."""
    ratio: float
    """Words of the rewriting over words of the source."""
    kept_terms: float
    """Share of the source's content words that the rewriting has."""
    novel_terms: float
    """Share of the rewriting's content words that the source lacks."""
    novel_grams: float
    """Share of the rewriting's runs of three words that the source lacks."""
    lost_grams: float
    """Share of the source's runs of three words that the rewriting lacks."""

    def facts(self) -> dict[str, Any]:
        """As provenance holds it."""
        return {
            key: round(value, 4) if isinstance(value, float) else list(value)
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True)
class _Sentence:
    words: tuple[str, ...]
    numbers: Counter[str]
    units: frozenset[tuple[str, str]]
    """Numbers and the word behind each."""
    names: frozenset[str]
    negations: int
    content: frozenset[str]


def judge(source: str, rewriting: str, kind: Kind = "rewrite") -> Fidelity:
    """The fidelity of a rewriting; of a translation numbers and length alone are judged."""
    ours, theirs = _read(source), _read(rewriting)
    words = [sum(len(one.words) for one in side) for side in (ours, theirs)]
    ratio = words[1] / max(1, words[0])
    least, most = _RATIO if kind == "rewrite" else _LENGTH_OF_TRANSLATION
    faults = [] if least <= ratio <= most else [f"length: {ratio:.2f} of the source"]
    if kind == "rewrite":
        faults += [*_lost(ours, theirs), *_invented(ours, theirs)]
    else:
        faults += _numbers(ours, theirs)
    terms = [frozenset[str]().union(*(one.content for one in side)) for side in (ours, theirs)]
    grams = [_grams(side) for side in (ours, theirs)]
    return Fidelity(
        tuple(sorted(set(faults))),
        ratio,
        1 - _new(terms[1], terms[0]),
        _new(terms[0], terms[1]),
        _new(grams[0], grams[1]),
        _new(grams[1], grams[0]),
    )


def _lost(ours: Sequence[_Sentence], theirs: Sequence[_Sentence]) -> list[str]:
    faults: list[str] = []
    for one in ours:
        if not one.words:
            continue
        other = max(theirs, key=lambda each: _shared(one, each), default=_sentence(""))
        shown = " ".join(one.words[:6])
        if one.content and len(one.content & other.content) < _COVERED * len(one.content):
            faults.append(f"sentence lost: {shown}")
            continue
        faults += [f"number lost: {number}" for number in one.numbers - other.numbers]
        there = {word.lower() for word in other.words}
        faults += [
            f"unit lost: {number} {unit}"
            for number, unit in one.units
            if number in other.numbers and unit not in there
        ]
        faults += [f"name lost: {name}" for name in one.names if name.lower() not in there]
        if one.negations != other.negations:
            faults.append(f"negation: {shown}")
    return faults


def _invented(ours: Sequence[_Sentence], theirs: Sequence[_Sentence]) -> list[str]:
    known = frozenset[str]().union(*(one.content for one in ours))
    words = {word.lower() for one in ours for word in one.words}
    faults: list[str] = []
    for one in theirs:
        new = one.content - known
        if len(one.content) >= _LEAST and len(new) > (1 - _KNOWN) * len(one.content):
            faults.append(f"sentence invented: {' '.join(one.words[:6])}")
        faults += [f"name invented: {name}" for name in one.names if name.lower() not in words]
    numbers = frozenset[str]().union(*(one.numbers for one in ours))
    found = frozenset[str]().union(*(one.numbers for one in theirs))
    return faults + [f"number invented: {number}" for number in found - numbers]


def _numbers(ours: Sequence[_Sentence], theirs: Sequence[_Sentence]) -> list[str]:
    sides = [sum((one.numbers for one in side), Counter[str]()) for side in (ours, theirs)]
    lost = [f"number lost: {number}" for number in sides[0] - sides[1]]
    return lost + [f"number invented: {number}" for number in sides[1] - sides[0]]


def _shared(one: _Sentence, other: _Sentence) -> float:
    """Numbers and names weigh twice: sentences of one form differ in them alone."""
    numbers = sum((one.numbers & other.numbers).values())
    mine = len(one.content & other.content) + numbers + len(one.names & other.names)
    return mine - len(other.content - one.content) / 100


def _read(text: str) -> list[_Sentence]:
    return [_sentence(one) for one in sentences(text)]


@lru_cache(maxsize=4096)
def _sentence(text: str) -> _Sentence:
    words = tuple(_WORD.findall(text))
    numbers = Counter(word.replace(",", "").rstrip(".") for word in words if word[0].isdigit())
    units = frozenset(
        (number.replace(",", "").rstrip("."), word.lower())
        for number, word in pairwise(words)
        if number[0].isdigit() and word[0].isalpha() and word.lower() not in _FUNCTION
    )
    following = {
        found[1] for found in re.finditer(r"(?<![.:?!])(?<![.:?!\-]\s)\b([A-Z]\w{2,})", text[1:])
    }
    spoken = [word for word in words if word.lower() not in _FUNCTION]
    names = frozenset(word for word in spoken if word in following)
    content = frozenset(word.lower() for word in spoken if len(word) >= _LONG or word[0].isdigit())
    negations = sum(word.lower() in _NEGATIONS or word.endswith("n't") for word in words)
    return _Sentence(words, numbers, units, names, negations, content)


def _grams(side: Sequence[_Sentence]) -> frozenset[str]:
    return frozenset(
        " ".join(one.words[at : at + 3]).lower() for one in side for at in range(len(one.words) - 2)
    )


def _new(known: frozenset[str], found: frozenset[str]) -> float:
    return len(found - known) / len(found) if found else 0.0
