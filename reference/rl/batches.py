"""Responses as rows of a batch: tokens, targets of what the policy wrote, and a weight for each.

A row holds one prompt with its response, since a second one beside it would be seen by the first's
tokens; rows of a micro-batch are as wide as its longest, of `width` where one is given.

Legend: B rows, T tokens of a row.

PTX: ordinary cross-entropy on chosen text or dialogues beside the objective, against
forgetting (Kimi K2, report, section 3.2.3; Ouyang et al. 2022, arXiv:2203.02155, equation 2). Its
weight is OURS.

Legend: B rows, T tokens.
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
from reference.text.dialog_loader import DialogLoader
from reference.text.dialogs import prepare_dialogs
from reference.text.loader import IGNORED, Loader, Weighed
from reference.text.prepare import Prepared
from reference.text.spec import DialogsSpec
from twin.spec.base import Count, DocumentedSpec

LearnFrom = Literal["all", "newest"]


@dataclass(frozen=True, slots=True)
class Row:
    """A response's ids from its prompt to the last that is learned, and which are."""

    ids: tuple[int, ...]
    learned: tuple[bool, ...]
    then: tuple[float, ...]
    """Log-probability when it was written, of each learned id; 0 of others."""
    checks: tuple[float | None, ...]
    """That at temperature 1 of ids that the newest weights wrote: what a trainer with the same
    weights must find again; None of others."""

    @property
    def width(self) -> int:
        """Tokens that are read, of which each predicts the next."""
        return max(len(self.ids) - 1, 1)


def row_of(response: Response, learn_from: LearnFrom, newest: int, *, tempered: bool = True) -> Row:
    """The row of a response; tokens of versions before `newest` count or are left out. What is
    behind the last learned token is left out. `tempered`: `then` is of what tokens were drawn from,
    not of the policy at temperature 1."""
    versions = response.versions
    least = newest if learn_from == "newest" else 0
    learned = [version >= least for version in versions]
    size = max((at + 1 for at, one in enumerate(learned) if one), default=0)
    then = response.behaviour if tempered else response.policy
    known = [one if counts else 0.0 for one, counts in zip(then, learned, strict=True)]
    pairs = zip(response.policy, versions, strict=True)
    checks = [one if version == newest else None for one, version in pairs]
    count = len(response.prompt)
    return Row(
        (*response.prompt, *response.tokens[:size]),
        (*[False] * count, *learned[:size]),
        (*[0.0] * count, *known[:size]),
        (*[None] * count, *checks[:size]),
    )


def batch_of(rows: Sequence[Row], width: int | None = None) -> tuple[Tensor, Tensor]:
    """Tokens and targets of rows, [B, T] each; what fills them is the id 0, behind all that
    counts, where a causal model does not look."""
    wide = max(row.width for row in rows) if width is None else width
    tokens_BT = torch.zeros(len(rows), wide, dtype=torch.int64)
    targets_BT = torch.full((len(rows), wide), IGNORED)
    for at, row in enumerate(rows):
        ids = torch.tensor(row.ids)
        learned = torch.tensor(row.learned)
        tokens_BT[at, : len(ids) - 1] = ids[:-1]
        targets_BT[at, : len(ids) - 1] = torch.where(learned[1:], ids[1:], IGNORED)
    return tokens_BT, targets_BT


def cut(rows: Sequence[int], size: int) -> list[list[int]]:
    """Numbers of rows in micro-batches of at most so many."""
    return [list(rows[first : first + size]) for first in range(0, len(rows), size)]


class Batches:
    """The micro-batches of one step, in the place of a loader of text."""

    def __init__(self, text: str) -> None:
        self.text = text
        """What tells the tokens of the tokenizer's text from others."""
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
        """Rows have the sizes that they have."""
        del sequence, micro_batch
        return self


class PtxSpec(DocumentedSpec):
    """What is learned ptx_batches."""

    weight: Annotated[float, Strict(), Field(gt=0, le=1e3)] = 0.1
    """Of the mean cross-entropy, added to the objective of a step."""
    rows: Count = 8
    """Sequences per step."""
    dialogs: DialogsSpec | None = None
    """Dialogues; null: the text that gave the tokenizer."""


def ptx_loader(spec: PtxSpec, run: RunSpec, text: Prepared) -> Loader | DialogLoader:
    """Where its micro-batches come from. Raises what reading the dialogues does."""
    shape = run.train.sequence, min(spec.rows, run.train.micro_batch)
    if spec.dialogs is None:
        return Loader(text.training, *shape, run.data.seed)
    given = prepare_dialogs(spec.dialogs, text, run.model.vocab, run.train.sequence)
    return given.loader(shape, run.data.seed)


def ptx_batches(spec: PtxSpec, loader: Loader | DialogLoader) -> list[Weighed]:
    """The micro-batches of a step: each target weighs alike, all of them the section's weight."""
    batches = [next(loader) for _ in range(-(-spec.rows // loader.micro_batch))]
    count = sum(int((targets_BT != IGNORED).sum()) for _, targets_BT in batches)
    each = spec.weight / max(1, count)
    return [
        (tokens_BT, targets_BT, torch.where(targets_BT == IGNORED, 0.0, each))
        for tokens_BT, targets_BT in batches
    ]
