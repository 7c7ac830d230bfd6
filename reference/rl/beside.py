"""PTX: ordinary cross-entropy on chosen text or dialogues beside the objective, against forgetting
(Kimi K2, report, section 3.2.3; Ouyang et al. 2022, arXiv:2203.02155, equation 2). Its weight is
OURS.

Legend: B rows, T tokens.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, Strict

from reference.config import RunSpec
from reference.text.dialog_loader import DialogLoader
from reference.text.dialogs import prepare_dialogs
from reference.text.loader import IGNORED, Loader, Weighed
from reference.text.prepare import Prepared
from reference.text.spec import DialogsSpec
from twin.spec.base import Count, Spec


class PtxSpec(Spec):
    """What is learned beside."""

    weight: Annotated[float, Strict(), Field(gt=0, le=1e3)] = Field(
        default=0.1, description="of the mean cross-entropy, added to the objective of a step"
    )
    rows: Count = Field(default=8, description="sequences per step")
    dialogs: DialogsSpec | None = Field(
        default=None, description="dialogues; null: the text that gave the tokenizer"
    )


def loader_of(spec: PtxSpec, run: RunSpec, text: Prepared) -> Loader | DialogLoader:
    """Where its micro-batches come from. Raises what reading the dialogues does."""
    shape = run.train.sequence, min(spec.rows, run.train.micro_batch)
    if spec.dialogs is None:
        return Loader(text.training, *shape, run.data.seed)
    given = prepare_dialogs(spec.dialogs, text, run.model.vocab, run.train.sequence)
    return given.loader(shape, run.data.seed)


def beside(spec: PtxSpec, loader: Loader | DialogLoader) -> list[Weighed]:
    """The micro-batches of a step: each target weighs alike, all of them the section's weight."""
    batches = [next(loader) for _ in range(-(-spec.rows // loader.micro_batch))]
    count = sum(int((targets_BT != IGNORED).sum()) for _, targets_BT in batches)
    each = spec.weight / max(1, count)
    return [
        (tokens_BT, targets_BT, torch.where(targets_BT == IGNORED, 0.0, each))
        for tokens_BT, targets_BT in batches
    ]
