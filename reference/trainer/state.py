"""A run between two steps as tensors by name, and back: all that the next step depends on, but for
the place in the text and the count of steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from reference.checkpoint import Checkpoint, load_tensors
from reference.model import Transformer
from reference.optim.muonclip import MuonClip
from twin.errors import Problem, ScenarioError

_RNG = "rng/"
_SHOWN = 8
"""Tensors named in one message."""


def tensors_of(model: Transformer, optimizer: MuonClip) -> dict[str, Tensor]:
    """Parameters, router biases and optimizer states, as they are and no copies, and the states of
    the random generators, by name."""
    found = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for name, states in optimizer.state_dict()["state"].items():
        found |= {f"optimizer/{name}/{key}": tensor for key, tensor in states.items()}
    found[f"{_RNG}cpu"] = torch.get_rng_state()
    if model.embedding.weight.is_cuda:
        found[f"{_RNG}cuda"] = torch.cuda.get_rng_state()
    return found


def restore(checkpoint: Checkpoint, model: Transformer, optimizer: MuonClip) -> None:
    """Put a checkpoint's state into a model and its optimizer.

    Raises ScenarioError where the checkpoint holds other tensors.
    """
    own = tensors_of(model, optimizer)
    _refuse_other_shapes(checkpoint, own)
    load_tensors(checkpoint, own)
    torch.set_rng_state(own[f"{_RNG}cpu"])
    if f"{_RNG}cuda" in own:
        torch.cuda.set_rng_state(own[f"{_RNG}cuda"])


def _refuse_other_shapes(checkpoint: Checkpoint, own: Mapping[str, Tensor]) -> None:
    here = {
        name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        for name, tensor in own.items()
    }
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


def _facts(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    if tensor is None:
        return "absent"
    kind, shape = tensor
    return f"{kind} {'x'.join(map(str, shape)) or 'scalar'}"
