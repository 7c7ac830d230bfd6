"""Published rows of A100 as scenarios that profiles are fitted on: one layer under five techniques
(Korthikanti et al. 2022, Table 4), and the forty iterations of vTrain that are marked for fitting.

Steps of GPT-175B are in neither. A row is a shipped scenario with overrides, so that it passes
through every room of a planner's scenario. `twin.evidence.validate.fit` fits.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twin.arch.ops import Layer
from twin.engine import lower, plan, simulate
from twin.engine.cost_model import CostModel
from twin.engine.overlap import length_ns
from twin.engine.passes import backward_pass, forward_pass
from twin.engine.program import Template
from twin.loading import load
from twin.loading.files import read_data
from twin.scenario import Scenario

BASE: Final = "gpt-175b-64xa100-full"
"""The scenario that A100 rows change: Megatron-LM, GPT, unfused attention, 16-bit, AdamW."""


@dataclass(frozen=True, slots=True)
class A100Row:
    """One measured time, in seconds, and the overrides of `BASE` that describe what ran."""

    name: str
    overrides: tuple[str, ...]
    measured: float
    predict: Callable[[Scenario], float]
    """Seconds that the twin gives for the same."""

    def predicted(self, calibration: tuple[str, ...]) -> float:
        """Seconds under a profile given as further overrides."""
        return self.predict(load(BASE, (*self.overrides, *calibration)))


def vtrain(path: Path) -> tuple[A100Row, ...]:
    """Iterations of GPT models under Megatron-DeepSpeed on nodes of 8 A100 with 4 NICs
    (VIA-Research vTrain): full recomputation, 1F1B, gradients all-reduced (no ZeRO)."""
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(_iteration(path.stem, i, row) for i, row in enumerate(csv.DictReader(file)))


def _iteration(source: str, index: int, row: dict[str, str]) -> A100Row:
    gpus, hidden = int(row["# GPUs"]), int(row["hidden size"])
    heads, sequence = int(row["attention heads"]), row["sequence length"]
    overrides = (
        f"model.hidden={hidden}",
        f"model.layers={row['# layers']}",
        f"model.ffn.width={4 * hidden}",
        f"model.attention.heads={heads}",
        f"model.attention.kv_heads={heads}",
        f"model.attention.head_dim={hidden // heads}",
        f"model.learned_positions={sequence}",
        "cluster.node=a100-80gb-8gpu-4x200g",
        f"cluster.nodes={max(1, gpus // 8)}",
        f"cluster.node.gpus={min(8, gpus)}",
        f"parallel.tensor={row['tensor parallelism']}",
        f"parallel.pipeline={row['pipeline parallelism']}",
        "parallel.virtual=1",
        "parallel.schedule.kind=1f1b",
        f"parallel.micro_batch={row['micro batch']}",
        "parallel.zero=0",
        f"train.sequence={sequence}tok",
        f"train.global_batch={row['global batch']}seq",
    )
    seconds = float(row["iteration time (ms)"]) / 1e3
    return A100Row(f"{source}-{index + 1}", overrides, seconds, step_seconds)


def korthikanti_layer(columns: dict[str, tuple[float, float]]) -> tuple[A100Row, ...]:
    """Forward and backward milliseconds of one layer of the 22B model over 8 A100 (Korthikanti et
    al. 2022, Table 4), per technique."""
    techniques = {
        "baseline": ("", False),
        "sequence_parallel": ("", True),
        "full_recompute": ("full", False),
        "selective": ("attention_core", False),
        "selective_sp": ("attention_core", True),
    }
    rows: list[A100Row] = []
    for name, (forward, backward) in columns.items():
        recompute, sequence_parallel = techniques[name]
        overrides = (
            "model=gpt-22b",
            "parallel.pipeline=1",
            "parallel.virtual=1",
            "parallel.schedule.kind=1f1b",
            "parallel.micro_batch=4",
            "cluster.nodes=1",
            "train.global_batch=4seq",
            f"parallel.sequence_parallel={str(sequence_parallel).lower()}",
            f"memory.recompute=[{recompute}]",
        )
        rows.append(A100Row(f"t4-{name}-forward", overrides, forward / 1e3, layer_forward_seconds))
        rows.append(
            A100Row(f"t4-{name}-backward", overrides, backward / 1e3, layer_backward_seconds)
        )
    return tuple(rows)


def step_seconds(scenario: Scenario) -> float:
    """Seconds of one simulated step."""
    return simulate(lower(plan(scenario))).step_ns / 1e9


def layer_forward_seconds(scenario: Scenario) -> float:
    """Seconds of one dense layer's forward pass, alone."""
    layer, costs = _one_layer(scenario)
    return _alone(forward_pass((layer,), costs), costs)


def layer_backward_seconds(scenario: Scenario) -> float:
    """Seconds of one dense layer's backward pass, alone, with what it recomputes."""
    layer, costs = _one_layer(scenario)
    return _alone(backward_pass((layer,), costs), costs)


def _one_layer(scenario: Scenario) -> tuple[Layer, CostModel]:
    resolved = plan(scenario)
    dense = (layer for chunk in resolved.chunks for layer in chunk.layers if layer.kind == "dense")
    return next(dense), CostModel.of(resolved)


def _alone(template: Template, costs: CostModel) -> float:
    """Seconds of a template with free links."""
    return length_ns(template, costs.alone) / 1e9


def layer_rows(published: Path) -> tuple[A100Row, ...]:
    """Milliseconds of a layer forward and backward, per technique."""
    measurements = read_data(published / "a100-megatron.yaml")["measurements"]
    rows = {row["id"]: row["metrics"] for row in measurements}
    metrics = rows["korthikanti22-t4-layer-22b"]
    return korthikanti_layer({k: v for k, v in metrics.items() if k != "columns"})


def iteration_rows(published: Path) -> tuple[A100Row, ...]:
    """vTrain's iterations."""
    files = (published / f"vtrain-fit-{kind}-node.csv" for kind in ("single", "multi"))
    return tuple(row for file in files for row in vtrain(file))
