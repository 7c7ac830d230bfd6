"""What a run reads: where its text comes from, how it becomes tokens, and what is held out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Strict

from twin.spec.base import Count, Spec, Whole

STDLIB = "stdlib"
"""The source that every machine has: the standard library of the running interpreter."""
HeldOut = Annotated[float, Strict(), Field(ge=0, le=0.5)]
"""A part of the documents, none to half of them."""


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str | Path) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
"""Files or folders; a single one may be written without a list."""


class TokenizerSpec(Spec):
    """How text becomes token ids, the last of which ends every document."""

    kind: Literal["bpe", "bytes"] = "bpe"
    """bpe: byte-level byte-pair encoding, trained on the training documents; bytes: the 256 bytes
    themselves."""
    vocab: Annotated[Count, Field(ge=257)] | None = None
    """Token ids in all, of bpe; absent: as many as the model has."""


class DataSpec(Spec):
    """The text of a run. Which documents are held out depends on their names alone, so that runs
    with different seeds, tokenizers or lengths are judged by the same text."""

    source: Paths = (STDLIB,)
    """`stdlib` (source text of the standard library of the running Python), or files and folders
    by path: .jsonl, .parquet, .txt, .md, .rst, .py; or the folder of a build (`python -m
    reference.data build`), whose tokenizer and held-out text are its own."""
    field: str = "text"
    """The key of a JSONL line, or Parquet column, with the text."""
    tokenizer: TokenizerSpec = Field(default_factory=TokenizerSpec)
    """How text becomes tokens."""
    held_out: HeldOut = 0.05
    """Share of the documents that training never sees, by a hash of the name."""
    seed: Whole = 0
    """Of the order of documents in each epoch."""
    cache: str = "runs/data"
    """Folder of the tokenizers and tokens already made, by their content."""


class DialogsSpec(Spec):
    """Dialogues that a run learns from instead of its text, which still gives the tokenizer. Only
    what the assistant says has targets. `data.seed` orders them in each epoch."""

    source: Paths
    """JSONL files, a dialogue per line, as `python -m reference.agentic` writes them."""
    packing: Literal["shared", "alone"] = "shared"
    """shared: whole dialogues follow each other in a sequence, and later ones see the earlier;
    alone: each begins a sequence of its own, and sees no other."""
    too_long: Literal["leave_out", "cut"] = "leave_out"
    """What is done with a dialogue longer than a sequence; both are counted."""
