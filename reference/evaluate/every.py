"""A training run that asks its own model: tasks every so many steps, on a copy of the weights.

The copy is on the CPU and shares nothing with the trainee, neither counters nor random numbers, so
that a run with and without it has the same bits. One rank only: a model that is cut over ranks is
whole in no process.
"""

from __future__ import annotations

from typing import Any

import torch

from reference.config import EverySpec, RunSpec
from reference.evaluate.ask.way import Asking
from reference.evaluate.run import judge
from reference.evaluate.subjects.trained import copied
from reference.evaluate.task import open_task
from reference.text.prepare import Prepared, prepare
from reference.trainer.signals import Stop
from reference.trainer.trainee import Trainee
from twin.errors import Problem, ScenarioError


def refuse_impossible(spec: EverySpec, ranks: int) -> None:
    """Raises ScenarioError TW590 where a run that should ask its model has several ranks, and what
    `open_task` does for a task that is none, before the first step."""
    if ranks > 1:
        message = f"tasks are asked of a model on one rank, and there are {ranks}"
        fix = "set `evaluate.every: 0`, and ask its checkpoints with `python -m reference.evaluate`"
        raise ScenarioError([Problem("TW590", "evaluate.every", message, fix)])
    for one in spec.tasks:
        open_task(one, spec.limit)


def asked(run: RunSpec, trainee: Trainee, stop: Stop) -> dict[str, Any] | None:
    """Metrics by task as a log holds them; None where the run was asked to stop meanwhile. Raises
    UsageError for a task that cannot be opened."""
    spec = run.evaluate
    with torch.random.fork_rng(devices=[]):
        prepared = trainee.prepared
        if not isinstance(prepared, Prepared):
            prepared = prepare(run.data, run.model.vocab)
        (model,) = trainee.models
        subject = copied(model, run, prepared)
        held_out = subject.held_out
        tasks = [open_task(one, spec.limit, held_out) for one in spec.tasks]
        found = judge(tasks, Asking(subject, spec.seed), stop=stop)
    if found is None:
        return None
    return {name: _short(one) for name, one in found.items()}


def line(found: dict[str, Any]) -> str:
    """The first metric of each task, for people."""
    parts: list[str] = []
    for name, one in found.items():
        metric = next(iter(one), None)
        if metric == "skipped" or metric is None:
            parts.append(f"{name} skipped")
        else:
            parts.append(f"{name} {one[metric]['value']:.4f} {metric}")
    return "; ".join(parts)


def _short(one: dict[str, Any]) -> dict[str, Any]:
    if "skipped" in one:
        return {"skipped": one["skipped"]}
    kept = ("value", "low", "high", "cases")
    return {name: {key: found[key] for key in kept} for name, found in one["metrics"].items()}
