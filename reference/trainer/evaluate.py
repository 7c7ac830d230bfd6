"""The loss on text that training never sees, per byte, so that tokenizers and n-grams compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from math import log

import torch
from torch.nn import functional

from reference.ending import Stop
from reference.metrics import Evaluation
from reference.model.transformer import IGNORED
from reference.parallel.mesh import Mesh
from reference.text.loader import Batch
from reference.trainer.stages import Stage
from reference.trainer.trainee import Trainee
from twin.schedules.base import Action


@torch.no_grad()
def evaluate(
    trainee: Trainee, stage: Stage, sequences: int | None, stop: Stop
) -> Evaluation | None:
    """Bits per byte over the first `sequences` held-out sequences, None for all of them; None where
    there is no held-out text, none is wanted, or the run was asked to stop meanwhile.

    Each token is predicted from those before it in its sequence. Expert loads and maximum logits
    are not counted, since the model is not in training mode. Replicas take batches in turn; one
    that has none left runs along on the last, and counts nothing, since the others of its expert
    group need it.
    """
    for model in trainee.models:
        model.eval()
    mesh, group = trainee.world.mesh, trainee.world.groups["world"]
    total = torch.zeros(4, dtype=torch.float64, device=trainee.device)
    shares = _shares(_limited(trainee, stage, sequences), mesh)
    for batches in shares:
        total += _looked(trainee, batches)
        total[3] = float(stop.signal is not None)
        if group.size == 1 and stop.signal is not None:
            return None
    if group.size > 1:
        group.all_reduce(total, "evaluation")
    nats, targets, bytes_, stopped = total.tolist()
    if not bytes_ or stopped:
        return None
    facts = (nats / log(2) / bytes_, nats / targets, round(targets))
    return Evaluation(trainee.step, stage.name, *facts)


def _looked(trainee: Trainee, batches: Sequence[Batch]) -> torch.Tensor:
    """Nats, targets and bytes of a rank's batch of a round, and no stop."""
    mesh, (tokens_BT, wanted_BT) = trainee.world.mesh, batches[trainee.world.data_index]
    shape = (*tokens_BT.shape, trainee.models[0].spec.hidden)
    like = torch.empty(shape, dtype=trainee.dtype, device=trainee.device)
    given = (tokens_BT.to(trainee.device), wanted_BT)
    found = trainee.runtime.look(_forwards(mesh), [given], like)
    sums = [0.0, 0.0, 0.0, 0.0]
    for logits_BTW in found:
        nats = functional.cross_entropy(
            logits_BTW.flatten(0, 1).float(),
            wanted_BT.flatten().to(trainee.device),
            ignore_index=IGNORED,
            reduction="sum",
        ).item()
        sums = [nats, int((wanted_BT != IGNORED).sum()), trainee.prepared.bytes_of(wanted_BT), 0]
    return torch.tensor(sums, dtype=torch.float64, device=trainee.device)


def _limited(trainee: Trainee, stage: Stage, sequences: int | None) -> Iterator[Batch]:
    """The held-out batches up to a number of sequences."""
    left = sequences
    for tokens_BT, targets_BT in trainee.prepared.held_out(stage.sequence, stage.micro_batch):
        rows = len(tokens_BT) if left is None else min(left, len(tokens_BT))
        if not rows:
            return
        yield tokens_BT[:rows], targets_BT[:rows]
        left = None if left is None else left - rows


def _shares(batches: Iterator[Batch], mesh: Mesh) -> Iterator[list[Batch]]:
    """Rounds of one batch for each replica."""
    while found := list(islice(batches, mesh.data)):
        tokens_BT, targets_BT = found[-1]
        nothing = (tokens_BT, torch.full_like(targets_BT, IGNORED))
        yield [*found, *[nothing] * (mesh.data - len(found))]


def _forwards(mesh: Mesh) -> tuple[tuple[Action, ...], ...]:
    """One micro-batch through the model once, by stage; through the first copy of each part."""
    chunk_map = mesh.chunk_map
    chunks = range(chunk_map.parts)
    return tuple(
        tuple(Action("F", chunk, 0) for chunk in chunks if chunk_map.stage_of[chunk] == stage)
        for stage in range(mesh.spec.pipeline)
    )
