"""A checkpoint of a run, by all its ranks."""

from __future__ import annotations

from pathlib import Path

from reference.checkpoint import Snapshot
from reference.checkpoint import save as save_checkpoint
from reference.config import RunSpec
from reference.metrics import Metrics
from reference.trainer.folder import CHECKPOINTS
from reference.trainer.state import written_by
from reference.trainer.trainee import Trainee


def save(run: RunSpec, trainee: Trainee, log: Metrics) -> None:
    """Write a checkpoint, where the run writes anything."""
    if run.train.output is None:
        return
    log.sync()  # on resume the log must reach as far as the checkpoint
    facts = {"tokens": trainee.tokens, "loader": trainee.loader.state_dict()}
    snapshot = Snapshot(trainee.step, written_by(trainee), facts, run.model_dump(mode="json"))
    group = trainee.world.groups["world"].handle
    path = save_checkpoint(Path(run.train.output) / CHECKPOINTS, snapshot, run.train.keep, group)
    log.event("checkpoint", trainee.step, name=path.name)
