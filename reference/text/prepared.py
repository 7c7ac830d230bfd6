"""What preparing a corpus gives, and the folder that holds it.

An entry is written aside and renamed into place: it is complete or absent, whoever else writes
there. What cannot be read is not found, and the next one takes its place.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from typing import Literal

import torch

from reference.text.loader import Batch, windows
from reference.text.packing import Tokens, open_tokens
from reference.text.tokenizer import Tokenizer, read_tokenizer


@dataclass(frozen=True, slots=True)
class Facts:
    """What the tokens were made of. Bytes are of text in UTF-8."""

    title: str
    tokenizer: Literal["bpe", "bytes"]
    training_documents: int
    training_bytes: int
    held_out_documents: int
    held_out_bytes: int
    near_copies: int
    """Documents that were held out but which training knows for the most part: in neither side."""
    duplicates: int
    undecodable: int
    empty: int

    def __str__(self) -> str:
        return (
            f"{self.title}: {self.training_documents:,} documents, "
            f"{self.training_bytes / 1e6:.2f} MB; held out {self.held_out_documents:,}, "
            f"{self.held_out_bytes / 1e6:.2f} MB; left out {self.duplicates} duplicates, "
            f"{self.near_copies} near copies, {self.undecodable} not UTF-8, {self.empty} empty"
        )


@dataclass(frozen=True)
class Prepared:
    """The tokens of a run, and what they stand for."""

    facts: Facts
    tokenizer: Tokenizer
    training: Tokens
    held_out_tokens: Tokens

    @property
    def bytes_per_token(self) -> float:
        """Bytes of held-out text per predicted token, ends of documents included; of training text
        where nothing is held out."""
        if len(self.held_out_tokens):
            return self.facts.held_out_bytes / len(self.held_out_tokens)
        return self.facts.training_bytes / len(self.training)

    @property
    def held_out_bytes(self) -> int:
        """Bytes of the text that `held_out` predicts."""
        return self.facts.held_out_bytes

    def held_out(self, sequence: int, rows: int = 8) -> Iterator[Batch]:
        """Batches of at most `rows` sequences that predict each held-out token once; documents come
        in the order of a hash, so the first few batches are a fair sample. Targets after the last
        token are -100."""
        return windows(self.held_out_tokens, self.tokenizer.end, sequence, rows)

    def bytes_of(self, targets: torch.Tensor) -> int:
        """Bytes of text that targets stand for; -100 and ends of documents have none."""
        ids = targets[targets >= 0].numpy(force=True)
        return int(self.tokenizer.token_bytes[ids].sum())

    def bits_per_byte(self, nats: float) -> float:
        """From the mean loss in nats over all of `held_out`. Ends of documents are predicted and
        have no bytes: the text pays for them (our choice; the same for every model judged here)."""
        return nats / log(2) / self.bytes_per_token


def put(entry: Path, prepared: Prepared) -> None:
    """Writes an entry; where somebody else did so meanwhile, theirs stays. Raises `OSError`."""
    aside = entry.with_name(f".{entry.name}-{secrets.token_hex(4)}")
    aside.mkdir(parents=True)
    try:
        (aside / "tokenizer.json").write_text(prepared.tokenizer.text(), encoding="utf-8")
        (aside / "facts.json").write_text(json.dumps(asdict(prepared.facts), indent=2))
        prepared.training.save(aside, "training")
        prepared.held_out_tokens.save(aside, "held_out")
        if entry.exists() and take(entry) is None:
            shutil.rmtree(entry, ignore_errors=True)
        try:
            aside.rename(entry)
        except OSError:
            if not entry.exists():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def take(entry: Path) -> Prepared | None:
    """An entry with its tokens memory-mapped; None where there is none, or a damaged one."""
    try:
        facts = Facts(**json.loads((entry / "facts.json").read_text()))
        text = (entry / "tokenizer.json").read_text(encoding="utf-8")
        tokenizer = read_tokenizer(facts.tokenizer, text)
        training = open_tokens(entry, "training", entry.name)
        held_out = open_tokens(entry, "held_out", entry.name)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    prepared = Prepared(facts, tokenizer, training, held_out)
    whole = prepared.tokenizer.token_bytes[held_out.ids_N].sum() == facts.held_out_bytes
    return prepared if whole else None
