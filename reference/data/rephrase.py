"""Rephrasing, and whether a rewriting is faithful.

Rephrasing as a stage: documents are rewritten piece by piece, each with the end of the
rewriting so far as context.

Kimi K2 (arXiv:2507.20534, section 2.2 and figure 4): excerpts are cut into pieces, each is
rewritten in the light of what was written before, and the rewritings are put together.

The stage keeps a journal of one line per document and rephrasing. What a generator wrote is on the
disk before the next document is asked for, and a build that was killed asks for none of it again; a
half line at the end of the journal is cut off. A rewriting with a fault is left out and counted,
and its source stays.

Whether a rewriting says what its source says: no more, no less, nothing else.

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

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from reference.data.spec import STYLES, Kind, RephraseSpec, Style
from reference.data.stage import Dropped, Record, StageWork, read_records, write_kept
from reference.dialog import Message
from reference.files import yaml_table
from reference.generate.choose import choose
from reference.generate.request import ChatRequest, Generator, Sampling
from reference.text.documents import cut, sentences

_WORD: Final = re.compile(
    r"[A-Za-z\u00c0-\u024f]+(?:['\u2019][a-z]+)?|[\u4e00-\u9fff]|\d[\d,.]*\d|\d"
)
_WORDS: Final[dict[str, str]] = yaml_table(Path(__file__).with_name("fidelity.yaml"))
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


REWRITES: Final = "rewrites.jsonl"
_JOURNAL: Final = "journal.jsonl"
_ROOM: Final = 4
"""Tokens that an answer may have per word of the piece: about 1.3 tokens a word, three times as
long. OURS."""

_SKILLS: Final = {"rewrite": "rephrase", "translate": "translate"}
"""What rules go by; a model reads the messages."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewriting and its parts."""

    text: str
    pieces: tuple[tuple[int, int, int, int], ...]
    """Of each: begin and end in the source, begin and end in the rewriting, in characters."""


def rewrite(text: str, style: Style, generator: Generator, words: int, seed: int) -> Rewrite:
    """The whole text, rewritten in pieces of about `words` words; the carried context is as many
    words. What the generator raises goes through."""
    written = ""
    pieces: list[tuple[int, int, int, int]] = []
    for begin, end in cut(text, words):
        sampling = Sampling(max_tokens=_ROOM * words, seed=_seed(seed, style.name, text, begin))
        asked = messages(style, text[begin:end].strip(), _tail(written, words))
        request = ChatRequest(
            asked, (), sampling, {"kind": _SKILLS[style.kind], "style": style.name}
        )
        answer = generator.complete(request).text.strip()
        start = len(written) + (1 if written else 0)
        written = f"{written}\n{answer}" if written else answer
        pieces.append((begin, end, start, len(written)))
    return Rewrite(written, tuple(pieces))


def messages(style: Style, passage: str, context: str) -> tuple[Message, ...]:
    """What the generator is asked."""
    before = f"<before>\n{context}\n</before>\n" if context else ""
    task = f"{before}<passage>\n{passage}\n</passage>"
    system = f"{style.instruction} Style: {style.name}."
    if context:
        system += " Go on where the text in <before> ends; do not repeat it."
    return Message("system", system), Message("user", task)


def _tail(written: str, words: int) -> str:
    return " ".join(written.split()[-words:])


def _seed(seed: int, style: str, text: str, begin: int) -> int:
    """Of one piece of one text: the same whatever was rewritten before."""
    whole = hashlib.blake2b(f"{seed}:{style}:{begin}:".encode(), digest_size=4)
    whole.update(text.encode())
    return int.from_bytes(whole.digest(), "big") % 10**9  # the most of `Sampling`


def rephrase(work: StageWork, generator: Generator | None) -> dict[str, Any]:
    """Writes the rewritings that are kept, in order; the report. Raises what the generator does,
    such as `UsageError` TW475 where rules are to translate what they cannot."""
    generator = generator or choose(work.spec.generator)
    journal = work.own / _JOURNAL
    done = _whole_lines(journal)
    with journal.open("ab") as lines:
        for number, (turn, record) in enumerate(_tasks(work)):
            if number < done:
                continue
            found = _rewritten(record, work.spec.rephrase[turn], generator, work.spec.seed + turn)
            if isinstance(found, Record):
                found = replace(found, made={"generator": work.spec.generator, **found.made})
            kind = "loss" if isinstance(found, Dropped) else "record"
            line = json.dumps({kind: asdict(found)}, ensure_ascii=False, separators=(",", ":"))
            lines.write(line.encode() + b"\n")
            lines.flush()
            os.fsync(lines.fileno())
            work.reached("rephrase:document")
    return write_kept(work.own / REWRITES, _written(journal), lambda _: None)


def _tasks(work: StageWork) -> Iterator[tuple[int, Record]]:
    """Each rephrasing of each document, by the number of the rephrasing."""
    for turn, one in enumerate(work.spec.rephrase):
        for record in read_records(work.of("hold_out", "training.jsonl")):
            if record.source == one.source:
                yield turn, record


def _rewritten(
    record: Record, spec: RephraseSpec, generator: Generator, seed: int
) -> Record | Dropped:
    style = STYLES[spec.style]
    found = rewrite(record.text, style, generator, spec.piece, seed)
    fidelity = judge(record.text, found.text, style.kind)
    if fidelity.faults:
        kinds = sorted({fault.partition(":")[0] for fault in fidelity.faults})
        place = f"{record.id} ({fidelity.faults[0]})"
        return Dropped(record.source, f"{spec.style}: {kinds[0]}", place)
    made = {
        "pieces": [list(piece) for piece in found.pieces],
        "fidelity": fidelity.facts(),
    }
    # The seed tells two rephrasings of one style apart.
    name = f"{record.id}#{spec.style}-{seed}"
    return Record(name, record.source, record.domain, found.text, spec.style, record.id, made)


def _whole_lines(journal: Path) -> int:
    """How many documents the journal has; what follows its last whole line is cut off."""
    if not journal.exists():
        return 0
    with journal.open("rb+") as lines:
        count = whole = 0
        for line in lines:
            if line.endswith(b"\n"):
                count, whole = count + 1, whole + len(line)
        lines.truncate(whole)
    return count


def _written(journal: Path) -> Iterator[Record | Dropped]:
    with journal.open("rb") as lines:
        for line in lines:
            found = json.loads(line)
            yield Dropped(**found["loss"]) if "loss" in found else Record(**found["record"])
