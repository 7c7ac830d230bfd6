"""Dialogues in rows of equal length, for ever, in a new order each epoch.

OURS, since K2's report does not say. Whole dialogues lie in a row, each with an end of document
behind it, as many as fit (`shared`) or one (`alone`), in the order of the epoch. What is left of a
row is filled with the beginnings of those that come next, of which nothing is learned there: so
every dialogue is learned once an epoch, and experts see no tokens but those of dialogues. Attention
is causal and not masked between dialogues, as in pre-training (`reference.text.packing`): under
`shared` a dialogue sees those before it in its row; under `alone` it sees itself only, since what
fills the row stands behind it.

Legend: N tokens, D dialogues, B batch, T tokens of a sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from reference.text.loader import IGNORED, Batch, ResumableLoader
from reference.text.packing import Tokens, numbered
from twin.errors import Problem, UsageError

Packing = Literal["shared", "alone"]
Row = tuple[int, int]
"""The place in the epoch's order of a row's first dialogue, and how many it has."""


@dataclass(frozen=True)
class DialogTokens:
    """Dialogues as ids, each with the end of a document behind it."""

    tokens: Tokens
    learned_N: NDArray[np.bool_]
    """Which ids the model is trained to say."""
    text: str = ""
    """Tells the tokens of the text that gave the tokenizer from others."""

    def __len__(self) -> int:
        return len(self.tokens.ends_D)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids of each, without its end, [D]."""
        return np.diff(self.tokens.ends_D, prepend=0) - 1

    def targets(self, dialogue: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Its ids, with its end, and the same with `IGNORED` in the place of what is not
        learned."""
        end = int(self.tokens.ends_D[dialogue])
        start = int(self.tokens.ends_D[dialogue - 1]) if dialogue else 0
        ids = self.tokens.ids_N[start:end].astype(np.int64)
        return ids, np.where(self.learned_N[start:end], ids, IGNORED)


@dataclass(frozen=True)
class Epoch:
    """One order of the dialogues, cut into rows of T + 1 ids, so that T are predicted."""

    dialogues: DialogTokens
    order_D: NDArray[np.int64]
    rows: tuple[Row, ...]
    sequence: int

    def batch(self, first: int, count: int) -> Batch:
        """Tokens and targets, [B, T], of some rows."""
        made = [self._row(*self.rows[place]) for place in range(first, first + count)]
        tokens_BT = np.stack([ids[:-1] for ids, _ in made])
        targets_BT = np.stack([wanted[1:] for _, wanted in made])
        return torch.from_numpy(tokens_BT), torch.from_numpy(targets_BT)

    def _row(self, first: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        width = self.sequence + 1
        ids, wanted = np.zeros((2, 0), dtype=np.int64)
        place = first
        while len(ids) < width:
            dialogue = int(self.order_D[place % len(self.order_D)])
            own, targets = self.dialogues.targets(dialogue)
            if place >= first + count:
                targets = np.full_like(targets, IGNORED)
            ids, wanted = np.concatenate([ids, own]), np.concatenate([wanted, targets])
            place += 1
        return ids[:width], wanted[:width]


def epoch_of(
    dialogues: DialogTokens, seed: int, epoch: int, sequence: int, packing: Packing
) -> Epoch:
    """The epoch's order, which depends on seed and epoch alone, and its rows."""
    order_D = np.argsort(numbered(seed, epoch, len(dialogues)), kind="stable")
    lengths = dialogues.lengths[order_D].tolist()
    rows: list[Row] = []
    place = 0
    while place < len(lengths):
        first, room = place, sequence + 1
        while place < len(lengths) and lengths[place] <= room:
            room -= lengths[place] + 1
            place += 1
            if packing == "alone":
                break
        if place == first:
            raise ValueError(f"a dialogue of {lengths[first]} ids in rows of {sequence + 1}")
        rows.append((first, place - first))
    return Epoch(dialogues, order_D, tuple(rows), sequence)


class DialogLoader(ResumableLoader):
    """Batches of dialogues; its `base` is an epoch. Raises UsageError TW606 where there are none to
    learn."""

    reads = ("dialogs", "dialogues or tokenizer")

    def __init__(
        self,
        dialogues: DialogTokens,
        packing: Packing,
        shape: tuple[int, int],
        seed: int,
        place: tuple[int, int] = (0, 1),
    ) -> None:
        if not len(dialogues):
            message = "no dialogue is left to learn from"
            fix = "longer sequences (`train.sequence`), or `dialogs.too_long: cut`"
            raise UsageError([Problem("TW606", "dialogs.source", message, fix)])
        super().__init__(shape, seed, *place)
        self.dialogues = dialogues
        self.packing: Packing = packing
        self._epochs = lru_cache(maxsize=2)(self._made)
        self._firsts = [0]
        """The number of each epoch's first row, as far as they were needed."""

    @property
    def digests(self) -> dict[str, str]:
        """Of the dialogues, and of the text that gave the tokenizer."""
        return {"tokens": self.dialogues.tokens.digest, "text": self.dialogues.text}

    def __next__(self) -> Batch:
        rows = [self._row(number) for number in self.own_places()]
        return torch.cat([row[0] for row in rows]), torch.cat([row[1] for row in rows])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As of every loader; what belongs to another place in the epochs is forgotten."""
        super().load_state_dict(state)
        self._epochs.cache_clear()
        self._firsts = [0]

    def with_sequences(self, sequence: int, micro_batch: int) -> DialogLoader:
        """A loader that goes on from here: with the next row, or with the next epoch if sequences
        have another length."""
        shape, place = (sequence, micro_batch), (self.rank, self.world)
        loader = DialogLoader(self.dialogues, self.packing, shape, self.seed, place)
        loader.base, loader.taken = self.base, self.taken
        if sequence != self.sequence:
            loader.base = self.base + (self._epoch(self.taken - 1) + 1 if self.taken else 0)
            loader.taken = 0
        return loader

    def _row(self, number: int) -> Batch:
        epoch = self._epoch(number)
        return self._epochs(epoch).batch(number - self._firsts[epoch], 1)

    def _epoch(self, number: int) -> int:
        """Which epoch since `base` has the row of this number."""
        while self._firsts[-1] <= number:
            rows = len(self._epochs(len(self._firsts) - 1).rows)
            self._firsts.append(self._firsts[-1] + rows)
        return int(np.searchsorted(self._firsts, number, side="right")) - 1

    def _made(self, epoch: int) -> Epoch:
        return epoch_of(self.dialogues, self.seed, self.base + epoch, self.sequence, self.packing)
