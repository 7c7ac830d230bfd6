"""What a study keeps of a run: curves, held-out losses and the spectra of the last weights, as JSON
named by the content of the run, so that a study that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from reference.config import RunSpec
from reference.optim.blocks import matrices
from reference.optim.diagnostics import svd_entropy
from reference.train import Result
from reference.trainer.flop import flop_per_token

_FORMAT: Final = 1
"""Version of what is kept; another one is not read, but run again."""
_ROOT: Final = Path(__file__).parents[1]
_BESIDE: Final = frozenset({"studies", "measure", "convert"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run that ended, per step where nothing else is said."""

    ended: str
    """`done`, or `diverged`: the loss was no number any more."""
    tokens_per_step: int
    flop_per_token: float
    """Model FLOP, forward and backward."""
    losses: tuple[float, ...]
    """Nats per token of the step's batch, before its update."""
    max_logits: tuple[float, ...]
    clipped_heads: tuple[int, ...]
    imbalances: tuple[float, ...]
    """Tokens of the fullest expert over the mean, in the worst layer."""
    held_out: tuple[tuple[int, float], ...]
    """(step, nats per token) of each evaluation."""
    bits_per_byte: float
    """Of held-out text, at the end."""
    entropies: Mapping[str, tuple[float, ...]]
    """SVD entropy of the matrices in each parameter that Muon would move, at the end."""
    seconds: float
    """Of the steps alone."""

    @property
    def final(self) -> float:
        """Held-out nats per token at the end; infinite where the run diverged."""
        return self.held_out[-1][1] if self.ended == "done" and self.held_out else inf

    @property
    def tokens(self) -> int:
        """Trained on."""
        return self.tokens_per_step * len(self.losses)

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """(tokens, held-out nats per token)."""
        return tuple((step * self.tokens_per_step, loss) for step, loss in self.held_out)


def key_of(run: RunSpec) -> str:
    """The name of a run's outcome: what decides its numbers, the code that trains included."""
    facts = run.model_dump(mode="json")
    facts["train"].pop("output")
    facts["data"].pop("cache")
    parts = [_FORMAT, torch.__version__, code(), facts]
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=10).hexdigest()


@cache
def code(folder: Path = _ROOT) -> str:
    """A digest of the sources that a run's numbers may come from: an outcome of older ones is none
    of today's. Studies and what only measures or converts are no part of it."""
    digest = hashlib.blake2b(digest_size=10)
    for path in sorted(folder.rglob("*.py")):
        if path.relative_to(folder).parts[0] not in _BESIDE:
            digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def outcome_of(run: RunSpec, result: Result) -> Outcome:
    """What is kept of a result. A diverged run has no bits per byte: infinitely many."""
    train, steps, done = run.train, result.steps, result.ended == "done"
    held_out = tuple((one.step, one.loss) for one in result.evaluations)
    return Outcome(
        ended=result.ended,
        tokens_per_step=train.sequence * train.micro_batch * train.accumulate,
        flop_per_token=flop_per_token(result.model, train.sequence),
        losses=tuple(step.loss for step in steps),
        max_logits=tuple(step.max_logit for step in steps),
        clipped_heads=tuple(step.clipped_heads for step in steps),
        imbalances=tuple(step.load_imbalance for step in steps),
        held_out=held_out,
        bits_per_byte=result.evaluations[-1].bits_per_byte if held_out and done else inf,
        entropies=entropies(result.model.named_parameters()),
        seconds=sum(step.seconds for step in steps),
    )


@torch.no_grad()
def entropies(named_parameters: Iterable[tuple[str, Tensor]]) -> dict[str, tuple[float, ...]]:
    """SVD entropy of all matrices in each parameter that Muon moves, by the parameter's name."""
    stacks = ((name, matrices(name, parameter)) for name, parameter in named_parameters)
    return {
        name: tuple(svd_entropy(stack_MRC).tolist())
        for name, stack_MRC in stacks
        if stack_MRC is not None
    }


def write(outcome: Outcome, run: RunSpec, path: Path) -> None:
    """Keep it, in one move, with the run that it is of."""
    facts = {"outcome": asdict(outcome), "run": run.model_dump(mode="json")}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(facts), encoding="utf-8")
    partial.replace(path)


def read(path: Path) -> Outcome | None:
    """The kept outcome; None where there is none, or nothing that can be understood."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["outcome"]
        facts["held_out"] = tuple((step, loss) for step, loss in facts["held_out"])
        facts["entropies"] = {name: tuple(of) for name, of in facts["entropies"].items()}
        for key, value in facts.items():
            facts[key] = tuple(value) if isinstance(value, list) else value
        return Outcome(**facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
