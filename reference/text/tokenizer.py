"""Text to token ids and back, without loss: byte-level byte-pair encoding, or the bytes themselves.

Every token is a string of bytes, so the bytes of any stretch of text are the sum over its tokens,
and a loss per token becomes bits per byte exactly. The last id ends a document and has no bytes; no
text encodes to it, whatever it spells.

BPE is that of GPT-2 (Radford et al. 2019, section 2.2): its pre-tokenizer, all 256 bytes as the
alphabet, trained by the `tokenizers` library, in which ties break by token id: the same documents
give the same merges.

Legend: N tokens, V vocabulary.

What the ids of a model mean: pieces of text, the end of a document, the template's markers.

The markers are added tokens: they take the ids behind the tokenizer's last one, in the order of
`reference.text.template.special_tokens`, where the model has that many ids to spare. A run
reserves them by `data.tokenizer.vocab`: the model's ids less the number of markers. No text encodes
to a marker, whatever it spells. Ids behind them mean nothing and are never sampled.

Legend: W words of the model.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reference.text.packing import id_type
from reference.text.template import Segment, special_tokens
from twin.errors import Problem, UsageError

_BATCH = 64
"""Documents that are encoded at a time; their Python objects weigh 100 times their ids."""


class Tokenizer(ABC):
    """Text to ids and back."""

    pieces: tuple[bytes, ...]
    """What each id but the last stands for."""

    @property
    def vocabulary(self) -> int:
        """Ids in all, with the last one, which ends a document."""
        return len(self.pieces) + 1

    @property
    def end(self) -> int:
        """The id that ends a document."""
        return len(self.pieces)

    @cached_property
    def token_bytes(self) -> NDArray[np.int64]:
        """Bytes of text that each id stands for, [V]; 0 of the end of a document."""
        return np.array([*map(len, self.pieces), 0], dtype=np.int64)

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """The text of ids; ends of documents are dropped, and half characters become `\ufffd`."""
        pieces = (self.pieces[token] for token in map(int, ids) if token != self.end)
        return b"".join(pieces).decode(errors="replace")

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Iterator[NDArray[np.unsignedinteger]]:
        """The ids of each text, without the end of a document."""

    @abstractmethod
    def text(self) -> str:
        """All of it, from which `read_tokenizer` makes it again."""


class ByteTokenizer(Tokenizer):
    """Each byte is a token."""

    def __init__(self) -> None:
        self.pieces = tuple(bytes([value]) for value in range(256))

    def encode(self, texts: Sequence[str]) -> Iterator[NDArray[np.unsignedinteger]]:
        """The bytes of each text."""
        return (np.frombuffer(text.encode(), dtype=np.uint8) for text in texts)

    def text(self) -> str:
        """Nothing: there is but one."""
        return ""


class BpeTokenizer(Tokenizer):
    """Byte-level byte-pair encoding; the `tokenizers` library encodes."""

    def __init__(self, text: str) -> None:
        known: dict[str, int] = json.loads(text)["model"]["vocab"]
        spelt = {character: value for value, character in enumerate(_alphabet())}
        by_id = sorted(known, key=known.__getitem__)
        self.pieces = tuple(bytes(spelt[character] for character in word) for word in by_id)
        self._text = text

    def encode(self, texts: Sequence[str]) -> Iterator[NDArray[np.unsignedinteger]]:
        """The ids of each text. Raises `UsageError` TW228 without the `tokenizers` package."""
        kind = id_type(self.vocabulary)
        for start in range(0, len(texts), _BATCH):
            for encoding in self._backend.encode_batch_fast(list(texts[start : start + _BATCH])):
                yield np.array(encoding.ids, dtype=kind)

    def text(self) -> str:
        """The library's JSON."""
        return self._text

    @cached_property
    def _backend(self) -> Any:
        """Read once: that takes longer than to encode a page."""
        return _library().Tokenizer.from_str(self._text)


def train_bpe(texts: Iterable[str], vocabulary: int) -> BpeTokenizer:
    """Byte-pair encoding of at most `vocabulary` ids, the end of a document among them; of few
    texts fewer, since a merge must occur twice. Raises `UsageError` TW228."""
    library = _library()
    backend = library.Tokenizer(library.models.BPE())
    backend.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocabulary - 1,
        min_frequency=2,
        initial_alphabet=_alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return BpeTokenizer(backend.to_str())


def read_tokenizer(kind: Literal["bpe", "bytes"], text: str) -> Tokenizer:
    """The tokenizer whose `text()` this was. Raises `ValueError` or `KeyError` if damaged."""
    return ByteTokenizer() if kind == "bytes" else BpeTokenizer(text)


def _alphabet() -> list[str]:
    """The character by which GPT-2 writes each byte: itself where it prints, else the next free one
    from 256 on (openai/gpt-2, src/encoder.py, `bytes_to_unicode`)."""
    printing = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(value if value in printing else next(others)) for value in range(256)]


def _library() -> Any:
    try:
        import tokenizers  # noqa: PLC0415 - the bytes, and tokens made already, need none
    except ImportError:
        hint = "install it: pip install tokenizers, or set data.tokenizer.kind to bytes"
        wrong = "byte-pair encoding needs the package tokenizers"
        raise UsageError([Problem("TW228", "data.tokenizer.kind", wrong, hint)]) from None
    return tokenizers


class Vocabulary:
    """A tokenizer for a model of `words` ids."""

    def __init__(self, tokenizer: Tokenizer, words: int) -> None:
        self.tokenizer, self.words = tokenizer, words
        names = special_tokens()
        first = tokenizer.vocabulary
        room = words - first >= len(names)
        self.markers = {name: first + index for index, name in enumerate(names)} if room else {}
        """Ids of the markers by name; none where the model has no room for them."""
        self._names = {token: name for name, token in self.markers.items()}
        self.known_W = np.arange(words) < first + len(self.markers)
        """Which ids mean anything."""
        self.longest = max(map(len, tokenizer.pieces))
        """Bytes of text of an id, at most."""

    @property
    def end(self) -> int:
        """The id that ends a document."""
        return self.tokenizer.end

    def piece(self, token: int) -> bytes:
        """The bytes of text of an id; none of markers, ends and ids without meaning."""
        pieces = self.tokenizer.pieces
        return pieces[token] if token < len(pieces) else b""

    def spelled(self, token: int) -> str:
        """How an id is shown: text, or the name of a marker."""
        if token in self._names:
            return self._names[token]
        return "<|end|>" if token == self.end else self.piece(token).decode(errors="replace")

    def marker(self, token: int) -> str | None:
        """The name of a marker; None for what is none."""
        return self._names.get(token)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, in which markers are text like any other."""
        return next(iter(self.tokenizer.encode([text]))).tolist() if text else []

    def ids(self, segments: Iterable[Segment]) -> list[int]:
        """The ids of markers and text between them."""
        found: list[int] = []
        for text, marker in segments:
            found += [self.markers[text]] if marker else self.encode(text)
        return found

    def segments(self, ids: Sequence[int]) -> list[Segment]:
        """Markers and the text between them; the end of a document is neither."""
        found: list[Segment] = []
        held = b""
        for token in ids:
            name = self._names.get(token)
            if name is None:
                held += self.piece(token)
                continue
            if held:
                found.append(Segment(held.decode(errors="replace")))
                held = b""
            found.append(Segment(name, marker=True))
        return [*found, Segment(held.decode(errors="replace"))] if held else found
