"""Steps of the trainer in the layouts of a GPU day: a scenario of the twin as a run, and what its
steps took.

Model, memory policy, layout and batch are the scenario's, which was sealed before. Steps, text and
learning rate are the trainer's own: they change no time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from reference.metrics import NAME
from twin.loading import load

STEPS: Final = 16
WARM: Final = 6
"""Steps that do not count: kernels are compiled, the allocator finds its sizes."""
_SAME: Final = ("pipeline", "virtual", "expert", "zero", "order", "schedule")


@dataclass(frozen=True, slots=True)
class LayoutTime:
    """Seconds of the steps that count, their quartiles, and the largest peak of a rank's memory."""

    name: str
    seconds: float
    lower: float
    upper: float
    steps: int
    peak_bytes: int


def ranks(scenario: Path) -> int:
    """GPUs of a layout."""
    return load(scenario).cluster.gpus


def run_of(scenario: Path, output: Path, steps: int = STEPS) -> dict[str, Any]:
    """The trainer's configuration, as `reference.train` reads it."""
    found: Any = load(scenario)
    parallel, train = found.parallel, found.train
    written = parallel.model_dump(mode="json")
    return {
        "model": found.model.model_dump(mode="json", by_alias=True),
        "train": {
            "steps": steps,
            "sequence": train.sequence,
            "micro_batch": parallel.micro_batch,
            "accumulate": train.global_batch_sequences // parallel.micro_batch,
            "output": str(output),
            "deterministic": False,
            "checkpoint_every": 0,
            "evaluate_every": 0,
            "final_sequences": 0,
        },
        "optimizer": {"kind": train.optimizer.model_dump()["kind"]},
        "balance": {"forced": train.routing.kind == "balanced"},
        "parallel": {name: written[name] for name in _SAME} | {"layers": written["layers"]},
        "memory": found.memory.model_dump(mode="json"),
    }


def read_steps(name: str, folder: Path) -> LayoutTime:
    """What a run took. Raises LookupError where it has too few steps."""
    lines = (folder / NAME).read_text(encoding="utf-8").splitlines()
    steps: list[Mapping[str, Any]] = [
        one for one in map(json.loads, lines) if one.get("kind") == "step"
    ]
    own = [float(one["seconds"]) for one in steps if one["step"] > WARM]
    if len(own) < 2:
        raise LookupError(f"{name} made {len(steps)} steps")
    lower, _, upper = quantiles(own, n=4)
    peak = max(int(one["peak_bytes"]) for one in steps)
    return LayoutTime(name, median(own), lower, upper, len(own), peak)
