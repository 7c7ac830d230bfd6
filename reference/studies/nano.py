"""How large the runs of a study are, and one run of it: preset nano, with other lengths, optimizers
and seeds.

The schedule keeps the preset's proportions at every length and rate. A seed is that of the weights
and of the order of the documents. All runs are judged on the same held-out sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from reference.config import RunSpec, load_run


@dataclass(frozen=True, slots=True)
class Scale:
    """What all runs of a study share."""

    warmup: ClassVar = 0.05
    """Share of the steps in which the learning rate rises, as in the preset."""
    decay: ClassVar = 0.4
    """Share of the steps in which it falls at the end, as in the preset."""
    fall: ClassVar = 30
    """How many times lower it ends, as in the preset."""
    base: RunSpec
    seeds: tuple[int, ...]
    evaluations: int = 10
    """Of each run, evenly spaced."""

    @property
    def steps(self) -> int:
        """Of a run at full length."""
        return self.base.train.steps

    @property
    def tokens_per_step(self) -> int:
        """Trained on."""
        train = self.base.train
        return train.sequence * train.micro_batch * train.accumulate

    def run(
        self, seed: int, lr: float, steps: int | None = None, decay: float = decay, **optimizer: Any
    ) -> RunSpec:
        """One run; `decay` is the share of its steps after the constant rate, `optimizer` are
        further fields of that section."""
        steps = steps or self.steps
        warmup, falling = max(1, round(steps * self.warmup)), round(steps * decay)
        schedule = {
            "warmup_steps": warmup,
            "constant_steps": steps - warmup - falling,
            "decay_steps": falling,
            "final_lr": lr / self.fall,
        }
        train = {"steps": steps, "seed": seed, "evaluate_every": max(1, steps // self.evaluations)}
        facts = self.base.model_dump(mode="json")
        facts["schedule"] |= schedule
        facts["train"] |= train
        facts["data"] |= {"seed": seed}
        facts["optimizer"] |= {"lr": lr} | optimizer
        return RunSpec.model_validate(facts)


def nano(
    *, quick: bool, steps: int, seeds: int = 3, sequence: int = 256, evaluations: int = 10
) -> Scale:
    """Preset nano with its 1,024 tokens per step. Quick: a look in seconds at whether a study
    runs; it finds nothing."""
    micro_batch, judged = 1024 // sequence, 96 * 256 // sequence
    if quick:
        steps, seeds, sequence, micro_batch, judged = 20, 1, 64, 4, 8
    words = {
        "steps": steps,
        "sequence": sequence,
        "micro_batch": micro_batch,
        "evaluate_sequences": judged,
        "final_sequences": judged,
        "checkpoint_every": 0,
        "device": "cpu",
        "threads": 1,
    }
    run = load_run("nano", [f"train.{key}={value}" for key, value in words.items()])
    return Scale(run, tuple(range(seeds)), evaluations)


def with_experts(run: RunSpec, experts: int) -> RunSpec:
    """The run with another number of routed experts in each layer that has any."""
    assert run.model.moe is not None
    moe = run.model.moe.model_copy(update={"experts": experts})
    return run.model_copy(update={"model": run.model.model_copy(update={"moe": moe})})
