"""A step, and an evaluation on held-out text.

One optimizer step, top to bottom, on one rank: micro-batches forward and backward in the order
of the schedule, gradients summed over replicas, the optimizer, QK-clip on the maxima of those
forwards, the routers' biases on their loads, new weights to the other replicas.

Behind the last pass ranks agree on the largest attention logits and on the loads of experts: one
small all-reduce each, for all layers of a rank together. Maxima are those of a stage's replicas,
which saw other text (Kimi K2, arXiv:2507.20534, algorithm 1, line 10). Loads likewise: a router's
bias answers to the whole step (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).

Shapes: H heads of a layer, E experts, X all of a rank's.

The loss on text that training never sees, per byte, so that tokenizers and n-grams compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite, log, sqrt
from time import perf_counter, sleep, time_ns
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from reference.config import RunSpec
from reference.ending import Stop
from reference.metrics import Evaluation, StepMetrics
from reference.model.moe import Router
from reference.optim.qk_clip import ClipReport, clip, clippable
from reference.parallel.groups import Group, Reduction
from reference.parallel.mesh import Mesh
from reference.parallel.runtime import Outcome
from reference.parallel.timeline import NOWHERE, TimelineSpan, ended
from reference.text.loader import IGNORED, Batch, Weighed
from reference.trainer.stages import Stage
from reference.trainer.trainee import Trainee, flop_per_token
from twin.schedules.base import Action


@dataclass(frozen=True, slots=True)
class Made:
    """A step that was made, or that ended the run."""

    step: StepMetrics | None
    """None where the loss is no number, and no update was made."""
    stopped: bool
    """Whether any rank was asked to stop."""


def train_step(run: RunSpec, stage: Stage, trainee: Trainee, stop: Stop) -> Made:
    """One step of a stage. All ranks call it alike, and all are told the same."""
    started, begun = perf_counter(), time_ns()
    world, optimizer = trainee.world, trainee.optimizer
    world.tape.step = trainee.step + 1
    note = world.tape.note(f"ProfilerStep#{world.tape.step}")
    for model in trainee.models:
        model.train()
    optimizer.lr = stage.learning_rate(run, trainee.step)
    trainee.reset_counts()

    outcome = _gradients(stage, trainee)
    told = [outcome.loss, float(optimizer.norm_squares()), float(stop.signal is not None)]
    loss, squares, stops = world.groups["world"].reduced(told, "gradient_norm", trainee.device)
    if not isfinite(loss):
        ended(note)
        return Made(None, stops > 0)
    clipped = _update(run, trainee)
    trainee.step += 1
    trainee.tokens += stage.tokens
    ended(note)
    world.tape.end_step(begun)
    facts = _logged(stage, trainee, outcome, clipped)
    speed = _speed(stage, trainee, perf_counter() - started)
    return Made(StepMetrics(loss=loss, gradient_norm=sqrt(squares), **facts, **speed), stops > 0)


def _gradients(stage: Stage, trainee: Trainee) -> Outcome:
    """The gradients of the mean loss over the step's tokens, or of the sum of weighted ones, summed
    over replicas, in fp32."""
    mesh, optimizer = trainee.world.mesh, trainee.optimizer
    batches = [trainee.next_batch() for _ in range(stage.accumulate // mesh.data)]
    plain = trainee.all_learned and not _weighed(batches)
    of = stage.accumulate if plain else _shares(trainee, batches)
    orders = mesh.spec.schedule.order(mesh.spec.pipeline, mesh.spec.virtual, len(batches))
    shape = (stage.micro_batch, stage.sequence, trainee.models[0].spec.hidden)
    like = torch.empty((), dtype=trainee.dtype, device=trainee.device).expand(shape)
    place = {chunk: part for part, chunk in enumerate(trainee.parts)}

    def reduce(chunk: int) -> None:
        optimizer.reduce(place[chunk], chunk)

    # Stages that hold copies of each other's parts finish them in different orders.
    at_once = mesh.chunk_map.copies == 1
    outcome = trainee.runtime.step(orders, batches, like, of, reduce if at_once else _nothing)
    if not at_once:
        for chunk in trainee.parts:
            reduce(chunk)
    return outcome


def _shares(trainee: Trainee, batches: Sequence[Batch | Weighed]) -> list[float]:
    """What the mean of each micro-batch is divided by, so that every target of the step counts
    alike, however many a micro-batch has; 1 where targets have weights of their own."""
    if _weighed(batches):
        return [1.0] * len(batches)
    counts = [int((batch[1] != IGNORED).sum()) for batch in batches]
    group = trainee.world.groups["data"]
    (total,) = group.reduced([float(sum(counts))], "targets", trainee.device)
    return [total / count for count in counts]


def _weighed(batches: Sequence[Batch | Weighed]) -> bool:
    """Whether targets have weights of their own."""
    return any(len(batch) > 2 for batch in batches)


def _update(run: RunSpec, trainee: Trainee) -> ClipReport:
    """Move the weights, and what follows from the step's forwards."""
    optimizer, groups, tape = trainee.optimizer, trainee.world.groups, trainee.world.tape
    begun, first = time_ns(), tape.mark()
    note = tape.note("optimizer")
    optimizer.advance()
    ended(note)
    taken, advanced = time_ns() - begun, tape.mark()
    optimizer.gather()
    if run.optimizer.clip.variant != "off":
        agree_maxima(trainee.models, groups["data"])
    adaptive = run.optimizer.clip.variant == "adaptive" and groups["pipeline"].size > 1
    everyone = population(trainee.models, groups["pipeline"]) if adaptive else None
    begun, gathered = time_ns(), tape.mark()
    note = tape.note("optimizer")
    optimizer.move()
    clipped = clip(trainee.models, optimizer, run.optimizer.clip, everyone)
    least = begun + trainee.optimizer_ns - taken
    sleep(max(0.0, (least - time_ns()) / 1e9))
    ended(note)
    for start, end in ((first, advanced), (gathered, tape.mark())):
        tape.span(TimelineSpan(tape.step, "compute", "optimizer", NOWHERE, NOWHERE, start, end))
    optimizer.publish()
    optimizer.zero_grad()
    agree_loads(trainee.models, groups["data"])
    for model in trainee.models:
        for router in model.routers():
            router.update_bias(run.balance.bias_rate)
    return clipped


def _logged(
    stage: Stage, trainee: Trainee, outcome: Outcome, clipped: ClipReport
) -> dict[str, Any]:
    """The facts of a step, of all ranks together, but for loss, norm and time."""
    world, device = trainee.world, trainee.device
    kept = -1.0 if outcome.kept is None else float(outcome.kept)
    most = [clipped.max_logit, trainee.load_imbalance(), kept, float(trainee.peak_bytes())]
    group = world.groups["world"]
    (heads,) = group.reduced([float(clipped.heads)], "metrics", device)
    if group.size > 1:  # every rank of a stage clips the same heads
        heads /= world.mesh.data * world.mesh.chunk_map.copies
    logit, imbalance, kept, peak = group.reduced(most, "metrics", device, "max")
    return {
        "step": trainee.step,
        "stage": stage.name,
        "tokens": trainee.tokens,
        "lr": trainee.optimizer.lr,
        "max_logit": logit,
        "clipped_heads": round(heads),
        "load_imbalance": imbalance,
        "kept_bytes": None if kept < 0 else int(kept),
        "peak_bytes": int(peak),
    }


def _speed(stage: Stage, trainee: Trainee, seconds: float) -> dict[str, Any]:
    peak = trainee.peak_flop_per_s
    work = flop_per_token(trainee.counted, stage.sequence) * stage.tokens if peak else 0.0
    mfu = work / seconds / (peak * trainee.world.ranks) if peak else None
    return {"seconds": seconds, "tokens_per_s": stage.tokens / seconds, "mfu": mfu}


def _nothing(chunk: int) -> None:
    del chunk


@torch.no_grad()
def agree_maxima(parts: Iterable[nn.Module], replicas: Group) -> None:
    """Make the largest logit of each head that of all replicas. What is no number becomes infinite,
    since a maximum of it depends on the order: QK-clip counts both alike."""
    maxima = [block.max_logit_H for block in clippable(parts)]
    for max_logit_H in maxima:
        max_logit_H.nan_to_num_(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    _agree(maxima, replicas, "qk_maxima", "max")


@torch.no_grad()
def agree_loads(parts: Iterable[nn.Module], replicas: Group) -> None:
    """Make the load of each expert what all replicas sent to it."""
    routers = (one for part in parts for one in part.modules() if isinstance(one, Router))
    _agree([router.load_E for router in routers], replicas, "expert_loads", "sum")


@torch.no_grad()
def population(parts: Iterable[nn.Module], pipeline: Group) -> Tensor:
    """The maxima of all heads of the whole model, fp32 [X], from every stage of a pipeline, for
    `clip` with `adaptive`; behind `agree_maxima`. Heads of a part that two stages hold are there
    twice, which leaves their median where it is."""
    maxima = [block.max_logit_H.float() for block in clippable(parts)]
    device = maxima[0].device if maxima else torch.device("cpu")
    own = torch.cat(maxima) if maxima else torch.empty(0)
    most = pipeline.all_reduce(torch.tensor([own.numel()], device=device), "qk_heads", "max")
    # A head that never ran has no say in the median.
    padded = torch.full((int(most),), -torch.inf, device=device)
    padded[: own.numel()] = own
    return pipeline.all_gather(padded.new_empty(padded.numel() * pipeline.size), padded, "qk_heads")


def _agree(tensors: Sequence[Tensor], group: Group, name: str, reduction: Reduction) -> None:
    if group.size == 1 or not tensors:
        return
    packed_X = torch.cat(list(tensors))
    group.all_reduce(packed_X, name, reduction)
    for tensor, agreed in zip(tensors, packed_X.split([len(one) for one in tensors]), strict=True):
        tensor.copy_(agreed)


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
    shares = _rounds(_limited(trainee, stage, sequences), mesh)
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


def _rounds(batches: Iterator[Batch], mesh: Mesh) -> Iterator[list[Batch]]:
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
