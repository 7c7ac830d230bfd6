"""A choice of a request while it runs: its tokens, how many the cache holds, and its text."""

from __future__ import annotations

import codecs
from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field

from reference.inference.request import Constraint, EngineRequest


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
