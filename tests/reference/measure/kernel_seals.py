"""Predictions of kernels and collectives for a GPU day, sealed before it:
`python -m tests.reference.measure.kernel_seals` writes `kernels.json` beside the layouts' seals.

Kernels are those of the plan, priced by the calibration that the layouts name. An interval holds
80 % of what one H100 measured, by kind of kernel; collectives have that of the links' efficiency.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from math import exp, log
from typing import Any, Final

import numpy as np

from reference.measure.fitting import sent
from reference.measure.groups.collectives import KINDS
from reference.measure.groups.products import attention_cases, gemm_cases, grouped_cases
from reference.measure.plan import LAYOUTS, MODEL
from reference.measure.points import BF16, TimedCase, read_points
from tests.reference.measure.machines import runnable, setting
from tests.reference.measure.twins import twin_seconds
from twin.evidence.live.seal import digest_of
from twin.hardware.matmul import briefly
from twin.loading import load
from twin.spec.calibration import CalibrationSpec

GPUS: Final = ("h100", "h800")
RANKS: Final = 8
SIZES: Final = tuple(1 << step for step in (16, 20, 24, 28, 30))
MEASURED: Final = LAYOUTS.parent / "measured" / "h100-sxm-torch2.11"


@cache
def cases() -> tuple[TimedCase, ...]:
    """The bf16 kernels of the plan that the twin prices."""
    at = setting("cuda", MODEL)
    found = [case for make in (gemm_cases, grouped_cases, attention_cases) for case in make(at)]
    own = ("gemm", "grouped", "attention")
    return tuple(c for c in runnable(found) if c.dtype == BF16 and c.op.startswith(own))


@cache
def reach() -> dict[str, float]:
    """How far ln(measured / predicted) of each operation lies off on the H100, at most, for four of
    five kernels."""
    scenario: Any = load(LAYOUTS / "h100.yaml")
    measured = {(p.op, json.dumps(dict(p.shape))): p for p in read_points(MEASURED)}
    apart: dict[str, list[float]] = {}
    for case in cases():
        point = measured.get((case.op, json.dumps(dict(case.shape))))
        if point is not None:
            told = twin_seconds(case, scenario.cluster.node.gpu, alone(scenario))
            apart.setdefault(case.op, []).append(abs(log(point.timing.median / told)))
    return {op: float(np.quantile(found, 0.8)) for op, found in apart.items()}


def alone(scenario: Any) -> CalibrationSpec:
    """The calibration of kernels that are timed one by one, before the clock falls."""
    return briefly(scenario.calibration).model_copy(update={"sustained": 1.0})


def rows(gpu: str) -> Iterator[dict[str, Any]]:
    """What the twin says today."""
    scenario: Any = load(LAYOUTS / f"{gpu}.yaml")
    node = scenario.cluster.node
    for case in cases():
        told, far = twin_seconds(case, node.gpu, alone(scenario)), exp(reach()[case.op])
        yield _row(case.op, dict(case.shape), told, (told / far, told * far))
    link = node.nvlink
    for kind in KINDS:
        for size in SIZES:
            moved, hops = sent(kind, float(size), RANKS)
            low, told, high = (
                moved / (link.bandwidth * share) + hops * link.latency
                for share in (0.82, link.efficiency, 0.66)
            )
            yield _row(kind, {"bytes": size, "ranks": RANKS}, told, (low, high))


def _row(op: str, shape: dict[str, int], told: float, ends: tuple[float, float]) -> dict[str, Any]:
    low, high = (float(f"{end:.4g}") for end in ends)
    return {"op": op, "shape": shape, "seconds": float(f"{told:.4g}"), "interval": [low, high]}


def document(gpu: str) -> dict[str, Any]:
    """The file: its digest is over everything else in it, as a seal's."""
    scenario: Any = load(LAYOUTS / f"{gpu}.yaml")
    found = {
        "kind": "kernels",
        "version": 1,
        "digest": "",
        "sealed": datetime.now(UTC).isoformat(timespec="seconds"),
        "calibration": scenario.calibration.name,
        "rows": list(rows(gpu)),
    }
    return found | {"digest": digest_of(found)}


if __name__ == "__main__":
    for each in GPUS:
        made = document(each)
        lines = ",\n".join(json.dumps(row) for row in made["rows"])
        head = json.dumps(made | {"rows": []}).removesuffix("]}")
        (LAYOUTS / each / "kernels.json").write_text(f"{head}\n{lines}\n]}}\n", encoding="utf-8")
        sys.stdout.write(f"{each}: {len(made['rows'])} rows, digest {made['digest'][:8]}\n")
