"""What `python -m reference.measure` wrote: kernels by shape, and whole steps with their scenarios.

A folder holds `points/GROUP.jsonl` (a line about the machine, then one per shape),
`catalog/calibrations/NAME.yaml`, and `step-MODEL-BxT.yaml`. Of a CPU the least of a point's samples
counts, of a GPU the median, as there. Points that the profile has no place for are counted by kind.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from twin.arch.ops import OpClass, Product, Work
from twin.errors import Origin, Problem, UsageError
from twin.evidence.calibrate.columns import StepRow
from twin.evidence.calibrate.kernels import Kernel
from twin.loading import load
from twin.loading.files import display, read_data

_OPERATIONS: Final = read_data(Path(__file__).with_name("operations.yaml"))["reference"]
CLASSES: Final[Mapping[str, OpClass]] = _OPERATIONS["classes"]
"""Groups of points that are kernels of a class."""
KINDS: Final[Mapping[str, OpClass]] = _OPERATIONS["kinds"]
"""Operations that are kernels of a kind of their own."""
NEEDED: Final = ("group", "op", "dtype", "shape", "flop", "bytes", "kernels", "timing")
"""What every point says."""
_CEILINGS: Final = frozenset({"copy", "grouped_uneven", "grouped_empty"})
"""Points that no fit takes: what is a ceiling, and groups that are not alike."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A folder: the machine in its own words, kernels, steps, points left out by kind, and the
    SHA-256 of all its points."""

    machine: Mapping[str, Any]
    kernels: tuple[Kernel, ...]
    steps: tuple[StepRow, ...]
    left_out: Mapping[str, int]
    digest: str


def read_folder(folder: Path) -> Measured:
    """The measurement in a folder. Raises `UsageError` where there is none."""
    files = sorted((folder / "points").glob("*.jsonl"))
    if not files:
        message = f"`{display(folder)}` holds no points"
        fix = "name a folder that `python -m reference.measure` wrote, a trace or a table"
        raise UsageError([Problem("TW350", "", message, fix)])
    machine: Mapping[str, Any] = {}
    kernels: list[Kernel] = []
    steps: list[StepRow] = []
    left_out: Counter[str] = Counter()
    for path in files:
        head, points = _read(path)
        machine = machine or head
        statistic = "least" if head.get("kind") == "cpu" else "median"
        for line, point in points:
            if point["group"] == "host":
                continue  # of the host's software, and of no kernel
            seconds = _seconds(point, statistic, line)
            kernel = _kernel(point, seconds)
            step = _step(folder, point, seconds, line)
            if kernel is not None:
                kernels.append(kernel)
            elif step is not None:
                steps.append(step)
            else:
                left_out[f"{point['group']}: {point['op']}, {point['dtype']}"] += 1
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return Measured(machine, tuple(kernels), tuple(steps), left_out, digest)


def kernels_in(path: Path) -> tuple[Mapping[str, Any], tuple[Kernel, ...], Mapping[str, int]]:
    """The machine, the kernels, and the other points by kind of one file of points."""
    machine, points = _read(path)
    statistic = "least" if machine.get("kind") == "cpu" else "median"
    kernels: list[Kernel] = []
    left_out: Counter[str] = Counter()
    for line, point in points:
        kernel = _kernel(point, _seconds(point, statistic, line))
        if kernel is None:
            left_out[f"{point['group']}: {point['op']}, {point['dtype']}"] += 1
        else:
            kernels.append(kernel)
    return machine, tuple(kernels), left_out


def _read(path: Path) -> tuple[Mapping[str, Any], list[tuple[Origin, dict[str, Any]]]]:
    """The machine and the points of one file."""
    found: list[tuple[Origin, dict[str, Any]]] = []
    machine: Mapping[str, Any] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        place = Origin(display(path), number, 1, line[:200], 1)
        try:
            entry = json.loads(line)
            if number == 1:
                machine = entry["machine"]
            else:
                found.append((place, {key: entry[key] for key in NEEDED}))
        except (ValueError, KeyError, TypeError):
            fix = "measure the group again with `python -m reference.measure --only`"
            raise UsageError([Problem("TW350", "", "no measured point", fix, place)]) from None
    return machine, found


def _seconds(point: Mapping[str, Any], statistic: str, place: Origin) -> float:
    timing: Any = point["timing"]
    try:
        seconds: Any = timing[statistic]
    except (KeyError, TypeError):
        seconds = None
    if not isinstance(seconds, float | int) or seconds <= 0:
        message = f"a point without `{statistic}` seconds"
        raise UsageError([Problem("TW350", "", message, "measure its group again", place)])
    return float(seconds)


def _kernel(point: Mapping[str, Any], seconds: float) -> Kernel | None:
    """The point as a kernel; None for one that no class of the twin has."""
    op = str(point["op"])
    op_class = KINDS.get(op) or CLASSES.get(point["group"])
    if op_class is None or point["dtype"] != "bf16" or op in _CEILINGS:
        return None
    shape: Mapping[str, int] = point["shape"]
    words = " x ".join(f"{value:,}" for value in shape.values())
    weight, backward = op.endswith("_weight"), op.endswith(("_backward", "_weight"))
    product = None
    if "inner" in shape:
        groups = shape.get("groups", 1)
        rows, inner = shape["rows"], shape["inner"]
        rows, inner = (rows, inner * groups) if weight else (rows * groups, inner)
        product = Product(rows, shape["cols"], inner, groups, "bf16", weight)
    width = (shape.get("query_key", 0) + shape.get("value", 0)) / 2
    work = Work(point["flop"], point["bytes"], point["kernels"], product, width)
    return Kernel(point["group"], op, words, op_class, work, seconds, backward)


def _step(folder: Path, point: Mapping[str, Any], seconds: float, place: Origin) -> StepRow | None:
    """A whole step with the scenario that was written beside the points."""
    if point["group"] != "steps" or point["dtype"] != "bf16":
        return None
    shape, model = point["shape"], str(point["op"]).partition(":")[2]
    path = folder / f"step-{model}-{shape['sequences']}x{shape['tokens']}.yaml"
    if not path.exists():
        return None
    return StepRow(path.stem, load(path), seconds, "check", place)
