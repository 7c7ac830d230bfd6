"""How many corrupted rewritings does the fidelity check catch, how many good ones does it refuse?

The check of `reference.data.rephrase` was made on the towns of `reference.text.toy`. Here
it judges other texts: prose of the standard library's modules, invented voyages with units and
several names, and sums told in words. Each is rewritten by the rules; a corruption of one kind is
planted in the rewriting where it has room for one.
"""

from __future__ import annotations

import random
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reference.data.rephrase import judge, rewrite
from reference.data.spec import STYLES
from reference.evaluate.statistics import wilson
from reference.files import yaml_table
from reference.generate.rules import RuleGenerator
from reference.studies.study import Page, Workplace, main
from reference.text import toy
from reference.text.documents import sentences

_Z: Final = 1.96
_STYLES: Final = ("plain", "letter", "sceptic", "recap", "reporter")
_NAME: Final = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{3,}\b")
_NUMBER: Final = re.compile(r"\b\d+\b")
_WORDS: Final[dict[str, Any]] = yaml_table(Path(__file__).with_suffix(".yaml"))
_WORD: Final = r"[^\s,.;:]"
_CLAUSE: Final = rf",{_WORD}*(?:[^\S\n]+{_WORD}+){{2}}[^,.;:\n]*(?=\.)"
"""From a comma to the end of its sentence, two words or more."""
Corrupt = Callable[[str, str, random.Random], str | None]
"""A rewriting, another text of its kind, and chance give the corrupted one; None where it has no
room for this."""


def _one_place(pattern: str, change: Callable[[str, random.Random], str]) -> Corrupt:
    """One place that fits is changed."""

    def corrupt(text: str, _: str, chance: random.Random) -> str | None:
        found = list(re.finditer(pattern, text))
        if not found:
            return None
        place = chance.choice(found)
        return f"{text[: place.start()]}{change(place[0], chance)}{text[place.end() :]}"

    return corrupt


def _one_word(pairs: Mapping[str, str]) -> Corrupt:
    return _one_place(rf"\b({'|'.join(pairs)})\b", lambda word, _: pairs[word])


def _exchanged(pattern: re.Pattern[str]) -> Corrupt:
    """Two of a kind that differ change places, in all places."""

    def corrupt(text: str, _: str, chance: random.Random) -> str | None:
        found = sorted({one[0] for one in pattern.finditer(text)})
        if len(found) < 2:
            return None
        one, other = chance.sample(found, 2)
        places = {one: other, other: one}
        return re.sub(rf"\b({one}|{other})\b", lambda match: places[match[0]], text)

    return corrupt


def _another_name(text: str, other: str, chance: random.Random) -> str | None:
    here = sorted({one[0] for one in _NAME.finditer(text)})
    there = sorted({one[0] for one in _NAME.finditer(other)} - set(here))
    if not here or not there:
        return None
    return re.sub(rf"\b{chance.choice(here)}\b", chance.choice(there), text)


def _without_sentence(text: str, _: str, chance: random.Random) -> str | None:
    parts = sentences(text)
    if len(parts) < 2:
        return None
    parts.pop(chance.randrange(len(parts)))
    return " ".join(parts)


def _with_sentence(text: str, other: str, chance: random.Random) -> str | None:
    added = [one for one in sentences(other) if len(one.split()) > 4 and one not in text]
    return f"{text} {chance.choice(added)}" if added else None


KINDS: Final[dict[str, Corrupt]] = {
    "number changed": _one_place(
        r"\b\d+\b", lambda told, chance: str(int(told) + chance.randint(1, 9))
    ),
    "numbers exchanged": _exchanged(_NUMBER),
    "name replaced": _another_name,
    "names exchanged": _exchanged(_NAME),
    "unit changed": _one_word(_WORDS["units"]),
    "negation added": _one_place(
        r"\b(is|are|was|were|can|will|has|must)\b(?! not)", lambda verb, _: f"{verb} not"
    ),
    "negation taken away": _one_place(r"\b(not|never) ", lambda *_: ""),
    "sentence left out": _without_sentence,
    "clause left out": _one_place(_CLAUSE, lambda *_: ""),
    "sentence added": _with_sentence,
    "word turned round": _one_word(_WORDS["opposites"]),
}
"""What may go wrong with a rewriting."""


@dataclass(slots=True)
class Count:
    """Of one kind of corruption in texts of one kind."""

    planted: int = 0
    caught: int = 0
    good_refused: int = 0
    """Rewritings that were refused before they were corrupted: false alarms."""


def conduct(quick: bool, place: Workplace) -> Page:
    """The study; quick: few texts."""
    rows: dict[tuple[str, str], Count] = {}
    good: dict[str, tuple[int, int]] = {}
    for name, texts in corpora(20 if quick else 120).items():
        counts, refused = count(texts, seed=2)
        rows |= {(kind, name): one for kind, one in counts.items()}
        good[name] = (refused, len(texts))
        place.tell(f"{name}: {refused} of {len(texts)} good rewritings refused")
    return page(rows, good)


def corpora(size: int) -> dict[str, list[str]]:
    """So many texts of each kind, or as many as there are."""
    prose = [" ".join(text.split()) for _, text in toy.programs_prose()]
    prose = [text for text in prose if 30 <= len(text.split()) <= 160]
    sums = [text for text, _ in toy.sums(size, seed=78)]
    return {"prose": prose[:size], "voyages": voyages(size, seed=6), "sums": sums}


def voyages(count: int, seed: int) -> list[str]:
    """Invented voyages, each with three names and numbers with units."""
    chance = random.Random(f"voyages {seed}")
    told: list[str] = []
    for _ in range(count):
        home, port = chance.sample(_WORDS["ports"], 2)
        captain, buyer = chance.sample(_WORDS["people"], 2)
        numbers = {name: chance.randint(*ends) for name, ends in _WORDS["drawn"].items()}
        names = {"home": home, "port": port, "captain": captain, "buyer": buyer}
        told.append(" ".join(_WORDS["voyage"]).format(**names, **numbers))
    return told


def count(texts: Sequence[str], seed: int) -> tuple[dict[str, Count], int]:
    """What was planted and caught of each kind, and how many good rewritings were refused."""
    chance = random.Random(f"corruptions {seed}")
    found: dict[str, Count] = defaultdict(Count)
    refused = 0
    for at, text in enumerate(texts):
        style = STYLES[_STYLES[at % len(_STYLES)]]
        said = rewrite(text, style, RuleGenerator(), 128, seed).text
        alarm = bool(judge(text, said).faults)
        refused += alarm
        for kind, corrupt in KINDS.items():
            bad = corrupt(said, texts[at - 1], chance)
            if bad is None or bad == said:
                continue
            found[kind].planted += 1
            found[kind].caught += bool(judge(text, bad).faults)
            found[kind].good_refused += alarm
    return dict(found), refused


def page(rows: Mapping[tuple[str, str], Count], good: Mapping[str, tuple[int, int]]) -> Page:
    """What came out. `good` are refused and all good rewritings, by text."""
    recalls = {key: row.caught / row.planted for key, row in rows.items() if row.planted >= 20}
    facts = {
        "styles": _STYLES,
        "refused": {name: share(*pair) for name, pair in good.items()},
        "weak": sorted({kind for (kind, _), value in recalls.items() if value < 0.9}),
        "rows": sorted(rows.items()),
        "share": share,
    }
    return Page("fidelity", facts)


def share(part: int, whole: int) -> str:
    """A share with its 95 % interval."""
    if not whole:
        return "none"
    low, high = wilson(part / whole, whole, _Z)
    return f"{part / whole:.3f} ({low:.3f} to {high:.3f})"


if __name__ == "__main__":
    sys.exit(main(conduct, "Corrupted rewritings, and the check that should catch them."))
