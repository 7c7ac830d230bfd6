"""A run to disk and back: its checkpoints, whether they are this configuration's, and its state.

The state is all that the next step depends on: parameters, router biases and optimizer states as
pieces of tensors by name, the place in the text, the count of steps, and the states of the random
generators. These are the first rank's, for all ranks: no step draws a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed import ProcessGroup

from reference.checkpoint.folder import (
    IntactCheckpoint,
    Snapshot,
    load_tensors,
    newest,
    remove_unfinished,
)
from reference.checkpoint.folder import save as save_checkpoint
from reference.checkpoint.piece import Piece, Pieces, Whole, held_by, on_first, piece_of
from reference.config import RunSpec
from reference.metrics import Metrics
from reference.optim.blocks import is_expert
from reference.trainer.settings import CHECKPOINTS, differences, weights_of, write_config
from reference.trainer.trainee import Trainee
from twin.errors import Problem, ScenarioError, render

MAY_CHANGE: Final = frozenset(
    f"train.{name}"
    for name in (
        "output",
        "checkpoint_every",
        "keep",
        "evaluate_every",
        "evaluate_sequences",
        "final_sequences",
        "spectra_every",
        "tensorboard",
        "timeline",
        "pace",
        "profile",
    )
) | {"data.cache"}
"""What a resumed run may do otherwise: it changes no number of the training."""
LAYOUT: Final = "parallel."
"""What it may cut otherwise: numbers change by the order of sums."""
ASKED: Final = "evaluate."
"""What its model may be asked otherwise."""


Found = tuple[IntactCheckpoint | None, Sequence[Problem]]
"""The checkpoint to go on from, None at the beginning, and newer ones that were refused."""


def find(
    run: RunSpec, folder: Path, tell: Callable[[str], None], group: ProcessGroup | None = None
) -> Found:
    """The newest intact checkpoint of the folder, which from now on says what runs in it. Of a
    group the first rank looks, for all; every rank tells.

    Raises ScenarioError where checkpoints exist and none is intact, or where the run was another.
    """
    checkpoints = folder / CHECKPOINTS
    for name in on_first(group, lambda: remove_unfinished(checkpoints)):
        tell(f"removed `{name}`, which a process that was killed had not finished")
    checkpoint, refused = newest(checkpoints, group)
    if refused:
        tell(render(refused))
    if refused and checkpoint is None:
        message = f"no checkpoint in `{checkpoints}` is intact"
        raise ScenarioError([Problem("TW236", "", message, "`--fresh` begins anew")])
    config = run.model_dump(mode="json")
    if checkpoint is not None:
        _refuse_other_run(checkpoint, config)
    on_first(group, lambda: write_config(folder, config))
    return checkpoint, refused


def put_back(checkpoint: IntactCheckpoint, trainee: Trainee, tell: Callable[[str], None]) -> None:
    """The checkpoint's state into a new trainee. Raises ScenarioError where it does not fit."""
    restore(checkpoint, trainee)
    trainee.step, trainee.tokens = checkpoint.step, checkpoint.facts["tokens"]
    trainee.loader.load_state_dict(checkpoint.facts["loader"])
    tell(f"resumed after step {checkpoint.step}, from `{checkpoint.path.name}`")


def _refuse_other_run(checkpoint: IntactCheckpoint, config: Mapping[str, Any]) -> None:
    """Raises ScenarioError with every field in which the configurations differ."""
    before, now = dict(_leaves(checkpoint.config)), dict(_leaves(config))
    problems = [
        Problem(
            "TW234",
            path,
            f"the run in this folder has `{path}` {_shown(before, path)}, not {_shown(now, path)}",
            "resume with what it has, or begin anew with `--fresh` or in another `train.output`",
        )
        for path in sorted(before.keys() | now.keys())
        if path not in MAY_CHANGE
        and not path.startswith((LAYOUT, ASKED))
        and before.get(path, ...) != now.get(path, ...)
    ]
    if problems:
        raise ScenarioError(problems)


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its dotted path; an empty section or list is a value."""
    if isinstance(node, Mapping) and node:
        for key, child in node.items():
            yield from _leaves(child, f"{path}.{key}" if path else key)
    elif isinstance(node, list) and node:
        for index, child in enumerate(node):
            yield from _leaves(child, f"{path}.{index}")
    else:
        yield path, node


def _shown(leaves: Mapping[str, Any], path: str) -> str:
    return f"{leaves[path]!r}" if path in leaves else "unset"


_RNG = "rng/"


def tensors_of(trainee: Trainee) -> dict[str, Pieces]:
    """Parameters, router biases and optimizer states of a rank, as they are and no copies, by
    name."""
    found: dict[str, Pieces] = {}
    for part in trainee.parts.values():
        found |= weights_of(part)
    return {**found, **trainee.optimizer.pieces()}


def written_by(trainee: Trainee) -> dict[str, Pieces]:
    """What a rank writes of them, and the states of the random generators: of ranks that hold the
    same, one."""
    groups, found = trainee.world.groups, dict[str, Pieces]()
    for part in trainee.parts.values():
        found |= {
            name: piece
            for name, piece in weights_of(part).items()
            if groups["expert_data" if is_expert(name) else "data"].index == 0
        }
    random = random_states(trainee.device) if trainee.world.first else {}
    return {**found, **trainee.optimizer.pieces(once=True), **random}


def random_states(device: torch.device) -> dict[str, Piece]:
    """Copies of the states of the random generators."""
    found = {f"{_RNG}cpu": piece_of(torch.get_rng_state())}
    if device.type == "cuda":
        found[f"{_RNG}cuda"] = piece_of(torch.cuda.get_rng_state(device))
    return found


def restore(checkpoint: IntactCheckpoint, trainee: Trainee) -> None:
    """Put a checkpoint's state into what a rank holds.

    Raises ScenarioError where the checkpoint holds other tensors.
    """
    group = trainee.world.groups["world"].handle
    fill(checkpoint, tensors_of(trainee), trainee.device, group)


def fill(
    checkpoint: IntactCheckpoint,
    own: Mapping[str, Pieces],
    device: torch.device,
    group: ProcessGroup | None = None,
) -> None:
    """Put a checkpoint's numbers into the pieces of each rank, and into its random generators.

    Raises ScenarioError, on all ranks, where the checkpoint holds other tensors.
    """
    random = random_states(device)
    wanted = {**own, **random}
    held = held_by(group, wanted)
    _refuse_other_shapes(checkpoint, {name: one.whole for name, one in held.items()})
    nowhere = [name for name, one in held.items() if not one.complete]
    if nowhere:
        raise ValueError(f"no rank has some numbers of `{nowhere[0]}`: {held[nowhere[0]]}")
    load_tensors(checkpoint, wanted, group)
    torch.set_rng_state(random[f"{_RNG}cpu"].tensor)
    if f"{_RNG}cuda" in random:
        torch.cuda.set_rng_state(random[f"{_RNG}cuda"].tensor, device)


def _refuse_other_shapes(checkpoint: IntactCheckpoint, here: Mapping[str, Whole]) -> None:
    if wrong := differences(checkpoint.shapes, here, _facts, 8):
        message = f"checkpoint `{checkpoint.path.name}` holds other tensors: {wrong}"
        raise ScenarioError([Problem("TW235", "model", message, "`--fresh` begins anew")])


def _facts(tensor: Whole | None) -> str:
    if tensor is None:
        return "absent"
    kind, shape = tensor
    return f"{kind} {'x'.join(map(str, shape)) or 'scalar'}"


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
