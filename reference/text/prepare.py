"""From `DataSpec` to token files: read, split, train the tokenizer, encode, drop near copies; or
the shards of a finished build.

An entry of the cache is named by the content of everything that went into it. Reading and hashing
the corpus is done every time (below a second for the standard library), so a changed text is never
overlooked. An entry is written aside and renamed into place: it is complete or absent, whoever else
writes there. What cannot be read is not found, and the next one takes its place.

Every checksum of a finished build is compared before training reads one. All shards of a side are
read into memory, 2 bytes per token (4 above 65,536 ids): a bound of some 10^10 tokens on a large
machine. A piece of a document is a document of the run's stream, so that the parts of one that a
shard border cuts may be read apart.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from reference.text.documents import Corpus, Document, read_corpus, size
from reference.text.loader import Batch, windows
from reference.text.packing import (
    MANIFEST,
    Tokens,
    damages,
    file_digest,
    id_type,
    is_build,
    open_tokens,
    pack,
    read_manifest,
)
from reference.text.spec import DataSpec
from reference.text.split import split
from reference.text.tokenizer import ByteTokenizer, Tokenizer, read_tokenizer, train_bpe
from twin.errors import Problem, UsageError

_FORMAT = 1
"""Version of an entry: which files it has, and how text becomes tokens."""


@dataclass(frozen=True, slots=True)
class TextFacts:
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

    facts: TextFacts
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


def prepare(spec: DataSpec, vocabulary: int) -> Prepared:
    """The tokens of a run for a model of `vocabulary` ids: found in `spec.cache`, or made; of a
    finished build (`reference.data`) its shards, with its own tokenizer and held-out text.

    Raises `UsageError`: TW220 to TW224 and TW228 as `read_corpus` and `split` do, TW225 a
    vocabulary that the model lacks, TW226 a cache that cannot be written, TW473 and TW474 as
    `open_build` does, TW476 a build beside another source.
    """
    builds = [one for one in spec.source if is_build(Path(one).expanduser())]
    if builds:
        if len(spec.source) > 1:
            wrong = f"`{builds[0]}` is a finished build, and cannot be mixed with another source"
            hint = "make one build of all sources"
            raise UsageError([Problem("TW476", "data.source", wrong, hint)])
        return open_build(Path(builds[0]).expanduser(), vocabulary)
    wanted = _vocabulary(spec, vocabulary)
    corpus = read_corpus(spec)
    entry = Path(spec.cache).expanduser() / _key(spec, wanted, corpus)
    found = _take(entry)
    if found is None:
        made = _made(spec, wanted, corpus)
        try:
            _put(entry, made)
        except OSError as error:
            raise _unwritable(entry, (error.strerror or str(error)).lower()) from None
        found = _take(entry)
    if found is None:
        raise _unwritable(entry, "what was written there reads back differently")
    return found


def _vocabulary(spec: DataSpec, vocabulary: int) -> int:
    """How many ids the tokenizer may have."""
    if vocabulary < 257:
        wrong = f"{vocabulary:,} token ids cannot hold 256 bytes and an end of document"
        raise UsageError([Problem("TW225", "model.vocab", wrong, "at least 257")])
    wanted = 257 if spec.tokenizer.kind == "bytes" else spec.tokenizer.vocab or vocabulary
    if wanted > vocabulary:
        wrong = f"{wanted:,} token ids are more than the model's {vocabulary:,}"
        hint = f"at most {vocabulary}; absent: as many as the model has"
        raise UsageError([Problem("TW225", "data.tokenizer.vocab", wrong, hint)])
    return wanted


def _key(spec: DataSpec, vocabulary: int, corpus: Corpus) -> str:
    counts = [corpus.duplicates, corpus.undecodable, corpus.empty]
    parts = [_FORMAT, corpus.title, corpus.digest, *counts]
    parts += [spec.held_out, spec.tokenizer.kind, vocabulary]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def _made(spec: DataSpec, vocabulary: int, corpus: Corpus) -> Prepared:
    """Everything anew."""
    parts = split(corpus.documents, spec.held_out)
    bpe = spec.tokenizer.kind == "bpe"
    texts = [document.text for document in parts.training]
    tokenizer = train_bpe(texts, vocabulary) if bpe else ByteTokenizer()
    facts = TextFacts(
        title=corpus.title,
        tokenizer=spec.tokenizer.kind,
        training_documents=len(parts.training),
        training_bytes=size(parts.training),
        held_out_documents=len(parts.held_out),
        held_out_bytes=size(parts.held_out),
        near_copies=len(parts.near_copies),
        duplicates=corpus.duplicates,
        undecodable=corpus.undecodable,
        empty=corpus.empty,
    )
    tokens = (_encoded(side, tokenizer) for side in (parts.training, parts.held_out))
    return Prepared(facts, tokenizer, *tokens)


def _encoded(documents: tuple[Document, ...], tokenizer: Tokenizer) -> Tokens:
    texts = [document.text for document in documents]
    return pack(list(tokenizer.encode(texts)), tokenizer.vocabulary)


def _unwritable(entry: Path, why: str) -> UsageError:
    wrong = f"cannot write `{entry}`: {why}"
    return UsageError([Problem("TW226", "data.cache", wrong, "set data.cache to another folder")])


def _put(entry: Path, prepared: Prepared) -> None:
    """Writes an entry; where somebody else did so meanwhile, theirs stays. Raises `OSError`."""
    aside = entry.with_name(f".{entry.name}-{secrets.token_hex(4)}")
    aside.mkdir(parents=True)
    try:
        (aside / "tokenizer.json").write_text(prepared.tokenizer.text(), encoding="utf-8")
        (aside / "facts.json").write_text(json.dumps(asdict(prepared.facts), indent=2))
        prepared.training.save(aside, "training")
        prepared.held_out_tokens.save(aside, "held_out")
        if entry.exists() and _take(entry) is None:
            shutil.rmtree(entry, ignore_errors=True)
        try:
            aside.rename(entry)
        except OSError:
            if not entry.exists():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _take(entry: Path) -> Prepared | None:
    """An entry with its tokens memory-mapped; None where there is none, or a damaged one."""
    try:
        facts = TextFacts(**json.loads((entry / "facts.json").read_text()))
        text = (entry / "tokenizer.json").read_text(encoding="utf-8")
        tokenizer = read_tokenizer(facts.tokenizer, text)
        training = open_tokens(entry, "training", entry.name)
        held_out = open_tokens(entry, "held_out", entry.name)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    prepared = Prepared(facts, tokenizer, training, held_out)
    whole = prepared.tokenizer.token_bytes[held_out.ids_N].sum() == facts.held_out_bytes
    return prepared if whole else None


def open_build(folder: Path, vocabulary: int) -> Prepared:
    """The tokens of a build for a model of `vocabulary` ids.

    Raises `UsageError`: TW225 where the build has more ids, TW473 no manifest, TW474 each file that
    is damaged.
    """
    manifest = read_manifest(folder)
    if manifest["vocabulary"] > vocabulary:
        wrong = f"`{folder}` has {manifest['vocabulary']:,} token ids, the model {vocabulary:,}"
        hint = f"build with `tokenizer.vocab: {vocabulary}`"
        raise UsageError([Problem("TW225", "data.source", wrong, hint)])
    found = damages(folder, manifest)
    if found:
        raise UsageError(found)
    text = (folder / manifest["tokenizer"]["file"]).read_text(encoding="utf-8")
    tokenizer = read_tokenizer(manifest["tokenizer"]["kind"], text)
    digest = str(file_digest(folder / MANIFEST))[:16]
    sides = (_tokens_of_build(folder, manifest, side, digest) for side in ("training", "held_out"))
    return Prepared(_facts_of_build(folder, manifest), tokenizer, *sides)


def _tokens_of_build(folder: Path, manifest: dict[str, Any], side: str, digest: str) -> Tokens:
    kind = id_type(manifest["vocabulary"])
    rows = manifest[side]
    parts = [np.fromfile(folder / "shards" / row["file"], dtype=kind) for row in rows]
    counts = [np.load(folder / "shards" / row["index"])[:, 3] for row in rows]
    ids = np.concatenate([np.zeros(0, dtype=kind), *parts])
    ends = np.cumsum(np.concatenate([np.zeros(0, dtype=np.int64), *counts]))
    return Tokens(ids, ends, digest)


def _facts_of_build(folder: Path, manifest: dict[str, Any]) -> TextFacts:
    sides, lost = manifest["sides"], Counter[str]()
    for stage in manifest["stages"].values():
        for row in stage.get("left_out", []):
            lost[row["reason"]] += row["documents"]
    return TextFacts(
        title=f"the build in {folder}",
        tokenizer=manifest["tokenizer"]["kind"],
        training_documents=sides["training"]["documents"],
        training_bytes=sides["training"]["bytes"],
        held_out_documents=sides["held_out"]["documents"],
        held_out_bytes=sides["held_out"]["bytes"],
        near_copies=lost["near-duplicate"],
        duplicates=lost["duplicate"],
        undecodable=lost["not UTF-8"],
        empty=lost["empty"],
    )
