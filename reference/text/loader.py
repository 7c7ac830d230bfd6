"""Batches from packed tokens: resumable, the same however steps are cut into micro-batches.

A loader cuts the endless `packing.TokenStream` into blocks, and a block into sequences, which
it takes in an order of their own: neighbours in the stream are parts of one document, and a step
made of those would see nothing else. A block is an epoch, or `BLOCK` tokens of a longer one.

Each call takes the next `world * micro_batch` sequences, of which the rank's own are in a row:
ranks are disjoint, and a step of a given number of sequences sees the same ones for every
micro-batch and number of ranks. After a change of the sequence length (a long-context stage) a new
loader goes on behind the block that the old one was in: what was left of that is left out. OURS,
all of it: K2's report does not say.

Legend: B batch, T tokens of a sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reference.text.packing import Tokens, TokenStream, numbered
from twin.errors import Problem, UsageError

Batch = tuple[torch.Tensor, torch.Tensor]
"""Tokens and targets, both int64 [B, T]; targets are the tokens that follow."""
Weighed = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""The same with a weight for each target, [B, T]: their loss is a weighted sum and no mean."""
IGNORED = -100
"""The target that no loss counts (PyTorch's default `ignore_index`)."""
BLOCK = 2**22
"""Tokens whose sequences are shuffled together, at most."""


class ResumableLoader(ABC):
    """An endless iterator of batches of one rank, and where it stands."""

    reads = ("data", "text or tokenizer")
    """The section of the configuration that says what is read, and what that is."""

    def __init__(self, shape: tuple[int, int], seed: int, rank: int, world: int) -> None:
        self.sequence, self.micro_batch = shape
        self.seed, self.rank, self.world = seed, rank, world
        self.base = 0
        """Where sequences of this length begin: a token of the stream, or an epoch."""
        self.taken = 0
        """Sequences that all ranks took since."""

    def __iter__(self) -> Iterator[Batch]:
        return self

    @abstractmethod
    def __next__(self) -> Batch: ...

    @property
    @abstractmethod
    def digests(self) -> dict[str, str]:
        """What tells the tokens that are read from others."""

    def own_places(self) -> range:
        """The places of this rank's next sequences, which all ranks' loaders then leave behind."""
        first = self.taken + self.rank * self.micro_batch
        self.taken += self.world * self.micro_batch
        return range(first, first + self.micro_batch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, equal on every rank."""
        place = {"base": self.base, "sequence": self.sequence, "taken": self.taken}
        return place | {"seed": self.seed} | self.digests

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stands where another loader of these tokens stood, whatever its micro-batch, rank and
        world. Raises `UsageError` TW227 where it read other tokens, or another order."""
        ours, (section, content) = self.state_dict(), self.reads
        for key, name in (("tokens", content), ("seed", "data.seed")):
            if state[key] != ours[key]:
                wrong = f"the checkpoint read another {name} (`{state[key]}`, now `{ours[key]}`)"
                hint = "resume with the settings of the run, or start a new one"
                raise UsageError([Problem("TW227", section, wrong, hint)])
        self.base, self.sequence, self.taken = (
            int(state[key]) for key in ("base", "sequence", "taken")
        )


class Loader(ResumableLoader):
    """Batches of packed tokens. Raises `UsageError` TW223 without tokens."""

    def __init__(
        self,
        tokens: Tokens,
        sequence: int,
        micro_batch: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if not len(tokens):
            raise UsageError([Problem("TW223", "data.source", "there is no token to train on")])
        super().__init__((sequence, micro_batch), seed, rank, world)
        self.stream = TokenStream(tokens, seed)
        self._order = lru_cache(maxsize=2)(self._shuffled)

    @property
    def epoch(self) -> float:
        """How many times the documents have been read."""
        return (self.base + self.taken * self.sequence) / len(self.stream.tokens)

    @property
    def digests(self) -> dict[str, str]:
        """Of the token file."""
        return {"tokens": self.stream.tokens.digest}

    def __next__(self) -> Batch:
        starts = map(self._start, self.own_places())
        ids = np.stack([self.stream.read(start, self.sequence + 1) for start in starts])
        wide = torch.from_numpy(ids.astype(np.int64))
        return wide[:, :-1].contiguous(), wide[:, 1:].contiguous()

    def consumed(self) -> NDArray[Any]:
        """The ids that all ranks took at this sequence length, in the stream's order."""
        starts = sorted(map(self._start, range(self.taken)))
        return np.concatenate([self.stream.read(start, self.sequence) for start in starts])

    def with_sequences(self, sequence: int, micro_batch: int) -> Loader:
        """A loader that goes on from here: with the next sequence, or behind this block if
        sequences have another length."""
        loader = Loader(self.stream.tokens, sequence, micro_batch, self.seed, self.rank, self.world)
        loader.base, loader.taken = self.base, self.taken
        if sequence != self.sequence:
            size = self._sequences()
            blocks = -(-self.taken // size)
            loader.base, loader.taken = self.base + blocks * size * self.sequence, 0
        return loader

    def _start(self, index: int) -> int:
        """Where in the stream the sequence begins that is taken after so many others."""
        size = self._sequences()
        block, place = divmod(index, size)
        begin = self.base + block * size * self.sequence
        return begin + int(self._order(begin)[place]) * self.sequence

    def _sequences(self) -> int:
        """Sequences of a block."""
        return max(1, min(BLOCK, len(self.stream.tokens)) // self.sequence)

    def _shuffled(self, begin: int) -> NDArray[np.int64]:
        return np.argsort(numbered(self.seed, begin, self._sequences()), kind="stable")


def windows(tokens: Tokens, end: int, sequence: int, rows: int) -> Iterator[Batch]:
    """Batches of at most `rows` sequences in which each token is a target once, the first one after
    the end of a document `end`.

    Sequences overlap by half, and the half that the one before has predicted is only read: no
    token but the text's first has less than half a sequence before it. (An n-gram, too, always has
    all of its context.) Targets there are -100; the last sequence is filled with `end`.
    """
    ids = np.concatenate([[end], tokens.ids_N]).astype(np.int64)
    context, last = sequence // 2, len(tokens)
    begins = np.arange(0, max(last - context, min(last, 1)), sequence - context)
    for start in range(0, len(begins), rows):
        places_BT = begins[start : start + rows, None] + np.arange(sequence)
        there_BT = places_BT < last
        again_BT = _known(places_BT, context)
        inputs = np.where(there_BT, ids[np.minimum(places_BT, last)], end)
        wanted = np.where(there_BT & ~again_BT, ids[np.minimum(places_BT + 1, last)], IGNORED)
        yield torch.from_numpy(inputs), torch.from_numpy(wanted)


def _known(places_BT: NDArray[np.int64], context: int) -> NDArray[np.bool_]:
    """Places that the sequence before has predicted: all but the first sequence's first half."""
    early_T = np.arange(places_BT.shape[1]) < context
    return early_T & (places_BT[:, :1] > 0)
