"""The measured training steps as scenarios of the twin, each saying what it should come to, and
what loops of reinforcement learning on this machine share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reference.machine import Machine
from reference.measure.case import BF16
from reference.measure.point import Point, Statistic
from reference.measure.serving import Serving
from twin.units import format_quantity

LEARNED: Final = (8, 160)
"""Rows of a loop's micro-batch, and tokens of each: how much memory the trainer leaves behind
decides whether waking finds pages or must ask for new ones."""


def write_scenario(
    folder: Path, machine: Machine, points: Sequence[Point], statistic: Statistic
) -> list[Path]:
    """A file per bf16 step, beside `catalog`; returns them."""
    written: list[Path] = []
    for point in points:
        if point.group != "steps" or point.dtype != BF16:
            continue
        model = point.op.partition(":")[2]
        sequences, tokens = point.shape["sequences"], point.shape["tokens"]
        path = folder / f"step-{model}-{sequences}x{tokens}.yaml"
        path.write_text(_text(machine, model, point, statistic), encoding="utf-8")
        written.append(path)
    return written


def write_loop(folder: Path, machine: Machine, model: str, serving: Serving) -> Path:
    """A loop of one process, in which the engine and the trainer take turns; others extend it."""
    path = folder / f"loop-{model}.yaml"
    sleep, wake = (format_quantity(one.value, "seconds") for one in (serving.sleep, serving.wake))
    text = f"""\
# A loop of reinforcement learning within one process, {machine.date}: python -m reference.rl.
schema: 1
name: {model}, a loop on one {machine.device}
model: {model}
cluster: {{node: {machine.name}, nodes: 1, fabric: clos-400g}}
parallel: {{schedule: 1f1b, micro_batch: {LEARNED[0]}, zero: 0}}
memory: {{recompute: []}}
train:
  tokens: 1Mtok
  global_batch: 32seq
  sequence: {LEARNED[1]}tok
  optimizer: muonclip
calibration: {machine.name}
rl:
  rollout:
    engine: {machine.name}
    requests: 32
    prompt: {{kind: constant, each: 38}}
    written: {{kind: constant, each: 64}}
  iteration:
    mode: colocated
    batching: padded
    offload: false
    sleep: {sleep}  # {serving.sleep.note}
    wake: {wake}  # {serving.wake.note}
    update:
      precision: bf16
      replica: {{gpus: 1}}
      stages: two
      free_memory: 96MB
      bucket: 8MB
      updater: {machine.name}
"""
    path.write_text(text, encoding="utf-8")
    return path


def write_passes(folder: Path, model: str, points: Sequence[Point]) -> Path:
    """The engine's passes as a table for `twin calibrate`, beside the loop that names the
    engine."""
    path, loop = folder / "passes.csv", folder / f"loop-{model}.yaml"
    own = [point for point in points if point.op == "engine_pass"]
    lines = ["name,scenario,decoding,cached,seconds"]
    for point in own:
        batch, cached = point.shape["sequences"], point.shape["cached"]
        seconds = f"{point.timing.median:.4g}"
        lines.append(f"{batch} sequences,{loop},{batch},{cached},{seconds}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _text(machine: Machine, model: str, point: Point, statistic: Statistic) -> str:
    sequences, tokens = point.shape["sequences"], point.shape["tokens"]
    timing = point.timing
    return f"""\
# A measured step of the reference: {timing.seconds(statistic):.4g} s ({statistic} of \
{timing.samples}; quartiles {timing.lower:.4g} to {timing.upper:.4g} s), {machine.date}.
schema: 1
name: {model}, {sequences} x {tokens} tokens on one {machine.device}
model: {model}
cluster: {{node: {machine.name}, nodes: 1, fabric: clos-400g}}
parallel: {{schedule: 1f1b, micro_batch: {sequences}, zero: 0}}
memory: {{recompute: []}}
train:
  tokens: {sequences * tokens * 1000}tok
  global_batch: {sequences}seq
  sequence: {tokens}tok
  optimizer: muonclip
calibration: {machine.name}
"""
