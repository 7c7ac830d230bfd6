"""The search for an order with a shorter step: from the known orders, first by what they are made
of, then turn by turn.

An order of a looped pipeline is made of rounds of micro-batches, a warm-up per stage, backwards
that are whole or in halves, and pairs or none (`Made`). Its last backwards may be in halves, whose
weights' gradients fill the waits of the cool-down: what zero-bubble orders do (Qi et al. 2023,
section 3). Any of it changes, and the change stays where the step gets shorter. The best orders are
then changed turn by turn (`twin.explore.schedules.kernel.anneal`).

Of a step of many micro-batches a shorter one is searched, with the same ends. What repeats stays as
it is, and runs as often as the whole step needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final, TypeAlias

import numpy as np

from twin.explore.schedules.kernel import NEVER, Codes
from twin.explore.schedules.machine import kernel
from twin.explore.schedules.tables import (
    DURING,
    LEAVES,
    STAGE,
    Bytes,
    Numbers,
    Tables,
    code_of,
    turn_of,
)
from twin.schedules.notation import Parts, Turn, steady

Words: TypeAlias = tuple[tuple[Turn, ...], ...]

MOST_TURNS: Final = 24_000
"""OURS: turns of a step up to which all of it is searched; a third of a millisecond each time."""
SHARES: Final = (0.05, 0.25, 0.5, 0.75, 1.0)
"""OURS. Of a weights' gradient: waits from which on one fills them. Too small a share delays the
forwards behind a wait; too large a share leaves waits empty."""
BATCH: Final = 200
"""OURS: orders made between two looks at the clock. With more, a search ends late."""
ROUNDS: Final = 2000
"""OURS: changes of turns between two such looks. With fewer, annealing begins anew before it is
cold; with more, a search ends late."""
KEPT: Final = 4
"""OURS: different orders that are handed back, since the light model may order them wrongly. With
fewer, the best by events may be lost; with more, events take as long as the search."""
WARM: Final = 2e-4
COLD: Final = 1e-6
"""OURS: temperatures of annealing, as shares of the step."""


@dataclass(frozen=True)
class Made:
    """What an order of a looped pipeline is made of; tuples by stage."""

    round: int
    """Micro-batches that pass one chunk after the other."""
    warm: tuple[int, ...]
    """Forwards before the first backward."""
    late: tuple[int, ...]
    """Backwards by which weights' gradients come late, where they are in halves."""
    last: tuple[int, ...]
    """Last backwards that are in halves, whose weights' gradients fill waits."""
    halves: bool = False
    pairs: bool = False
    share: float = 0.5
    """Of `SHARES`."""
    known: int | None = None
    """The known order that it is, but for its last backwards; None: all of the above."""


@dataclass(frozen=True)
class Order:
    """An order, as codes, and its nanoseconds by the light model."""

    words: Codes
    lengths: Numbers
    ns: int
    over: float = 0.0
    """Bytes over the memory of stages, all together."""

    @property
    def rank(self) -> tuple[float, int]:
        """The less the better."""
        return self.over, self.ns

    def turns(self, chunks: int) -> Words:
        """The same in turns."""
        rows = zip(self.words, self.lengths.tolist(), strict=True)
        return tuple(tuple(turn_of(int(c), chunks) for c in row[:n]) for row, n in rows)


def played(tables: Tables, words: Codes, lengths: Numbers) -> Order:
    """An order with its step."""
    ns, over = kernel().play(words, lengths, tables)
    return Order(words, lengths, int(ns), float(over))


def order_of(tables: Tables, words: Sequence[Sequence[Turn]]) -> Order:
    """An order of these turns."""
    chunks = tables.size
    lengths = np.array([len(word) for word in words], np.int64)
    codes = _empty(tables)
    for row, word in zip(codes, words, strict=True):
        row[: len(word)] = [code_of(turn, chunks) for turn in word]
    return played(tables, codes, lengths)


def peaks(tables: Tables, order: Order) -> Bytes:
    """What the passes of each stage hold at its fullest."""
    found: list[float] = []
    for word, length in zip(order.words, order.lengths.tolist(), strict=True):
        left = np.cumsum(tables.held[LEAVES, word[:length]])
        before = left - tables.held[LEAVES, word[:length]]
        found.append(float((before + tables.held[DURING, word[:length]]).max()))
    return np.array(found)


def _empty(tables: Tables) -> Codes:
    """Room for the longest words: every pass in a turn of its own."""
    per_stage = int(np.bincount(tables.chunks[STAGE]).max()) * tables.microbatches
    return np.zeros((tables.stages.shape[1], 3 * per_stage + 4), np.int32)


class Search:
    """The search for orders of one shape, under way."""

    def __init__(
        self,
        tables: Tables,
        known: Sequence[Words],
        *,
        pairs: bool = False,
        seed: int = 0,
        left_out: int = 0,
        before: Search | None = None,
    ) -> None:
        """`known` are orders of as many micro-batches as `tables`; the whole step has more by those
        `left_out`. The orders of a search `before` are played with these tables."""
        self.tables, self.pairs, self.left_out = tables, pairs, left_out
        self.chance = np.random.default_rng(seed)
        self.best: list[Order] = []
        self.looked_at = 0
        if before is not None:
            self.looked_at = before.looked_at
            for order in before.best:
                self._keep(played(tables, order.words, order.lengths))
        self.known = [order_of(tables, words) for words in known]
        for order in self.known:
            self._keep(order)

    def run(self, ends: float) -> Iterator[None]:
        """Search until a time of `monotonic`, batch by batch: a third by what orders are made of,
        the rest turn by turn."""
        begun = monotonic()
        yield from self._by_parts(begun + (ends - begun) / 3)
        while monotonic() < ends:
            self._by_turns()
            yield

    def rounds(self, parts: int, turns: int) -> None:
        """Search so many batches of each kind, whatever the time: twice the same."""
        batches = self._by_parts(np.inf)
        for _ in range(parts):
            next(batches, None)
        for _ in range(turns):
            self._by_turns()

    def _keep(self, order: Order) -> None:
        """Among the best, each step once."""
        if order.ns >= NEVER:
            return
        others = [one for one in self.best if one.rank != order.rank]
        self.best = sorted([*others, order], key=lambda one: one.rank)[:KEPT]

    # By what orders are made of.

    def _by_parts(self, ends: float) -> Iterator[None]:
        """Climb from every kind of order; batch by batch."""
        rows = [(self._made(one).rank, one) for one in self._begin()]
        rows.sort(key=lambda row: row[0])
        while rows and monotonic() < ends:
            rows[:KEPT] = [self._climbed(*row) for row in rows[:KEPT]]
            yield

    def _climbed(self, rank: tuple[float, int], made: Made) -> tuple[tuple[float, int], Made]:
        """What a batch of changes makes of an order."""
        for _ in range(BATCH // KEPT):
            changed = self._varied(made)
            order = self._made(changed)
            if order.rank <= rank:
                rank, made = order.rank, changed
        return rank, made

    def _begin(self) -> Iterator[Made]:
        """1F1B and its kin: interleaved, ZB-H1 and ZB-H2, with pairs and without."""
        tables = self.tables
        stages, chunks = tables.stages.shape[1], tables.size
        for place in range(len(self.known)):
            for last in (2 * stages, 4 * stages):
                yield Made(1, (), (), (last,) * stages, known=place)
        looped = (tables.chunks[STAGE] == np.arange(chunks) % stages).all()
        if not looped or not chunks:
            return
        each = chunks // stages
        none = (0,) * stages
        later = tuple(range(stages - 1, -1, -1))
        size = min(stages, tables.microbatches)
        for deep in (1, 2):
            first = (each - 1) * size if each > 1 else 0
            step = 2 if each > 1 else deep
            warm = tuple(first + step * one + (deep - 1) * (each > 1) for one in later)
            plain = Made(size, warm, none, none)
            yield plain
            yield replace(plain, last=tuple(4 * each * one for one in range(1, stages + 1)))
            yield replace(plain, halves=True, late=tuple(deep * one for one in range(stages)))
            if self.pairs and each > 1 and deep == 2:
                yield replace(plain, pairs=True)
                yield replace(plain, pairs=True, last=(2 * size,) * stages)
                yield replace(plain, pairs=True, halves=True)

    def _made(self, made: Made) -> Order:
        """The order that is made of this."""
        tables, code = self.tables, kernel()
        last = np.array(made.last, np.int64)
        words, lengths = self._begun(made)
        self.looked_at += 1
        if last.any():
            words, lengths, since = code.split_last(words, lengths, last, tables)
            words, ran = code.fill(words, lengths, since, made.share, tables)
            if not ran:
                return Order(words, lengths, NEVER, np.inf)
        order = played(tables, words, lengths)
        self._keep(order)
        return order

    def _begun(self, made: Made) -> tuple[Codes, Numbers]:
        """Its words before its last backwards are changed."""
        if made.known is not None:
            return self.known[made.known].words, self.known[made.known].lengths
        warm, late = np.array(made.warm, np.int64), np.array(made.late, np.int64)
        ways = np.array((made.halves, made.pairs), np.int64)
        sequences = _sequences(self.tables, made.round)
        return kernel().build(*sequences, warm, late, self.tables, ways)

    def _varied(self, made: Made) -> Made:
        """With one thing changed."""
        draw = self.chance.integers
        most = int(np.bincount(self.tables.chunks[STAGE]).max()) * self.tables.microbatches
        match int(draw(7)) if made.known is None else int(draw(2, 5)) | 1:
            case 0 | 1:
                return replace(made, warm=self._shifted(made.warm, most))
            case 2 | 3:
                return replace(made, last=self._shifted(made.last, most))
            case 4 if made.halves:
                return replace(made, late=self._shifted(made.late, most))
            case 5:
                return replace(made, share=SHARES[int(draw(len(SHARES)))])
            case _:
                return self._of_another_kind(made)

    def _of_another_kind(self, made: Made) -> Made:
        draw = self.chance.integers
        choice = int(draw(3))
        if choice == 0:
            return replace(made, halves=not made.halves)
        if choice == 1 and self.pairs:
            return replace(made, pairs=not made.pairs)
        size = min(max(1, made.round + int(draw(-2, 3))), self.tables.microbatches)
        return made if self.left_out % size else replace(made, round=size)

    def _shifted(self, values: tuple[int, ...], most: int) -> tuple[int, ...]:
        """More or less of one stage, of all, or of those behind or before one."""
        draw = self.chance.integers
        stages = len(values)
        by = int(draw(1, 3)) * (1 if draw(2) else -1)
        if not draw(4):
            by *= int(draw(1, 1 + max(1, most // 8)))
        first, end = sorted((int(draw(stages)), int(draw(stages))))
        chosen = range(stages) if not draw(3) else range(first, end + 1)
        slope = bool(draw(2))
        return tuple(
            max(0, min(most, one + (by * (place - first + 1) if slope else by)))
            if place in chosen
            else one
            for place, one in enumerate(values)
        )

    # Turn by turn.

    def _by_turns(self) -> None:
        """Anneal one of the best for a batch."""
        if not self.best:
            return
        order = self.best[int(self.chance.integers(min(2, len(self.best))))]
        words, spans = order.words.copy(), _spans(order, self.tables.size)
        heat = WARM * 10 ** float(self.chance.uniform(0, 2))
        settings = ROUNDS, heat, COLD
        chance = self.chance.integers(1, 1 << 30, size=1)
        kernel().anneal(words, spans, self.tables, self.pairs, chance, settings)
        self.looked_at += ROUNDS
        self._keep(played(self.tables, words, spans[:, 0].copy()))


def _spans(order: Order, chunks: int) -> Numbers:
    """Of each stage how many turns it has, and where those begin and end that stay: its steady
    state, where there is one."""
    words = order.turns(chunks)
    spans = np.zeros((len(words), 3), np.int64)
    spans[:, 0] = order.lengths
    for span, word, parts in zip(spans, words, steady(words), strict=True):
        if parts.body:
            span[1] = len(parts.head)
            span[2] = span[1] + _times(word, parts) * len(parts.body)
    return spans


def _times(word: Sequence[Turn], parts: Parts) -> int:
    """How often the steady state comes."""
    return (len(word) - len(parts.once)) // len(parts.body)


def _sequences(tables: Tables, size: int) -> tuple[Codes, Codes]:
    """The chunks of every stage's forwards and backwards in order, in rounds of micro-batches."""
    stages = tables.stages.shape[1]
    forwards: list[list[int]] = []
    backwards: list[list[int]] = []
    for stage in range(stages):
        own: list[int] = np.flatnonzero(tables.chunks[STAGE] == stage).tolist()
        firsts = range(0, tables.microbatches, size)
        rounds = [min(size, tables.microbatches - first) for first in firsts]
        forwards.append([chunk for count in rounds for chunk in own for _ in range(count)])
        backwards.append([chunk for count in rounds for chunk in own[::-1] for _ in range(count)])
    return np.array(forwards, np.int32), np.array(backwards, np.int32)
