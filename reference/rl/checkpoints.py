"""Checkpoints of a run, wherever it can stop: the trainer's state, the position, every unfinished
response with its world, and the history of tasks.

The inference engine is not written: its weights are the trainer's, and its cache is computed again
at each such place anyway. The folder is a run's like any other, so that it is served, evaluated,
converted, fine-tuned, and learned on again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from reference.checkpoint.folder import IntactCheckpoint, Snapshot
from reference.checkpoint.folder import save as write
from reference.rl.prompts import History
from reference.rl.records import group_json, group_of
from reference.rl.rollout import RolloutCounts
from reference.rl.session import RunPosition, Session
from reference.rl.spec import RlSpec
from reference.trainer.resume import restore, written_by
from reference.trainer.settings import CHECKPOINTS
from twin.errors import Problem, ScenarioError

MAY_CHANGE: Final = frozenset({"output", "keep", "checkpoint_every"})
"""Fields of `train` that a resumed run may change."""


def save(session: Session) -> None:
    """Write a checkpoint, where the run writes anything."""
    spec, trainee, place = session.spec, session.trainee, session.place
    if spec.train.output is None:
        return
    session.log.sync()
    facts = {
        "tokens": trainee.tokens,
        "step": trainee.step,
        "loader": trainee.loader.state_dict(),
        "rl": {
            "spec": spec.model_dump(mode="json"),
            "place": asdict(place),
            "lines": session.log.count,
            "open": [group_json(group) for group in session.open],
            "ready": [group_json(group) for group in session.ready],
            "history": asdict(session.history),
            "facts": session.facts,
            "seconds": session.seconds,
            "seen": asdict(session.rollout.seen),
            "ptx": None if session.ptx is None else session.ptx.state_dict(),
        },
    }
    config = session.run.model_dump(mode="json")
    snapshot = Snapshot(place.points, written_by(trainee), facts, config)
    write(Path(spec.train.output) / CHECKPOINTS, snapshot, spec.train.keep)


def put_back(checkpoint: IntactCheckpoint, session: Session) -> None:
    """The checkpoint's state into a new session. Raises ScenarioError where it does not fit."""
    there = checkpoint.facts["rl"]
    trainee = session.trainee
    restore(checkpoint, trainee)
    trainee.step, trainee.tokens = checkpoint.facts["step"], checkpoint.facts["tokens"]
    session.place = RunPosition(**there["place"])
    session.open = [group_of(row) for row in there["open"]]
    session.ready = [group_of(row) for row in there["ready"]]
    session.history = History(**there["history"])
    session.facts, session.seconds = dict(there["facts"]), dict(there["seconds"])
    session.rollout.seen = RolloutCounts(**there["seen"])
    session.rollout.clock, session.rollout.written = session.place.clock, session.place.written
    if session.ptx is not None:
        session.ptx.load_state_dict(there["ptx"])
    session.tell(f"resumed in iteration {session.place.iteration + 1}, {session.place.phase}")


def lines_of(checkpoint: IntactCheckpoint | None) -> int | None:
    """Lines of the log that the checkpoint knows."""
    return None if checkpoint is None else checkpoint.facts["rl"]["lines"]


def refuse_other(checkpoint: IntactCheckpoint, spec: RlSpec) -> None:
    """Raises ScenarioError TW644 where the folder's run is no such one, or another."""
    before = checkpoint.facts.get("rl", {}).get("spec")
    if before is None:
        message = f"checkpoint `{checkpoint.path.name}` is of no run of `python -m reference.rl`"
        fix = "name another `train.output`"
        raise ScenarioError([Problem("TW644", "train.output", message, fix)])
    now = _compared(spec.model_dump(mode="json"))
    wrong = [name for name, value in _compared(before).items() if now.get(name) != value]
    if wrong:
        fix = "resume with its value, or begin anew with `--fresh`"
        message = "the run in this folder has another `{}`"
        raise ScenarioError([Problem("TW644", name, message.format(name), fix) for name in wrong])


def _compared(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same, by section; the trainer's by field."""
    sections = {name: value for name, value in spec.items() if name != "train"}
    train = {name: value for name, value in spec["train"].items() if name not in MAY_CHANGE}
    return {**sections, **{f"train.{name}": value for name, value in train.items()}}
