"""Batches from packed tokens: resumable, the same however steps are cut into micro-batches.

A loader reads the endless stream of `packing.Stream` from front to back, so where it stands is one
number: the tokens consumed. Each call takes the next `world * micro_batch` sequences, of which the
rank's own are a block: ranks are disjoint, and a step of a given number of sequences sees the same
ones for every micro-batch and number of ranks. After a change of the sequence length (a
long-context stage) a new loader goes on from the old one's state, at the next token.

Legend: B batch, T tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reference.data.packing import Stream, Tokens
from twin.errors import Problem, UsageError

Batch = tuple[torch.Tensor, torch.Tensor]
"""Tokens and targets, both int64 [B, T]; targets are the tokens that follow."""
IGNORED = -100
"""The target that no loss counts (PyTorch's default `ignore_index`)."""


class Loader:
    """An endless iterator of batches of one rank. Raises `UsageError` TW223 without tokens."""

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
        self.stream = Stream(tokens, seed)
        self.sequence = sequence
        self.micro_batch = micro_batch
        self.rank = rank
        self.world = world
        self.position = 0
        """Tokens of the stream consumed by all ranks."""

    @property
    def epoch(self) -> float:
        """How many times the documents have been read."""
        return self.position / len(self.stream.tokens)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        count = self.micro_batch * self.sequence
        start = self.position + self.rank * count
        batch = _shifted(self.stream.read(start, count + 1), self.sequence)
        self.position += self.world * count
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, equal on every rank."""
        return {
            "position": self.position,
            "seed": self.stream.seed,
            "tokens": self.stream.tokens.digest,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another loader of this stream stood, whatever its sequence, micro-batch,
        rank and world. Raises `UsageError` TW227 where it read other tokens, or another order."""
        ours = self.state_dict()
        for key, name in (("tokens", "text or tokenizer"), ("seed", "data.seed")):
            if state[key] != ours[key]:
                wrong = f"the checkpoint read another {name} (`{state[key]}`, now `{ours[key]}`)"
                hint = "resume with the settings of the run, or start a new one"
                raise UsageError([Problem("TW227", "data", wrong, hint)])
        self.position = int(state["position"])


def windows(tokens: Tokens, end: int, sequence: int, rows: int) -> Iterator[Batch]:
    """Batches of at most `rows` sequences in which each token is a target once, the first one after
    the end of a document `end`. The last sequence is filled with `end`, and targets -100."""
    size = rows * sequence
    for start in range(0, len(tokens), size):
        targets = tokens.ids_N[start : start + size].astype(np.int64)
        before = tokens.ids_N[start - 1] if start else end
        filled = -len(targets) % sequence
        ids = np.concatenate([[before], targets[:-1], np.full(filled, end)])
        wanted = np.concatenate([targets, np.full(filled, IGNORED)])
        yield _batch(ids, sequence), _batch(wanted, sequence)


def _shifted(ids: NDArray[Any], sequence: int) -> Batch:
    wide = ids.astype(np.int64)
    return _batch(wide[:-1].copy(), sequence), _batch(wide[1:].copy(), sequence)


def _batch(ids: NDArray[Any], sequence: int) -> torch.Tensor:
    return torch.from_numpy(ids.astype(np.int64, copy=False).reshape(-1, sequence))
