"""The loss on text that training never sees, per byte, so that tokenizers and n-grams compare."""

from __future__ import annotations

from math import log

import torch
from torch.nn import functional

from reference.metrics import Evaluation
from reference.model.transformer import IGNORED
from reference.trainer.signals import Stop
from reference.trainer.stages import Stage
from reference.trainer.trainee import Trainee


@torch.no_grad()
def evaluate(
    trainee: Trainee, stage: Stage, sequences: int | None, stop: Stop
) -> Evaluation | None:
    """Bits per byte over the first `sequences` held-out sequences, None for all of them; None where
    there is no held-out text, none is wanted, or the run was asked to stop meanwhile.

    Each token is predicted from those before it in its sequence. Expert loads and maximum logits
    are not counted, since the model is not in training mode.
    """
    model = trainee.model.eval()
    nats, targets, bytes_ = 0.0, 0, 0
    left = sequences
    for tokens_BT, targets_BT in trainee.prepared.held_out(stage.sequence, stage.micro_batch):
        rows = len(tokens_BT) if left is None else min(left, len(tokens_BT))
        if stop.signal is not None:
            return None
        if not rows:
            break
        wanted_BT = targets_BT[:rows]
        logits_NW = model(tokens_BT[:rows].to(trainee.device)).flatten(0, 1).float()
        nats += functional.cross_entropy(
            logits_NW,
            wanted_BT.flatten().to(trainee.device),
            ignore_index=IGNORED,
            reduction="sum",
        ).item()
        targets += int((wanted_BT != IGNORED).sum())
        bytes_ += trainee.prepared.bytes_of(wanted_BT)
        left = None if left is None else left - rows
    if not bytes_:
        return None
    return Evaluation(trainee.step, stage.name, nats / log(2) / bytes_, nats / targets, targets)
