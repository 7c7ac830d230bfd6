"""A document rewritten piece by piece, each with the end of the rewriting so far as context.

Kimi K2 (arXiv:2507.20534, section 2.2 and figure 4): excerpts are cut into pieces, each is
rewritten in the light of what was written before, and the rewritings are put together.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from reference.data.rephrase.styles import Style
from reference.dialog import Message
from reference.generate.generator import Generator
from reference.generate.request import Request, Sampling
from reference.text.sentences import cut

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
        request = Request(asked, (), sampling, {"kind": _SKILLS[style.kind], "style": style.name})
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
