"""Which tokens the next step computes: continuous batching (Yu et al. 2022, Orca, section 3.1) with
chunked prompts beside decoding (Agrawal et al. 2023, Sarathi, arXiv:2308.16369).

Sequences join and leave between steps. A step takes one token of each sequence that decodes, oldest
first, then chunks of prompts up to `step_tokens`. Waiting sequences start in the order of arrival,
when the free blocks hold all their tokens so far. When a running sequence finds no block, the
youngest gives all of its blocks back, waits at the head of the queue, and is computed again later;
it keeps its tokens, so that what was told stays true. No request is larger than the cache, so the
oldest always advances.

A choice of a request while it runs: its tokens, how many the cache holds, and its text.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field

from reference.inference.forward import BlockPool, chain
from reference.inference.request import Constraint, EngineRequest
from reference.inference.spec import EngineSpec


class TextDecoder:
    """The text of one choice, token by token."""

    def __init__(self, stop: ListOf[str]) -> None:
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False

    def add(self, piece: bytes, *, stops: bool = True) -> str:
        """Text that is now certain; nothing more once a stop string was met. Without `stops` no
        stop string is looked for."""
        text = self._decoder.decode(piece)
        if stops or self.stopped:
            return self._release(text)
        held, self._held = self._held, ""
        return held + text

    def flush(self) -> str:
        """What is held back, where a marker ends the text; half a character becomes `\ufffd`."""
        text = self._held + self._decoder.decode(b"", final=True)
        self._held = ""
        self._decoder.reset()
        return "" if self.stopped else text

    def end(self) -> str:
        """What is left when the choice ends."""
        last = self._release(self._decoder.decode(b"", final=True))
        held, self._held = ("" if self.stopped else self._held), ""
        return last + held

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        whole = self._held + text
        found = [at for stop in self._stop if (at := whole.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return whole[: min(found)]
        keep = max((_overlap(whole, stop) for stop in self._stop), default=0)
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]


def _overlap(text: str, stop: str) -> int:
    """The longest end of the text that begins a stop string."""
    most = min(len(text), len(stop) - 1)
    return next((size for size in range(most, 0, -1) if stop.startswith(text[-size:])), 0)


@dataclass(slots=True, eq=False)
class Sequence:
    """Prompt and words so far. `computed` tokens of it stand in `blocks`."""

    request: EngineRequest
    number: int
    """Of the request."""
    choice: int
    arrival: int
    """Its place in line; of two the larger one is the younger."""
    leader: Sequence | None
    """The first choice of the same request, whose prompt this one shares."""
    tokens: list[int]
    words: TextDecoder
    constraint: Constraint | None
    blocks: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    """Keys of the full blocks at its beginning."""
    computed: int = 0
    cached: int = 0
    """Tokens of the prompt that it found in the cache when it first ran; -1: it has not run."""
    ended: bool = False

    @property
    def pending(self) -> int:
        """Tokens that no step has computed yet."""
        return len(self.tokens) - self.computed

    @property
    def made(self) -> int:
        """Tokens beyond the prompt."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def may_start(self) -> bool:
        """Whether the prompt that it shares, if any, is in the cache."""
        leader = self.leader
        return leader is None or leader.ended or leader.computed >= len(self.request.prompt)


def sequences_of(request: EngineRequest, number: int, arrival: int) -> list[Sequence]:
    """One sequence for each choice; the first one leads."""
    found: list[Sequence] = []
    for choice in range(request.choices):
        leader = found[0] if found else None
        place = (request, number, choice, arrival + choice, leader)
        words = TextDecoder(request.stop)
        found.append(Sequence(*place, list(request.prompt), words, request.constraint, cached=-1))
    return found


StepPlan = list[tuple[Sequence, int]]
"""Sequences, and how many of their pending tokens the step takes."""


class Scheduler:
    """The line of those who wait, those who run, and the blocks that these hold."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.pool = BlockPool(spec.blocks)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions = 0

    @property
    def capacity(self) -> int:
        """Tokens that one sequence can have."""
        return self.spec.blocks * self.spec.block_tokens

    def plan(self) -> StepPlan:
        """The next step; every sequence in it has blocks for the tokens that it takes."""
        before = self.preemptions
        plan: dict[Sequence, int] = {}
        left = self.spec.step_tokens
        for sequence in sorted(self.running, key=lambda other: (other.pending > 1, other.arrival)):
            count = min(sequence.pending, left)
            if not count or sequence not in self.running:
                continue
            for victim in self._make_room(sequence, sequence.computed + count):
                left += plan.pop(victim, 0)
            if sequence in self.running:
                plan[sequence] = count
                left -= count
        while left and self.preemptions == before and (joined := self._admit()) is not None:
            count = min(joined.pending, left)
            for victim in self._make_room(joined, joined.computed + count):
                left += plan.pop(victim, 0)
            if joined in self.running:
                plan[joined] = count
                left -= count
        return list(plan.items())

    def computed(self, sequence: Sequence, count: int) -> None:
        """The cache holds so many further tokens of the sequence; full blocks get their names."""
        sequence.computed += count
        size = self.spec.block_tokens
        if not self.spec.share_prefixes:
            return
        while (len(sequence.keys) + 1) * size <= sequence.computed:
            at = len(sequence.keys)
            before = sequence.keys[-1] if sequence.keys else b""
            key = chain(before, sequence.tokens[at * size : (at + 1) * size])
            sequence.keys.append(key)
            self.pool.name(sequence.blocks[at], key)

    def leave(self, sequence: Sequence) -> None:
        """The sequence ended, wherever it was."""
        sequence.ended = True
        self._release(sequence)
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def forget(self) -> None:
        """All that the cache holds is void: who runs is computed again, in its order."""
        for sequence in sorted(self.running, key=lambda other: -other.arrival):
            self._step_back(sequence)
        self.pool.forget_all()

    def _admit(self) -> Sequence | None:
        """The first of the line that may start, with the blocks of its prefix that are known."""
        if len(self.running) >= self.spec.running:
            return None
        found = next((other for other in self.waiting if other.may_start), None)
        if found is None:
            return None
        self._match(found)
        size = self.spec.block_tokens
        # One more for each that runs, or the newcomer would have to leave at once.
        wanted = -(-len(found.tokens) // size) - len(found.blocks) + len(self.running)
        if wanted > self.pool.available:
            self._release(found)
            return None
        if found.cached < 0:
            found.cached = min(found.computed, len(found.request.prompt))
        self.waiting.remove(found)
        self.running.append(found)
        return found

    def _match(self, sequence: Sequence) -> None:
        """Hold the longest known prefix in whole blocks that leaves a token to compute."""
        size = self.spec.block_tokens
        known = b""
        while self.spec.share_prefixes and sequence.computed + size < len(sequence.tokens):
            known = chain(known, sequence.tokens[sequence.computed : sequence.computed + size])
            block = self.pool.find(known)
            if block is None:
                return
            self.pool.share(block)
            sequence.blocks.append(block)
            sequence.keys.append(known)
            sequence.computed += size

    def _make_room(self, sequence: Sequence, tokens: int) -> list[Sequence]:
        """Blocks for so many tokens; returns who had to step back for them, perhaps itself."""
        victims: list[Sequence] = []
        while len(sequence.blocks) * self.spec.block_tokens < tokens:
            block = self.pool.take()
            if block is not None:
                sequence.blocks.append(block)
                continue
            youngest = max(self.running, key=lambda other: other.arrival)
            self._step_back(youngest)
            self.preemptions += 1
            victims.append(youngest)
            if youngest is sequence:
                break
        return victims

    def _step_back(self, sequence: Sequence) -> None:
        self._release(sequence)
        self.running.remove(sequence)
        self.waiting.appendleft(sequence)

    def _release(self, sequence: Sequence) -> None:
        self.pool.give_back(sequence.blocks)
        sequence.blocks, sequence.keys, sequence.computed = [], [], 0
