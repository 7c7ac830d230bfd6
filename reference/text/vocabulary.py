"""What the ids of a model mean: pieces of text, the end of a document, the template's markers.

The markers are added tokens: they take the ids behind the tokenizer's last one, in the order of
`reference.text.template.special_tokens`, where the model has that many ids to spare. A run
reserves them by `data.tokenizer.vocab`: the model's ids less the number of markers. No text encodes
to a marker, whatever it spells. Ids behind them mean nothing and are never sampled.

Legend: W words of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from reference.text.template import Segment, special_tokens
from reference.text.tokenizer import Tokenizer


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
        self.known_W: Tensor = torch.arange(words) < first + len(self.markers)
        """Which ids mean anything."""

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
