"""Quality rules: each one small, named, with its source; a document goes by the first it breaks.

Gopher: Rae et al. 2021, arXiv:2112.11446, section A1.1 (stop words, lengths, symbols) and table A1
(repetition). C4: Raffel et al. 2020, arXiv:1910.10683, section 2.2: fewer than 3 sentences, `{`,
lorem ipsum; code after it (datatrove) takes 5. FineWeb: Penedo et al. 2024, arXiv:2406.17557,
section 3.6: at most 0.12 of lines end with a mark, at least 0.1 of characters in copies of lines,
at least 0.67 of lines under 30 characters. Its own appendix (E.4, table 2) has 0.01 for the copies,
as has the code that made the data (datatrove, `FineWebQualityFilter`, called with its defaults in
`examples/fineweb.py`): 0.1 here is the text's, the milder one. Codex: Chen et al. 2021,
arXiv:2107.03374, section 3.1 (it gives no share of alphanumeric characters: 0.25 is that of The
Stack, Kocetkov et al. 2022, arXiv:2211.15533). Gopher names bullet points: that `-` and `*` count
as such is OURS, and that stop words count in any case. Words are runs between white space.
Rules for prose are meant for English; on other languages `gopher-stop-words` drops everything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from reference.data.spec import Domain, SourceSpec
from reference.data.stage import Dropped, Record
from twin.errors import Problem, UsageError

_STOP: Final = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})
_ENDS: Final = (".", "!", "?", '"', "'")
_BULLETS: Final = ("\u2022", "-", "*")
_ELLIPSES: Final = ("...", "\u2026")
_SENTENCE_END: Final = re.compile(r"[.!?](?:[\s\"')\]]|$)")
_TOP: Final = {2: 0.20, 3: 0.18, 4: 0.16}
_REPEATED: Final = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))


@dataclass(frozen=True)
class Text:
    """A text with what several rules look at."""

    whole: str

    @cached_property
    def words(self) -> list[str]:
        """Between white space."""
        return self.whole.split()

    @cached_property
    def lines(self) -> list[str]:
        """Without white space around; empty ones are none."""
        return [line.strip() for line in self.whole.splitlines() if line.strip()]

    @cached_property
    def paragraphs(self) -> list[str]:
        """Parted by an empty line."""
        return [part.strip() for part in re.split(r"\n\s*\n", self.whole) if part.strip()]


Breaks = Callable[[Text], bool]


def _share(things: Sequence[str], test: Callable[[str], bool]) -> float:
    return sum(map(test, things)) / len(things) if things else 0.0


def _repeated(things: Sequence[str]) -> float:
    """Share of things that were there before."""
    return 1 - len(set(things)) / len(things) if things else 0.0


def _repeated_characters(things: Sequence[str], whole: str) -> float:
    """Characters of things that were there before, of all."""
    counts = Counter(things)
    again = sum(len(thing) * (count - 1) for thing, count in counts.items())
    return again / len(whole) if whole else 0.0


def _has_letter(word: str) -> bool:
    return any(map(str.isalpha, word))


def _repetitive(things: Sequence[str], whole: str) -> bool:
    return _repeated(things) > 0.30 or _repeated_characters(things, whole) > 0.20


def _word_length(text: Text) -> bool:
    mean = sum(map(len, text.words)) / len(text.words) if text.words else 0.0
    return not 3 <= mean <= 10


def _symbols(text: Text) -> bool:
    words = max(1, len(text.words))
    ellipses = sum(map(text.whole.count, _ELLIPSES))
    return text.whole.count("#") / words > 0.1 or ellipses / words > 0.1


def _top_grams(text: Text) -> bool:
    """The characters of the commonest gram in all its places, overlapping ones counted twice."""
    for length, most in _TOP.items():
        grams = Counter(_grams(text.words, length))
        if not grams:
            return False
        gram, count = max(grams.items(), key=lambda item: (item[1], len(" ".join(item[0]))))
        if count > 1 and count * sum(map(len, gram)) / _letters_of(text) > most:
            return True
    return False


def _in_repeated(text: Text, length: int, most: float) -> bool:
    """Whether more characters lie in grams that occurred before; each word counts once."""
    seen: set[tuple[str, ...]] = set()
    covered = [False] * len(text.words)
    for start, gram in enumerate(_grams(text.words, length)):
        if gram in seen:
            covered[start : start + length] = [True] * length
        seen.add(gram)
    again = sum(len(word) for word, there in zip(text.words, covered, strict=True) if there)
    return again / _letters_of(text) > most


def _grams(words: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[at : at + length]) for at in range(len(words) - length + 1))


def _letters_of(text: Text) -> int:
    return max(1, sum(map(len, text.words)))


def _long_lines(text: Text) -> bool:
    lengths = [len(line) for line in text.whole.splitlines()] or [0]
    return sum(lengths) / len(lengths) > 100 or max(lengths) > 1000


RULES: Final[dict[str, Breaks]] = {
    "gopher-length": lambda text: not 50 <= len(text.words) <= 100_000,
    "gopher-word-length": _word_length,
    "gopher-symbols": _symbols,
    "gopher-bullets": lambda text: _share(text.lines, lambda line: line.startswith(_BULLETS)) > 0.9,
    "gopher-ellipses": lambda text: _share(text.lines, lambda line: line.endswith(_ELLIPSES)) > 0.3,
    "gopher-letters": lambda text: _share(text.words, _has_letter) < 0.8,
    "gopher-stop-words": lambda text: sum(word.lower() in _STOP for word in text.words) < 2,
    "gopher-repeated-lines": lambda text: _repetitive(text.lines, text.whole),
    "gopher-repeated-paragraphs": lambda text: _repetitive(text.paragraphs, text.whole),
    "gopher-top-grams": _top_grams,
    "gopher-repeated-grams": lambda text: any(_in_repeated(text, *most) for most in _REPEATED),
    "c4-placeholder": lambda text: "lorem ipsum" in text.whole.lower(),
    "c4-braces": lambda text: "{" in text.whole,
    "c4-sentences": lambda text: len(_SENTENCE_END.findall(text.whole)) < 3,
    "fineweb-line-ends": lambda text: _share(text.lines, lambda line: line.endswith(_ENDS)) <= 0.12,
    "fineweb-line-copies": lambda text: _repeated_characters(text.lines, text.whole) >= 0.1,
    "fineweb-short-lines": lambda text: _share(text.lines, lambda line: len(line) < 30) >= 0.67,
    "codex-long-lines": _long_lines,
    "stack-alphanumeric": lambda text: sum(map(str.isalnum, text.whole)) < 0.25 * len(text.whole),
}
"""Every rule by its name: whether a text breaks it."""

_GOPHER: Final = tuple(name for name in RULES if name.startswith("gopher"))
_REPETITION: Final = tuple(
    name for name in _GOPHER if "repeated" in name or name == "gopher-top-grams"
)
OF_DOMAIN: Final[Mapping[Domain, tuple[str, ...]]] = {
    "web": tuple(name for name in RULES if not name.startswith(("codex", "stack"))),
    "knowledge": _GOPHER,
    "maths": _REPETITION,
    "code": ("codex-long-lines", "stack-alphanumeric"),
}
"""Rules where a source names none: the choice by domain is OURS. Formulas have few words that are
words, and programs repeat themselves."""


def rules_of(source: SourceSpec) -> tuple[str, ...]:
    """The rules of a source, in order. Raises `UsageError` TW471 on an unknown one."""
    names = OF_DOMAIN[source.domain] if source.rules is None else source.rules
    for name in names:
        if name not in RULES:
            wrong, path = f"there is no quality rule `{name}`", f"sources.{source.name}.rules"
            raise UsageError([Problem("TW471", path, wrong, f"one of {', '.join(RULES)}")])
    return names


def good(
    records: Iterable[Record], rules: Mapping[str, Sequence[str]]
) -> Iterator[Record | Dropped]:
    """Each record that breaks no rule of its source; for others what is dropped, and why."""
    for record in records:
        text = Text(record.text)
        broken = next((name for name in rules[record.source] if RULES[name](text)), None)
        yield record if broken is None else Dropped(record.source, broken, record.id)
