"""The A100 profiles: `python -m twin.calibrate.a100` fits and prints them.

`a100-megatron` takes GEMM and memory efficiency from one layer under five techniques (Korthikanti
et al. 2022, Table 4). `a100-megatron-deepspeed` takes four numbers from the forty iterations of
vTrain that are marked for fitting. Steps of GPT-175B are in neither.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from twin.calibrate.fit import Fit, Free, fit
from twin.calibrate.rows import Row, korthikanti_layer, vtrain
from twin.loading.files import shipped_folder

KERNELS: Final = (Free("gemm", "", (0.75,), 0.30, 0.87), Free("bandwidth", "", (0.80,), 0.40, 0.95))
"""Ceilings: the best matrix product measured on an A100 (271.2 of 312 TFLOP/s), a memory stream."""

HOST: Final = (
    Free("launch", "us", (5.0,), 0.0, 30.0),
    Free("dispatch", "us", (20.0, 60.0), 0.0, 100.0),
)
"""Wide open. From 20 us the host never binds, and the launch takes its place: 11.4 % mean error
instead of 7.7 %; from 60 us the fit finds the better optimum."""


def layer_rows(published: Path) -> tuple[Row, ...]:
    """The rows of `a100-megatron`: milliseconds forward and backward per technique."""
    file = published / "a100-megatron.yaml"
    # ruamel leaves the type of its streams open.
    text = YAML(typ="safe").load(file)  # pyright: ignore[reportUnknownMemberType]
    rows = {row["id"]: row["metrics"] for row in text["measurements"]}
    metrics = rows["korthikanti22-t4-layer-22b"]
    return korthikanti_layer({k: v for k, v in metrics.items() if k != "columns"})


def iteration_rows(published: Path) -> tuple[Row, ...]:
    """The rows of `a100-megatron-deepspeed`."""
    files = (published / f"vtrain-fit-{kind}-node.csv" for kind in ("single", "multi"))
    return tuple(row for file in files for row in vtrain(file))


def table(name: str, result: Fit) -> str:
    """A fit as text: values with standard errors, and the mean error of its rows."""
    lines = [name]
    lines += [f"  {k:10} {v:9.4f} +- {result.errors[k]:.4f}" for k, v in result.values.items()]
    own = list(result.residuals.values())
    mean, bias = sum(map(abs, own)) / len(own), sum(own) / len(own)
    lines.append(f"  {len(own)} rows, mean error {mean:.1%}, bias {bias:+.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    published = shipped_folder() / "published"
    iterations = iteration_rows(published)
    sys.stdout.write(table("a100-megatron", fit(layer_rows(published), KERNELS)) + "\n")
    sys.stdout.write(table("a100-megatron-deepspeed", fit(iterations, KERNELS + HOST)) + "\n")
