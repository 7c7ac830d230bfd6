"""Orders as text: a line of passes for each stage, which people can read and write.

`3F` is the forward of chunk 3, `B` a whole backward, `I` and `W` its halves; chunks are numbered
over all stages, as PyTorch's pipeline schedules name them. Each pass takes the next micro-batch of
its chunk. `3F&0B` is a pair: the forward runs together with the backward. `(0F 0B)*5` runs five
times, `0F*3` three times.

`[...]` is the steady state. It runs as often as there are micro-batches for, so that one text
serves any number of them that is larger by whole periods. A line without it is of one number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, cast

from twin.schedules.base import Action, Pass

Turn: TypeAlias = tuple[tuple[Pass, int], ...]
"""A pass of a chunk, or the two of a pair."""
Counts: TypeAlias = Mapping[tuple[Pass, int], int]
"""How often each pass of each chunk comes."""

MOST_TURNS: Final = 1_000_000
"""Turns of one stage that a line may come to."""
MOST_PERIOD: Final = 64
"""Micro-batches of each chunk that a steady state may be of, to be found."""
LONGEST_GROUP: Final = 96
"""Turns of a group that is looked for again behind itself."""
_WORDS: Final = re.compile(r"[(\[]|[)\]](?:\*\d+)?|[^\s()\[\]]+")
_TURN: Final = re.compile(r"(?:(\d+)F&)?(\d+)([FBIW])")


class Parts(NamedTuple):
    """A line: what comes before its steady state, one period of that, and what comes after."""

    head: tuple[Turn, ...]
    body: tuple[Turn, ...]
    tail: tuple[Turn, ...]

    @property
    def once(self) -> tuple[Turn, ...]:
        """What comes once in a step."""
        return (*self.head, *self.tail)

    @property
    def all(self) -> tuple[Turn, ...]:
        """Each part once."""
        return (*self.head, *self.body, *self.tail)


@lru_cache(maxsize=256)
def read(line: str) -> Parts:
    """The turns of a line. Raises ValueError where it is none."""
    before, opened, rest = line.partition("[")
    body, closed, after = rest.partition("]")
    if bool(opened) != bool(closed) or "[" in body + after or "]" in before + after:
        raise ValueError("write one steady state in brackets, or none")
    return Parts(_expanded(before), _expanded(body), _expanded(after))


def written(parts: Parts) -> str:
    """The line of these turns."""
    head, body, tail = (_packed(tuple(map(_name, part))) for part in parts)
    return " ".join(part for part in (head, f"[{body}]" if body else "", tail) if part)


def turns_of(order: Iterable[Action]) -> Iterator[Turn]:
    """A stage's actions as turns."""
    forward: Action | None = None
    for action in order:
        if action.paired:
            forward = action
            continue
        own = action.kind, action.chunk
        yield (own,) if forward is None else (("F", forward.chunk), own)
        forward = None


def counts(turns: Iterable[Turn]) -> Counter[tuple[Pass, int]]:
    """How often each pass of each chunk comes."""
    return Counter(one for turn in turns for one in turn)


def passes(counted: Counts, kind: str, chunk: int) -> int:
    """Forwards of a chunk, or its backwards, whether whole or in halves."""
    kinds: tuple[Pass, ...] = ("F",) if kind == "F" else ("B", "I")
    return sum(counted.get((one, chunk), 0) for one in kinds)


def steady(words: Sequence[Sequence[Turn]]) -> list[Parts]:
    """The turns of stages with the steady state that all share told apart: the shortest period that
    comes at least twice."""
    forwards = min((counts(word)["F", word[0][0][1]] for word in words if word), default=0)
    for period in range(1, min(forwards // 2, MOST_PERIOD) + 1):
        stretches = [_stretch(word, period) for word in words]
        times = min((end - begin) // width for begin, end, width in stretches)
        if times >= 2:
            return [
                Parts(
                    tuple(word[:begin]),
                    tuple(word[begin : begin + width]),
                    tuple(word[begin + times * width :]),
                )
                for word, (begin, _, width) in zip(words, stretches, strict=True)
            ]
    return [Parts(tuple(word), (), ()) for word in words]


def _expanded(text: str) -> tuple[Turn, ...]:
    """The turns of a line, or of a part of it, as often as each comes."""
    groups: list[list[Turn]] = [[]]
    for word in cast("list[str]", _WORDS.findall(text)):
        name, _, times = word.partition("*")
        if name == "(":
            groups.append([])
            continue
        if name == ")" and len(groups) == 1:
            raise ValueError("a bracket is closed that was not opened")
        group = groups.pop() if name == ")" else [_turn(name)]
        if times and not times.isdecimal():
            raise ValueError(f"`{word}` repeats no whole number of times")
        if len(group) * int(times or 1) + len(groups[-1]) > MOST_TURNS:
            raise ValueError(f"there are more than {MOST_TURNS:,} turns")
        groups[-1] += group * int(times or 1)
    if len(groups) > 1:
        raise ValueError("a bracket is not closed")
    return tuple(groups[0])


@lru_cache(maxsize=4096)
def _turn(name: str) -> Turn:
    found = _TURN.fullmatch(name)
    if found is None or (found[1] and found[3] not in "BI"):
        raise ValueError(f"`{name}` is no pass: write 3F, 3B, 3I, 3W, or a pair 3F&0B")
    own = cast(Pass, found[3]), int(found[2])
    return (("F", int(found[1])), own) if found[1] else (own,)


def _name(turn: Turn) -> str:
    return "&".join(f"{chunk}{kind}" for kind, chunk in turn)


def _stretch(word: Sequence[Turn], period: int) -> tuple[int, int, int]:
    """The longest stretch that repeats after so many forwards of each chunk: where it begins and
    ends, and its turns per period."""
    places = [at for at, turn in enumerate(word) if ("F", word[0][0][1]) in turn]
    last = len(places) - period - 1
    starts = {last // 4, last // 2, 3 * last // 4, last}
    found = [_around(word, places[at], places[at + period], period) for at in starts]
    return max(found, key=lambda one: (one[1] - one[0]) // one[2])


def _around(word: Sequence[Turn], begin: int, after: int, period: int) -> tuple[int, int, int]:
    """The stretch around the turns from one forward up to another."""
    width, end = after - begin, begin
    if not _repeatable(counts(word[begin:after]), period):
        return 0, 0, width
    while begin > 0 and word[begin - 1] == word[begin - 1 + width]:
        begin -= 1
    while end + width < len(word) and word[end] == word[end + width]:
        end += 1
    return begin, end + width if end > begin else end, width


def _repeatable(counted: Counts, period: int) -> bool:
    """Whether these passes are those of so many micro-batches."""
    chunks = {chunk for _, chunk in counted}
    whole = all(passes(counted, kind, one) == period for one in chunks for kind in "FB")
    return whole and all(counted.get(("I", c), 0) == counted.get(("W", c), 0) for c in chunks)


def _packed(names: Sequence[str]) -> str:
    """Names with what repeats written once."""
    found: list[str] = []
    at = 0
    while at < len(names):
        width, times = _repetition(names, at)
        group = names[at : at + width]
        if times == 1:
            found.append(names[at])
            at += 1
            continue
        inner = group[0] if width == 1 else f"({_packed(group)})"
        found.append(f"{inner}*{times}")
        at += width * times
    return " ".join(found)


def _repetition(names: Sequence[str], at: int) -> tuple[int, int]:
    """The group that begins here and saves most where it is written once: its names, and how often
    it comes."""
    best = (1, 1)
    for width in range(1, min(LONGEST_GROUP, (len(names) - at) // 2) + 1):
        times = 1
        while names[at : at + width] == names[at + times * width : at + (times + 1) * width]:
            times += 1
        if width * (times - 1) > best[0] * (best[1] - 1):
            best = (width, times)
    return best
