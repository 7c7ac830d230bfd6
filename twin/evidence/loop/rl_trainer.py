"""What `python -m reference.rl` reads, written from a scenario with an iteration of reinforcement
learning.

Rewards, text and learning rate are the trainer's own: they change no time. Answers are as long as
the scenario says, since nothing that ends one earlier is drawn: tasks ask for lengths at the middle
of equal shares of the scenario's requests, and all responses to a task are alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from twin.errors import Problem
from twin.kinds.iteration.types import IterationPlan
from twin.kinds.rollouts.plan import Sample, draw
from twin.spec.rollout import RolloutSpec
from twin.units import format_quantity

TEMPLATE: Final = 18
"""Tokens of the template around one user message (`reference.text.template`;
tests/evidence/loop/test_rl_reference.py)."""
GROUP: Final = 2
"""Responses to a prompt: as few as can be compared, since they are alike, and requests are not."""
DRAWN: Final = 101
"""Requests that are drawn for each task, of which it takes the one in the middle by length."""
BLOCK: Final = 16
"""Tokens of a block of the cache."""
BLOCKS: Final = 512
"""Blocks at least, as `reference.measure` has them: waking takes as long as they are many."""


def configuration(plan: IterationPlan, output: Path, iterations: int) -> dict[str, Any]:
    """The trainer's configuration: so many iterations, written to a folder."""
    scenario, spec = plan.scenario, plan.spec
    engine, parallel, train = plan.server.spec, scenario.parallel, scenario.train
    tasks = samples(plan.rollouts)
    running = min(engine.batch or plan.rollouts.requests, plan.rollouts.requests)
    longest = max(one.longest for one in tasks)
    return {
        "model": scenario.model.model_dump(mode="json", by_alias=True),
        "data": {"tokenizer": {"kind": "bytes"}},
        "tasks": [
            {
                "source": "lengths",
                "count": len(tasks),
                "options": {
                    "prompt": [one.prompt - TEMPLATE for one in tasks],
                    "written": [one.tokens for one in tasks],
                },
            }
        ],
        "iterations": iterations,
        "prompts": {"count": len(tasks)},
        "rollout": {
            "responses": GROUP,
            "full": True,
            "slice": 0,
            "cap": longest,
            "caps": {f"lengths-{one.tokens}": one.tokens for one in tasks},
            "repeat": {"window": 0},
        },
        "engine": {
            "running": running,
            "step_tokens": engine.chunk,
            "block_tokens": BLOCK,
            "blocks": max(BLOCKS, (running + 1) * (-(-longest // BLOCK) + 1)),
            "share_prefixes": False,
        },
        "update": {
            "stages": spec.update.stages,
            "free_memory": format_quantity(spec.update.free_memory, "bytes"),
            "bucket": format_quantity(spec.update.bucket, "bytes"),
        },
        "train": {
            "updates": spec.optimizer_steps,
            "sequence": train.sequence,
            "micro_batch": parallel.micro_batch,
            "pad_to": spec.pad_to or 1,
            "precision": "bf16",
            "checkpoint_every": 0,
            "output": str(output),
            "device": "cpu",
        },
        "optimizer": {"kind": train.optimizer.model_dump()["kind"]},
        "balance": {"sequence_loss": 0.0, "forced": train.routing.kind == "balanced"},
        "memory": scenario.memory.model_dump(mode="json"),
    }


def samples(rollouts: RolloutSpec) -> list[Sample]:
    """The requests that stand for all, one for each task: by what they write, the middle one of the
    task's share."""
    count = DRAWN * (rollouts.requests // GROUP)
    drawn = sorted(draw(rollouts, count, 0), key=lambda one: (one.tokens, one.prompt))
    return drawn[DRAWN // 2 :: DRAWN]


def problems(plan: IterationPlan) -> list[Problem]:
    """What of a scenario the reference's loop does not do: TW371, one each."""
    return [Problem("TW371", *one) for one in _differences(plan)]


def _differences(plan: IterationPlan) -> Iterator[tuple[str, str, str]]:
    scenario, spec, rollouts = plan.scenario, plan.spec, plan.rollouts
    if plan.gpus != 1:
        message = f"the reference's loop is one process, and the cluster has {plan.gpus} devices"
        yield "cluster.nodes", message, "a node of one device, and `cluster.nodes: 1`"
    if spec.mode != "colocated" or spec.offload:
        message = "engine and trainer take turns, and the trainer's states stay where they are"
        yield "rl.iteration.offload", message, "`mode: colocated` and `offload: false`"
    if spec.batching != "padded":
        message = "the reference pads the sequences of a micro-batch"
        yield "rl.iteration.batching", message, "rl.iteration.batching: padded"
    if spec.scores != 1:
        message = "the reference looks at log-probabilities once"
        yield "rl.iteration.scores", message, "rl.iteration.scores: 1"
    if spec.update.precision != "bf16" or scenario.train.precision != "bf16":
        yield "rl.iteration.update.precision", "the reference computes in bf16", "bf16"
    if rollouts.partial is not None or rollouts.environment is not None or rollouts.read:
        message = "the reference's measuring tasks have one turn and wait for nothing"
        yield "rl.rollout", message, "leave `environment`, `read` and `partial` out"
    if rollouts.requests % GROUP:
        message = "rewards are compared within groups of two responses or more"
        yield "rl.rollout.requests", message, "write an even number"
        return
    tasks = samples(rollouts)
    short = min(one.prompt for one in tasks)
    if short <= TEMPLATE:
        message = f"a prompt of {short} tokens, of which the template has {TEMPLATE}"
        yield "rl.rollout.prompt", message, f"write at least {TEMPLATE + 1}"
    longest, room = max(one.longest for one in tasks), scenario.train.sequence
    if longest > room:
        message = f"a response has {longest} tokens with its prompt, and sequences {room}"
        yield "train.sequence", message, f"train.sequence: {longest}tok"
