"""The A100 profile, `calibrations/a100-megatron`: `python -m twin.calibrate.a100` fits and prints
it.

Five numbers on fifty rows: one layer under five techniques (Korthikanti et al. 2022, Table 4), and
forty iterations that vTrain publishes for fitting. Steps of GPT-175B are not among them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from twin.calibrate.fit import Fit, Free, fit
from twin.calibrate.rows import Row, korthikanti_layer, vtrain
from twin.loading.files import shipped_folder

FREE: Final = (
    Free("gemm", "", 0.75, 0.30, 0.87),
    Free("bandwidth", "", 0.85, 0.40, 0.95),
    Free("launch", "us", 5.0, 0.0, 60.0),
    Free("dispatch", "us", 20.0, 0.0, 100.0),
    Free("step_overhead", "ms", 100.0, 0.0, 300.0),
)
"""Ceilings: the best matrix product ever measured on an A100 (271.2 of 312 TFLOP/s), a memory
stream."""

LAYER: Final = {
    "baseline": (7.7, 11.9),
    "sequence_parallel": (7.2, 11.8),
    "full_recompute": (7.7, 19.5),
    "selective": (7.7, 13.2),
    "selective_sp": (7.2, 13.1),
}
"""Milliseconds forward and backward, row `korthikanti22-t4-layer-22b`."""


def rows(published: Path) -> tuple[Row, ...]:
    """All rows of the fit."""
    files = (published / f"vtrain-fit-{kind}-node.csv" for kind in ("single", "multi"))
    return (*korthikanti_layer(LAYER), *(row for file in files for row in vtrain(file)))


def table(result: Fit) -> str:
    """The fit as text: values with standard errors, and the mean error per family of rows."""
    lines = [f"{k:14} {v:9.4f} +- {result.errors[k]:.4f}" for k, v in result.values.items()]
    for family in ("t4", "vtrain-fit-single", "vtrain-fit-multi"):
        own = [r for name, r in result.residuals.items() if name.startswith(family)]
        mean, bias = sum(map(abs, own)) / len(own), sum(own) / len(own)
        lines.append(f"{family:20} {len(own):3} rows  mean {mean:6.1%}  bias {bias:+6.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table(fit(rows(shipped_folder() / "published"), FREE)) + "\n")
