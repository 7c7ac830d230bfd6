"""How long two passes take that run as a pair, and when each has its result.

The engine's order, block by block: a block is the kernels up to the next exchange, and what
follows up to the next kernels; blocks of the two passes take turns, the backward's first. Each pass
waits for its own exchanges, which run under kernels of the other and slow them. Every kind of work
is in order. Links are to themselves, and exchanges beside kernels of their own pass are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from twin.hardware.roofline import slowdown
from twin.planning.beside_turns import Numbers

WORK: Final = ("kernels", "tensor", "context", "expert", "gather", "reduce")
KERNELS, TENSOR, CONTEXT, EXPERT, GATHER, REDUCE = range(len(WORK))
"""What a piece is: kernels, exchanges by group, and ZeRO's gathers and reductions of a layer."""


class Piece(NamedTuple):
    """A part of a pass through one layer."""

    work: int
    seconds: float
    bound: float = 0.0
    """Of kernels: the seconds that SMs bound."""
    sms: int = 0
    """Of exchanges: those that they hold."""
    asked: bool = False
    """Whether the host waits for its end, so that nothing runs beside it."""
    aside: bool = False
    """Of kernels: whether they do not wait for the exchange before them."""


EXCHANGES: Final = (TENSOR, CONTEXT, EXPERT, GATHER, REDUCE)
Pieces: TypeAlias = tuple[Piece, ...]
NOTHING: Final[Pieces] = (Piece(KERNELS, 0.0),)
"""A pass through no layer."""


class PairTimes(NamedTuple):
    """Nanoseconds from the start of a pair."""

    length: int
    """Until its kernels are through."""
    begins: int
    """Until the forward begins."""
    forward: int
    """Until each pass has its result."""
    backward: int


class Spans(NamedTuple):
    """Of one pass of a pair: which of `PASSES` it is, and layers of chunks by memory policy, from
    the first to one past the last."""

    of: int
    policy: Numbers
    first: Numbers
    end: Numbers


@dataclass(slots=True)
class _Lane:
    """One of the two passes."""

    begins: float | None = None
    tail: float = 0.0
    """From when on its next piece may run."""
    before: float = 0.0
    """From when on its last exchange could."""
    kernels: float = 0.0
    """The end of its last kernels."""
    result: float = 0.0
    reduced: float = 0.0
    layers: list[float] = field(default_factory=list[float])
    """When its first kernels could begin, and the last kernels of each gathered layer end."""

    def start(self, piece: Piece) -> float:
        """From when on a piece may run, but for others of its work."""
        if piece.work != GATHER:
            return self.before if piece.aside else self.tail
        self.layers.append(self.kernels)
        return self.layers[max(0, len(self.layers) - 2)]

    def ends(self, piece: Piece, start: float, end: float) -> None:
        """What waits for a piece that ends."""
        if piece.work == REDUCE:
            # The next layer waits for the reduction before this one.
            self.tail, self.reduced = max(self.tail, self.reduced), end
            return
        if piece.work not in (KERNELS, GATHER):
            self.before = self.tail
        self.tail = max(self.tail, end)
        if piece.work == GATHER:
            return
        self.result = end
        if piece.work == KERNELS:
            self.kernels = end
            self.begins = start if self.begins is None else self.begins


@dataclass(frozen=True, slots=True)
class Gpu:
    """What kernels lose beside exchanges."""

    sms: int
    contention: float

    def end(self, piece: Piece, start: float, free: Sequence[float], held: Sequence[int]) -> float:
        """When a piece that starts ends; `free`: when each work is through, `held`: its SMs."""
        if piece.work != KERNELS or not piece.seconds:
            return start + piece.seconds
        left, share = piece.seconds, piece.bound / piece.seconds
        beside = sorted((free[work], held[work]) for work in EXCHANGES if held[work])
        taken = sum(sms for until, sms in beside if until > start)
        for until, sms in beside:
            if until > start:
                slower = slowdown(share, min(taken, self.sms // 2), self.sms, self.contention)
                if left * slower <= until - start:
                    return start + left * slower
                left, start, taken = left - (until - start) / slower, until, taken - sms
        return start + left


def pair_times(forward: Sequence[Pieces], backward: Sequence[Pieces], gpu: Gpu) -> PairTimes:
    """Of a pass through these layers and a backward through those, in the order of each."""
    lanes = _Lane(), _Lane()
    free, held, answered = [0.0] * len(WORK), [0] * len(WORK), 0.0
    for lane, block in _in_turn(_blocks(forward), _blocks(backward)):
        own = lanes[lane]
        for piece in block:
            start = max(own.start(piece), free[piece.work], answered)
            end = free[piece.work] = gpu.end(piece, start, free, held)
            held[piece.work] = piece.sms
            own.ends(piece, start, end)
            answered = end if piece.asked else answered
    there, back = lanes
    moments = free[KERNELS], there.begins or 0.0, there.result, back.result
    return PairTimes(*(round(one * 1e9) for one in moments))


def _in_turn(forward: Sequence[Pieces], backward: Sequence[Pieces]) -> Iterator[tuple[int, Pieces]]:
    for there, back in zip_longest(forward, backward, fillvalue=()):
        yield 1, back
        yield 0, there


def _blocks(layers: Sequence[Pieces]) -> list[Pieces]:
    """What the host waits for hides under nothing, so no block ends there."""
    pieces = tuple(piece for layer in layers for piece in layer) or NOTHING
    if pieces[0].work == GATHER:
        pieces = (*NOTHING, *pieces)
    kernels = [piece.work == KERNELS or piece.asked for piece in pieces]
    starts = [i for i in range(1, len(pieces)) if kernels[i] and not kernels[i - 1]]
    return [pieces[a:b] for a, b in pairwise((0, *starts, len(pieces)))]


class PairTable:
    """The times of pairs of chunks, each worked out once."""

    def __init__(self, stacks: Sequence[Sequence[Sequence[Pieces]]], gpu: Gpu) -> None:
        """Of layers by memory policy, place and pass."""
        self._gpu = gpu
        numbers: dict[Pieces, int] = {}
        self._numbers: list[list[list[int]]] = [
            [[numbers.setdefault(pieces, len(numbers)) for pieces in layer] for layer in stack]
            for stack in stacks
        ]
        self._pieces = [*numbers]
        self._known: dict[tuple[Sequence[int], Sequence[int]], PairTimes] = {}
        self._met: dict[tuple[int, int, int, int], PairTimes] = {}
        """By what spans say, which is quicker to compare than their layers."""

    def times(self, forward: Spans, backward: Spans) -> Numbers:
        """Of pairs of chunks, `PairTimes` in rows."""
        met, ways = self._met, (forward.of, backward.of)
        both = zip(self._codes(forward), self._codes(backward), strict=True)
        keys = [(*ways, *codes) for codes in both]
        return np.array([met.get(key) or self._meet(key) for key in keys], np.int64).T

    def _codes(self, spans: Spans) -> list[int]:
        size = 1 + len(self._numbers[0])
        codes: list[int] = ((spans.policy * size + spans.first) * size + spans.end).tolist()
        return codes

    def _meet(self, key: tuple[int, int, int, int]) -> PairTimes:
        there, back = (self._layers(of, code) for of, code in zip(key[:2], key[2:], strict=True))
        self._met[key] = self._of(there, back)
        return self._met[key]

    def _layers(self, of: int, code: int) -> tuple[int, ...]:
        """The layers of a span in the order of its pass: forwards' is that of the model."""
        size = 1 + len(self._numbers[0])
        (policy, first), end = divmod(code // size, size), code % size
        own = [self._numbers[policy][at][of] for at in range(first, end)]
        return tuple(reversed(own) if of else own)

    def _of(self, forward: tuple[int, ...], backward: tuple[int, ...]) -> PairTimes:
        key = forward, backward
        if key not in self._known:
            there, back = ([self._pieces[number] for number in own] for own in key)
            self._known[key] = pair_times(there, back, self._gpu)
        return self._known[key]
