"""A run between two steps as pieces of tensors by name, and back: all that the next step depends
on, but for the place in the text and the count of steps.

The states of the random generators are the first rank's, for all ranks: no step draws a number.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.distributed import ProcessGroup

from reference.checkpoint import Checkpoint, Piece, Pieces, load_tensors, piece_of
from reference.checkpoint.piece import Whole, held_by
from reference.optim.groups import is_expert
from reference.trainer.trainee import Trainee
from reference.trainer.weights import weights_of
from twin.errors import Problem, ScenarioError

_RNG = "rng/"
_SHOWN = 8
"""Tensors named in one message."""


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


def restore(checkpoint: Checkpoint, trainee: Trainee) -> None:
    """Put a checkpoint's state into what a rank holds.

    Raises ScenarioError where the checkpoint holds other tensors.
    """
    group = trainee.world.groups["world"].handle
    fill(checkpoint, tensors_of(trainee), trainee.device, group)


def fill(
    checkpoint: Checkpoint,
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


def _refuse_other_shapes(checkpoint: Checkpoint, here: Mapping[str, Whole]) -> None:
    there = checkpoint.shapes
    wrong = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if wrong:
        shown = ", ".join(
            f"`{name}` {_facts(there.get(name))} -> {_facts(here.get(name))}"
            for name in wrong[:_SHOWN]
        )
        more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        message = f"checkpoint `{checkpoint.path.name}` holds other tensors: {shown}{more}"
        raise ScenarioError([Problem("TW235", "model", message, "`--fresh` begins anew")])


def _facts(tensor: Whole | None) -> str:
    if tensor is None:
        return "absent"
    kind, shape = tensor
    return f"{kind} {'x'.join(map(str, shape)) or 'scalar'}"
