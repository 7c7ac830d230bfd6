"""The optimizer: Muon for matrices, AdamW for the rest, fp32 masters of bf16 parameters.

The clip of MuonClip comes after the step, from the maxima of the step's forward passes:
`reference.optim.qk_clip.clip(model, optimizer, spec.clip)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from reference.optim import adamw, muon
from reference.optim.blocks import MASTER, ParameterState, States, blocks, first_states
from reference.optim.spec import OptimizerSpec
from twin.errors import Problem, ScenarioError, UsageError


class MuonClip(torch.optim.Optimizer):
    """Moves every parameter that wants a gradient; `spec.kind` says by what.

    Gradients of bf16 parameters are summed over micro-batches in fp32 (`Tensor.grad_dtype`), so
    their `.grad` is fp32. A bf16 parameter is its fp32 master, rounded after each step; values that
    are put into parameters later must be put before this is made. `state[parameter]` has the
    parameter's states by name: `momentum`, or `exp_avg`, `exp_avg_sq` and `step`; and `master`.

    Raises UsageError where there is nothing to move.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, Tensor]],
        spec: OptimizerSpec,
        states: States | None = None,
    ) -> None:
        named = [(name, param) for name, param in named_parameters if param.requires_grad]
        if not named:
            raise UsageError([Problem("TW210", "optimizer", "no parameter wants a gradient")])
        super().__init__([{"params": [param for _, param in named]}], {"lr": spec.lr})
        self.spec = spec
        self.blocks = blocks(named, muon=spec.kind != "adamw")
        self.states = states or States()
        self._home: dict[Tensor, tuple[int, int]] = {}
        for number, block in enumerate(self.blocks):
            self.states.add(block, first_states(block))
            for index, param in enumerate(block.params):
                self._home[param] = number, index
                self.state[param] = ParameterState(self.states, block, index)
                if block.has_master and param.grad is None:
                    param.grad_dtype = block.state_dtype

    @property
    def lr(self) -> float:
        """The learning rate of the next step; AdamW's group multiplies it with its `lr_scale`."""
        return self.param_groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        self.param_groups[0]["lr"] = value

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move the parameters by their gradients. Raises UsageError where one has none: skipping it
        would also skip its momentum and its decay."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._assert_gradients()
        for block in self.blocks:
            state = self.states.load(block)
            algorithm = muon if block.algorithm == "muon" else adamw
            algorithm.update(block, state, self.lr, self.spec)
            self.states.store(block, state)
        return loss

    @torch.no_grad()
    def multiply(self, param: Tensor, factors: Tensor) -> None:
        """Multiply a weight: its master and, rounded from that, the parameter. `factors` broadcast
        over it; a parameter that is not moved here is multiplied itself."""
        number, index = self._home.get(param, (None, 0))
        if number is None or not self.blocks[number].has_master:
            param.mul_(factors.to(param))
            return
        block = self.blocks[number]
        state = self.states.load(block)
        master = block.parts(state[MASTER])[index]
        master.mul_(factors.to(master))
        param.copy_(master)
        self.states.store(block, state)

    def state_dict(self) -> dict[str, Any]:
        """States by the names of their parameters, what they mean, and the learning rate. The
        tensors are the states themselves, not copies."""
        return {
            "state": {
                name: dict(self.state[param])
                for block in self.blocks
                for name, param in zip(block.names, block.params, strict=True)
            },
            "settings": self._settings(),
            "lr": self.lr,
        }

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put back what `state_dict` gave, bit by bit, and the parameters from their masters.

        Raises ScenarioError where the states belong to other parameters or another optimizer.
        """
        own = self.state_dict()
        _refuse_other(own, state_dict)
        for name, tensors in state_dict["state"].items():
            for key, value in tensors.items():
                own["state"][name][key].copy_(value)
        self.lr = state_dict["lr"]
        for block in self.blocks:
            if block.has_master:
                block.round_masters(self.states.kept(block)[MASTER])

    def _settings(self) -> dict[str, Any]:
        """Choices that change what a stored state means."""
        return {"kind": _family(self.spec.kind), "momentum_buffer": self.spec.momentum_buffer}

    def _assert_gradients(self) -> None:
        if all(param.grad is not None for param in self.param_groups[0]["params"]):
            return
        every = [
            pair for block in self.blocks for pair in zip(block.names, block.params, strict=True)
        ]
        without = [name for name, param in every if param.grad is None]
        more = f" and {len(without) - 1} more" if len(without) > 1 else ""
        message = f"no gradient: `{without[0]}`{more}"
        fix = "run backward first, or set `requires_grad` to false before the optimizer is made"
        raise UsageError([Problem("TW211", without[0], message, fix)])


def _family(kind: str) -> str:
    return "adamw" if kind == "adamw" else "muon"


def _refuse_other(own: dict[str, Any], given: dict[str, Any]) -> None:
    problems = [
        Problem("TW212", key, f"the states were stored with `{key}: {theirs}`, not `{mine}`")
        for key, mine in own["settings"].items()
        if (theirs := given["settings"].get(key)) != mine
    ]
    if not problems:
        here, there = _facts(own["state"]), _facts(given["state"])
        wrong = sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key))
        problems = [
            Problem(
                "TW213", key, f"stored: {there.get(key, 'absent')}; here: {here.get(key, 'absent')}"
            )
            for key in wrong
        ]
    if problems:
        raise ScenarioError(problems)


def _facts(state: dict[str, dict[str, Tensor]]) -> dict[str, str]:
    return {
        f"{name}/{key}": f"{value.dtype} {list(value.shape)}"
        for name, tensors in state.items()
        for key, value in tensors.items()
    }
