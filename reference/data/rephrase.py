"""Rephrasing as a stage: documents are rewritten piece by piece, each with the end of the
rewriting so far as context.

Kimi K2 (arXiv:2507.20534, section 2.2 and figure 4): excerpts are cut into pieces, each is
rewritten in the light of what was written before, and the rewritings are put together.

The stage keeps a journal of one line per document and rephrasing. What a generator wrote is on the
disk before the next document is asked for, and a build that was killed asks for none of it again; a
half line at the end of the journal is cut off. A rewriting with a fault is left out and counted,
and its source stays.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from reference.data.fidelity import judge
from reference.data.spec import STYLES, RephraseSpec, Style
from reference.data.stage import Dropped, Record, StageWork, read_records, write_kept
from reference.dialog import Message
from reference.generate.choose import choose
from reference.generate.request import ChatRequest, Generator, Sampling
from reference.text.sentences import cut

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
