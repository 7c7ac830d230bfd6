"""From `DataSpec` to token files: read, split, train the tokenizer, encode, drop near copies.

An entry of the cache is named by the content of everything that went into it. Reading and hashing
the corpus is done every time (below a second for the standard library), so a changed text is never
overlooked.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from reference.text.build_folder import is_build, open_build
from reference.text.corpus import Corpus, Document, read_corpus, size
from reference.text.packing import Tokens, pack
from reference.text.prepared import Facts, Prepared, put, take
from reference.text.spec import DataSpec
from reference.text.split import split
from reference.text.tokenizer import ByteTokenizer, Tokenizer, train_bpe
from twin.errors import Problem, UsageError

_FORMAT = 1
"""Version of an entry: which files it has, and how text becomes tokens."""


def prepare(spec: DataSpec, vocabulary: int) -> Prepared:
    """The tokens of a run for a model of `vocabulary` ids: found in `spec.cache`, or made; of a
    finished build (`reference.data.build`) its shards, with its own tokenizer and held-out text.

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
    found = take(entry)
    if found is None:
        made = _made(spec, wanted, corpus)
        try:
            put(entry, made)
        except OSError as error:
            raise _unwritable(entry, (error.strerror or str(error)).lower()) from None
        found = take(entry)
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
    facts = Facts(
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
