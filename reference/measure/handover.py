"""What a day gives to the project: the profile, a report, and a folder for a pull request."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from reference.files import replace_synced
from reference.machine import Machine
from reference.measure.catalog import leaf
from reference.measure.day import LOG
from reference.measure.layouts import LayoutTime, read_steps
from reference.measure.plan import LAYOUTS, Item, assumed
from reference.measure.points import MeasuredPoint, read_points
from reference.measure.profile import Profile
from reference.measure.run import write_machine


def hand_over(folder: Path, machine: Machine, items: Sequence[Item], gpu: str) -> Path:
    """Writes all of it; the report."""
    points = read_points(folder)
    profile, missing = None, ""
    try:
        statistic = "median"
        profile, _ = write_machine(folder, machine, "kimi-k2", statistic)
    except LookupError as error:
        missing = f"There is no profile yet: points of {error.args[0]} are missing."
    steps = list(_steps(folder, items))
    sections = [
        f"# {machine.device}, {machine.date}",
        f"{machine.software}; {machine.count} GPUs. Written by `python -m reference.measure.day`.",
        f"Predictions are those of 8 {gpu.upper()}.",
        missing,
        *_section("What became of the flagship's numbers", _numbers(profile)),
        *_section("Kernels, predicted and measured", _kernels(points, LAYOUTS / gpu)),
        *_section("Layouts, predicted and measured", _layouts(steps, seals(LAYOUTS / gpu))),
        *_section("Between ranks", _between(points)),
        *_section("Items", _items(folder, items)),
    ]
    report = folder / "report.md"
    replace_synced(report, "\n\n".join(filter(None, sections)) + "\n")
    lines = [json.dumps({**_layout(step), "gpu": gpu}) for step in steps]
    replace_synced(folder / "layouts.jsonl", "".join(f"{line}\n" for line in lines))
    copied = copy_for_repository(folder, machine.name)
    replace_synced(copied.parents[2] / "README.md", _REQUEST.format(name=machine.name))
    return report


def _steps(folder: Path, items: Sequence[Item]) -> Iterator[LayoutTime]:
    for item in items:
        if item.scenario is not None:
            try:
                yield read_steps(item.scenario.stem, folder / "runs" / item.scenario.stem)
            except (LookupError, OSError):
                continue


def _layout(step: LayoutTime) -> dict[str, Any]:
    return {"layout": step.name, "seconds": step.seconds, "quartiles": [step.lower, step.upper]} | {
        "steps": step.steps,
        "peak_bytes": step.peak_bytes,
    }


def seals(folder: Path) -> dict[str, Mapping[str, Any]]:
    """The newest sealed prediction of each scenario of a folder, by its file's name."""
    found = [json.loads(path.read_text()) for path in (folder / "seals").glob("*.json")]
    found.sort(key=lambda one: one["sealed"])
    return {Path(one["command"].split()[-1]).stem: one for one in found}


def _section(title: str, rows: Sequence[Sequence[str]]) -> list[str]:
    """A table under its heading; nothing where there is no row."""
    if len(rows) < 2:
        return []
    head, *others = rows
    lines = [head, ["---"] * len(head), *others]
    return [f"## {title}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]


def _numbers(profile: Profile | None) -> list[list[str]]:
    """Each number of the flagship beside what was measured here."""
    measured = {
        f"calibration.{'.'.join(key)}": number
        for key, number in (profile.numbers if profile else {}).items()
    }
    rows = [["Field", "Catalog", "May lie in", "Measured here"]]
    for field, known in assumed().items():
        low, high = known.range or ("", "")
        here = f"`{leaf(measured[field])}`" if field in measured else "not measured"
        rows.append([f"`{field}`", f"`{known.value}`", f"`{low}` to `{high}`", here])
    return rows


def _kernels(points: Sequence[MeasuredPoint], folder: Path) -> list[list[str]]:
    """Per operation the median error of the sealed seconds, and how many intervals held."""
    sealed = json.loads((folder / "kernels.json").read_text(encoding="utf-8"))["rows"]
    told = {(row["op"], json.dumps(row["shape"])): row for row in sealed}
    found: dict[str, list[tuple[float, bool]]] = {}
    for point in points:
        row = told.get((point.op, json.dumps(dict(point.shape))))
        if row is not None and point.group != "ranks":
            (low, high), seconds = row["interval"], point.timing.median
            ratio = row["seconds"] / seconds - 1
            found.setdefault(point.op, []).append((ratio, low <= seconds <= high))
    rows = [["Operation", "Shapes", "Median error", "Inside the interval"]]
    for op, judged in found.items():
        held = sum(inside for _, inside in judged)
        middle = median(ratio for ratio, _ in judged)
        rows.append([op, f"`{len(judged)}`", f"`{middle:+.1%}`", f"`{held} of {len(judged)}`"])
    return rows


def _layouts(
    steps: Sequence[LayoutTime], sealed: Mapping[str, Mapping[str, Any]]
) -> list[list[str]]:
    rows = [["Layout", "Sealed", "80 % interval", "Measured", "Error", "Inside"]]
    for step in steps:
        prediction = sealed.get(step.name, {}).get("prediction")
        if prediction is None:
            rows.append([step.name, "", "", f"`{step.seconds:.4g} s`", "", ""])
            continue
        told = prediction["kpis"]["step_seconds"]
        low, high = prediction["intervals"]["step_seconds"]
        inside = "yes" if low <= step.seconds <= high else "no"
        cells = [f"`{told:.3g} s`", f"`{low:.3g}` to `{high:.3g} s`", f"`{step.seconds:.3g} s`"]
        rows.append([step.name, *cells, f"`{told / step.seconds - 1:+.0%}`", inside])
    return rows


def _between(points: Sequence[MeasuredPoint]) -> list[list[str]]:
    """Rates of collectives, and seconds of what ran beside something."""
    rows = [["Operation", "Shape", "Median", "Bytes sent over it, per second"]]
    for point in points:
        if point.group == "ranks":
            shape = ", ".join(f"{name} {value:,}" for name, value in point.shape.items())
            rate = f"`{point.bytes / point.timing.median / 1e9:.3g} GB/s`" if point.bytes else ""
            rows.append([point.op, shape, f"`{point.timing.median:.4g} s`", rate])
    return rows


def _items(folder: Path, items: Sequence[Item]) -> list[list[str]]:
    path = folder / LOG
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    ran: dict[str, Mapping[str, Any]] = {one["item"]: one for one in map(json.loads, lines)}
    rows = [["Item", "Planned", "Took", "Exit code"]]
    for item in items:
        one = ran.get(item.name)
        took = [f"`{one['seconds']:.0f} s`", f"`{one['code']}`"] if one else ["not run", ""]
        rows.append([item.name, f"`{item.seconds:.0f} s`", *took])
    return rows


def copy_for_repository(folder: Path, name: str) -> Path:
    """What belongs into the repository, where it belongs."""
    place = folder / "pull-request" / "scenarios" / "measured" / name
    shutil.rmtree(folder / "pull-request", ignore_errors=True)
    place.mkdir(parents=True)
    for part in ("points", "catalog"):
        if (folder / part).exists():
            shutil.copytree(folder / part, place / part, ignore=shutil.ignore_patterns("*.tried"))
    for path in (*folder.glob("step-*.yaml"), *folder.glob("*.jsonl"), folder / "report.md"):
        if path.exists():
            shutil.copy(path, place)
    return place


_REQUEST = """\
# Measurements of {name}

1. Copy `scenarios` over a checkout of the repository.
2. Run `pytest tests/reference/measure/test_committed.py`: the profile has to follow from points.
3. Commit, and open a pull request with `scenarios/measured/{name}/report.md` as its text.

Points name the GPU, the driver and the versions of software; no host name, path or user.
"""
