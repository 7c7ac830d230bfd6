"""Rephrasing as a stage: a journal of one line per document and rephrasing.

What a generator wrote is on the disk before the next document is asked for, and a build that was
killed asks for none of it again; a half line at the end of the journal is cut off. A rewriting with
a fault is left out and counted, and its source stays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from reference.data.build.record import Record, line_of, read_records
from reference.data.build.spec import RephraseSpec
from reference.data.build.stage import Work
from reference.data.build.tally import Loss, Tally
from reference.data.rephrase.fidelity import judge
from reference.data.rephrase.rewrite import rewrite
from reference.data.rephrase.styles import STYLES
from reference.generate.choose import choose
from reference.generate.generator import Generator

REWRITES: Final = "rewrites.jsonl"
_JOURNAL: Final = "journal.jsonl"


def rephrase(work: Work, generator: Generator | None) -> dict[str, Any]:
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
            kind = "loss" if isinstance(found, Loss) else "record"
            line = json.dumps({kind: asdict(found)}, ensure_ascii=False, separators=(",", ":"))
            lines.write(line.encode() + b"\n")
            lines.flush()
            os.fsync(lines.fileno())
            work.reached("rephrase:document")
    return _closed(journal, work.own / REWRITES)


def _tasks(work: Work) -> Iterator[tuple[int, Record]]:
    """Each rephrasing of each document, by the number of the rephrasing."""
    for turn, one in enumerate(work.spec.rephrase):
        for record in read_records(work.of("hold_out", "training.jsonl")):
            if record.source == one.source:
                yield turn, record


def _rewritten(
    record: Record, spec: RephraseSpec, generator: Generator, seed: int
) -> Record | Loss:
    style = STYLES[spec.style]
    found = rewrite(record.text, style, generator, spec.piece, seed)
    fidelity = judge(record.text, found.text, style.kind)
    if fidelity.faults:
        kinds = sorted({fault.partition(":")[0] for fault in fidelity.faults})
        place = f"{record.id} ({fidelity.faults[0]})"
        return Loss(record.source, f"{spec.style}: {kinds[0]}", place)
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


def _closed(journal: Path, rewrites: Path) -> dict[str, Any]:
    tally = Tally()
    with journal.open("rb") as lines, rewrites.open("w", encoding="utf-8", newline="\n") as kept:
        for line in lines:
            found = json.loads(line)
            if "loss" in found:
                tally.lose(Loss(**found["loss"]))
            else:
                record = Record(**found["record"])
                tally.keep(record.text)
                kept.write(line_of(record))
    return tally.report()
