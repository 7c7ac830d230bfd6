"""Micro-batches of a step: responses as rows with targets of what the policy wrote, and PTX beside
them.

A row holds one prompt with its response, since a second response beside it would be seen by the
first one's tokens. Rows of a micro-batch are as wide as its longest, or as `width`.

PTX is ordinary cross-entropy on chosen text or dialogues beside the objective, against forgetting
(Kimi K2, report, section 3.2.3; Ouyang et al. 2022, arXiv:2203.02155, equation 2). Its weight is
OURS.

Legend: B rows, T tokens of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, Strict
from torch import Tensor

from reference.config import RunSpec
from reference.rl.records import Response
from reference.text.dialogs import DialogLoader, prepare_dialogs
from reference.text.loader import IGNORED, Loader, Weighed
from reference.text.prepare import Prepared
from reference.text.spec import DialogsSpec
from twin.spec.base import Count, Spec

LearnFrom = Literal["all", "newest"]


@dataclass(frozen=True, slots=True)
class ResponseRow:
    """A response's ids from its prompt to the last that is learned."""

    ids: tuple[int, ...]
    learned: tuple[bool, ...]
    """Which ids are learned."""
    then: tuple[float, ...]
    """Log-probability of each learned id when it was written; 0 of others."""
    checks: tuple[float, ...]
    """The log-probability at temperature 1 of ids that the newest weights wrote, which a trainer
    with the same weights must find again; NaN of others."""

    @property
    def width(self) -> int:
        """Tokens that are read, of which each predicts the next."""
        return max(len(self.ids) - 1, 1)


def row_of(
    response: Response, learn_from: LearnFrom, newest: int, *, tempered: bool = True
) -> ResponseRow:
    """The row of a response up to its last learned token; `learn_from` says whether tokens of
    versions before `newest` are learned. `tempered`: `then` is of the distribution that tokens were
    drawn from, not of the policy at temperature 1."""
    least = newest if learn_from == "newest" else 0
    learned = [version >= least for version in response.versions]
    size = max((at + 1 for at, counts in enumerate(learned) if counts), default=0)
    then = response.behaviour if tempered else response.policy
    known = [nats if counts else 0.0 for nats, counts in zip(then, learned, strict=True)]
    pairs = zip(response.policy, response.versions, strict=True)
    checks = [nats if version == newest else torch.nan for nats, version in pairs]
    count = len(response.prompt)
    return ResponseRow(
        (*response.prompt, *response.tokens[:size]),
        (*[False] * count, *learned[:size]),
        (*[0.0] * count, *known[:size]),
        (*[torch.nan] * count, *checks[:size]),
    )


def width_of(rows: Sequence[ResponseRow], pad_to: int, most: int) -> int:
    """Tokens of the longest row, up to the next multiple of `pad_to`, but for more than `most`."""
    width = max(row.width for row in rows)
    return max(width, min(-(-width // pad_to) * pad_to, most))


def batch_of(rows: Sequence[ResponseRow], width: int) -> tuple[Tensor, Tensor]:
    """Tokens and targets of rows, [B, T] each."""
    return padded([(row.ids, row.learned) for row in rows], width)


def padded(
    rows: Sequence[tuple[Sequence[int], Sequence[bool]]], width: int
) -> tuple[Tensor, Tensor]:
    """Tokens and targets, [B, T] each, of ids and which of them are learned. Rows are filled with
    the id 0, behind all that counts, where a causal model does not look."""
    tokens_BT = torch.zeros(len(rows), width, dtype=torch.int64)
    targets_BT = torch.full((len(rows), width), IGNORED)
    for at, (ids, learned) in enumerate(rows):
        row, counts = torch.tensor(ids), torch.tensor(learned)
        tokens_BT[at, : len(ids) - 1] = row[:-1]
        targets_BT[at, : len(ids) - 1] = torch.where(counts[1:], row[1:], IGNORED)
    return tokens_BT, targets_BT


def evenly_weighed(tokens_BT: Tensor, targets_BT: Tensor, each: float) -> Weighed:
    """A micro-batch all of whose targets have this weight."""
    return tokens_BT, targets_BT, torch.where(targets_BT == IGNORED, 0.0, each)


def cut(rows: Sequence[int], size: int) -> list[list[int]]:
    """Numbers of rows in micro-batches of at most so many."""
    return [list(rows[first : first + size]) for first in range(0, len(rows), size)]


class Batches:
    """The micro-batches of one step, in the place of a loader of text."""

    def __init__(self, text: str) -> None:
        self.text = text
        """Digest of the tokenizer's text."""
        self.left: list[Weighed] = []

    def __iter__(self) -> Iterator[Weighed]:
        return self

    def __next__(self) -> Weighed:
        return self.left.pop(0)

    def state_dict(self) -> dict[str, Any]:
        """Nothing is left between steps."""
        return {"tokens": self.text, "text": self.text}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing was left."""
        del state

    def with_sequences(self, sequence: int, micro_batch: int) -> Batches:
        """Rows keep their sizes."""
        del sequence, micro_batch
        return self


class PtxSpec(Spec):
    """Text that is learned beside the objective."""

    weight: Annotated[float, Strict(), Field(gt=0, le=1e3)] = 0.1
    """Of the mean cross-entropy, added to the objective of a step."""
    rows: Count = 8
    """Sequences per step."""
    dialogs: DialogsSpec | None = None
    """Dialogues; null: the text that gave the tokenizer."""


def ptx_loader(spec: PtxSpec, run: RunSpec, text: Prepared) -> Loader | DialogLoader:
    """The source of PTX micro-batches. Raises the errors of reading the dialogues."""
    shape = run.train.sequence, min(spec.rows, run.train.micro_batch)
    if spec.dialogs is None:
        return Loader(text.training, *shape, run.data.seed)
    given = prepare_dialogs(spec.dialogs, text, run.model.vocab, run.train.sequence)
    return given.loader(shape, run.data.seed)


def ptx_batches(spec: PtxSpec, loader: Loader | DialogLoader) -> list[Weighed]:
    """The PTX micro-batches of a step: targets weigh alike, all of them together the section's
    weight."""
    batches = [next(loader) for _ in range(-(-spec.rows // loader.micro_batch))]
    count = sum(int((targets_BT != IGNORED).sum()) for _, targets_BT in batches)
    return [evenly_weighed(*batch, spec.weight / max(1, count)) for batch in batches]
