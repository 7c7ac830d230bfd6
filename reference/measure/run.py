"""One measurement from end to end: groups in turn, then the fit over all that the folder holds.

What a measurement says, for a terminal and for `--json`: rates of products, attention and whole
steps, how far the fits are from their points, what was skipped, and the bars of a Hopper GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from reference.machine import Machine, busy, inspect, pick, state
from reference.measure import clock
from reference.measure.catalog import (
    write_eager,
    write_host,
    write_loop,
    write_parts,
    write_passes,
    write_steps,
)
from reference.measure.clock import Effort, Statistic
from reference.measure.company import company
from reference.measure.groups import GROUPS
from reference.measure.limits import device_limits, fit_engine, fit_links
from reference.measure.points import (
    BF16,
    CACHES,
    MeasuredPoint,
    Setting,
    Skip,
    TimedCase,
    open_folder,
    read_points,
    write_group,
)
from reference.measure.profile import Profile, fit_profile
from twin.errors import Problem, UsageError
from twin.loading import load_part
from twin.loading.tree import hint

MOST_FLOP: Final = {"cpu": 5e9, "cuda": 2e13}
"""Of a single call: tens of milliseconds on a core, on a GPU."""
MOST_BYTES: Final = {"cpu": 2.0**28, "cuda": 2.0**34}
QUICK_FLOP: Final = 5e8
SECONDS: Final = {"cpu": 0.25, "cuda": 0.1}
"""Of one case at most, but for the fewest samples."""
QUICK_SECONDS: Final = 0.01
SEVERAL: Final = ("collectives",)
"""Groups whose ranks have all cores."""


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """What to measure, and where to keep it."""

    device: str = "auto"
    model: str | None = None
    output: Path | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    seconds: float | None = None
    name: str | None = None
    threads: int = 1
    company: bool = False
    """Keep the other cores at work meanwhile, as other ranks do."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What came of it: points of this run and of all groups in the folder, what was skipped, the
    profile (None where groups are missing, named in `missing`), and the files written."""

    machine: Machine
    folder: Path
    model: str
    statistic: Statistic
    points: tuple[MeasuredPoint, ...]
    skips: tuple[Skip, ...]
    profile: Profile | None
    missing: str
    files: tuple[Path, ...]
    peak: float
    loads: tuple[float, ...]

    @property
    def was_busy(self) -> bool:
        """Whether others used the machine meanwhile."""
        return any(busy(self.machine, load) for load in self.loads)


Tell = Callable[[str, int, int, float], None]
"""Told of every case before it runs: what, how many are done, how many in all, seconds left."""


def run(request: MeasureRequest, tell: Tell) -> Measurement:
    """Measures, writes and fits. Raises `UsageError` for what cannot be asked for here."""
    groups = _groups(request.only)
    _check(request)
    device = pick(request.device)
    torch.set_num_threads(request.threads)
    machine = inspect(device, request.name)
    setting = _setting(request, device, machine)
    folder = request.output or Path("measured") / machine.name
    open_folder(folder, machine)
    plans = {name: GROUPS[name](setting) for name in groups}
    clock.wake(device)
    beside = company if request.company else nullcontext
    found, skips, loads = _measure(plans, setting, (machine, folder, beside), tell)
    if not found:
        message = f"nothing of {', '.join(groups)} can run here: {'; '.join(map(str, skips))}"
        raise UsageError([Problem("TW264", "--only", message, "measure other groups, too")])
    statistic: Statistic = "median"
    points = read_points(folder)
    profile, missing = None, ""
    files: list[Path] = sorted((folder / "points").glob("*.jsonl"))
    limits = device_limits(points, machine, statistic)
    try:
        profile, written = write_machine(folder, machine, setting.model, statistic)
        files += [*written, *write_steps(folder, machine, points, statistic)]
    except LookupError as error:
        missing = str(error.args[0])
    told = (profile, missing, tuple(files), limits.peak, tuple(loads))
    place = (machine, folder, setting.model, statistic)
    return Measurement(*place, tuple(points), tuple(skips), *told)


def write_machine(
    folder: Path, machine: Machine, model: str, statistic: Statistic
) -> tuple[Profile, list[Path]]:
    """Fits all points of a folder, and writes the parts of the machine beside them. Raises
    `LookupError` naming the groups that are missing."""
    points = read_points(folder)
    limits = device_limits(points, machine, statistic)
    profile = fit_profile(points, machine, limits, statistic)
    links = fit_links(points, limits, statistic)
    engine = fit_engine(points, limits, links)
    files = write_parts(folder, machine, limits, profile, links, engine)
    files += write_host(folder, machine, points)
    if any(point.op.startswith("sdpa") for point in points):
        eager = fit_profile(points, machine, limits, statistic, eager=True)
        files.append(write_eager(folder, machine, limits, eager, statistic))
    if engine is not None:
        files.append(write_loop(folder, machine, model, engine))
        files.append(write_passes(folder, model, points))
    return profile, files


def _measure(
    plans: dict[str, list[TimedCase | Skip]],
    setting: Setting,
    where: tuple[Machine, Path, Callable[[], AbstractContextManager[None]]],
    tell: Tell,
) -> tuple[list[MeasuredPoint], list[Skip], list[float]]:
    """Every group in turn, each written once it has ended."""
    machine, folder, beside = where
    done, total = 0, sum(isinstance(c, TimedCase) for cases in plans.values() for c in cases)
    points: list[MeasuredPoint] = []
    skips: list[Skip] = []
    loads: list[float] = []
    start = time.perf_counter()
    for group, cases in plans.items():
        before = state()
        own: list[MeasuredPoint] = []
        left = [case for case in cases if isinstance(case, Skip)]
        with nullcontext() if group in SEVERAL else beside():
            for case in (case for case in cases if isinstance(case, TimedCase)):
                each = (time.perf_counter() - start) / done if done else setting.effort.seconds
                tell(f"{group}: {case}", done, total, each * (total - done))
                point = _point(group, case, setting)
                own += [point] if isinstance(point, MeasuredPoint) else []
                left += [point] if isinstance(point, Skip) else []
                done += 1
        after = state()
        loads += [float(before["load"]), float(after["load"])]
        write_group(folder, group, machine, {"before": before, "after": after}, (own, left))
        points, skips = [*points, *own], [*skips, *left]
    return points, skips, loads


def _point(group: str, case: TimedCase, setting: Setting) -> MeasuredPoint | Skip:
    """The case measured; what a device cannot run or hold is skipped, and says why."""
    try:
        return case.measured(group, setting)
    except Exception as error:  # noqa: BLE001 (compilers of kernels raise errors of their own)
        first = next(iter(str(error).splitlines()), "")
        return Skip(group, str(case), f"{type(error).__name__}: {first}")
    finally:
        if setting.cuda:
            torch.cuda.empty_cache()


def _groups(only: Iterable[str]) -> tuple[str, ...]:
    wanted = tuple(only) or tuple(GROUPS)
    for name in wanted:
        if name not in GROUPS:
            message = f"there is no group `{name}`"
            raise UsageError([Problem("TW261", "--only", message, hint(name, GROUPS))])
    return tuple(name for name in GROUPS if name in wanted)


def _check(request: MeasureRequest) -> None:
    if request.seconds is not None and not 0 < request.seconds <= 60:
        message = f"{request.seconds:g} s are no time for one case"
        raise UsageError([Problem("TW265", "--seconds", message, "write 0.01 to 60")])
    if request.company and (pick(request.device).type != "cpu" or request.threads > 1):
        message = "other cores work beside one thread of a CPU"
        raise UsageError([Problem("TW265", "--company", message, "--device cpu --threads 1")])
    if request.threads < 1:
        message = f"{request.threads} threads cannot run anything"
        raise UsageError([Problem("TW265", "--threads", message, "write 1 or more")])


def _setting(request: MeasureRequest, device: torch.device, machine: Machine) -> Setting:
    kind = device.type
    model = request.model or ("kimi-k2" if kind == "cuda" else "kimi-k2-nano")
    seconds = QUICK_SECONDS if request.quick else SECONDS[kind]
    effort = Effort(request.seconds or seconds, 3 if request.quick else 5)
    return Setting(
        device,
        model,
        load_part("models", model).spec,
        ("bf16",) if kind == "cuda" else ("bf16", "fp32"),
        effort,
        request.quick,
        QUICK_FLOP if request.quick else MOST_FLOP[kind],
        min(MOST_BYTES[kind], machine.free / 8),
        CACHES * clock.cache_bytes(device),
        ranks=machine.count if kind == "cuda" else min(2, machine.count),
    )


BARS: Final = {"mfu": 0.25, "attention": 0.60, "grouped": 0.60}
"""Of the `small` preset's step, and of the dense products' rate, in bf16 on a Hopper GPU."""
SPREAD: Final = 1.1
"""Median over least from which a point was disturbed."""


def summary(result: Measurement) -> dict[str, Any]:
    """Everything as plain data."""
    rates = shares(result)
    return {
        "machine": result.machine.as_dict(),
        "folder": str(result.folder),
        "model": result.model,
        "statistic": result.statistic,
        "points": len(result.points),
        "disturbed": len(disturbed(result.points)),
        "busy": result.was_busy,
        "load": max(result.loads, default=0.0),
        "skipped": [asdict(skip) for skip in result.skips],
        "rates": rates,
        "bars": bars(result, rates),
        "fits": [asdict(each) for each in result.profile.residuals] if result.profile else [],
        "missing": result.missing,
        "files": [str(path) for path in result.files],
    }


def shares(result: Measurement) -> list[dict[str, Any]]:
    """The best rate of each operation in FLOP/s, as a share of the dense products' best and, of
    steps, of the peak (MFU)."""
    fastest: dict[str, tuple[MeasuredPoint, float]] = {}
    for point in result.points:
        if point.dtype == BF16 and point.flop > 0 and "dispatch" not in point.op:
            rate = point.rate(result.statistic)
            if point.op not in fastest or rate > fastest[point.op][1]:
                fastest[point.op] = point, rate
    dense = max((fastest[op][1] for op in ("gemm", "gemm_input") if op in fastest), default=0.0)
    rows: list[dict[str, Any]] = []
    for op, (point, rate) in fastest.items():
        row: dict[str, Any] = {"op": op, "shape": dict(point.shape), "flop_per_s": rate}
        if point.group == "steps":
            row["mfu"] = rate / result.peak if result.peak else None
        elif dense:
            row["of_dense"] = rate / dense
        rows.append(row)
    return rows


def bars(result: Measurement, rates: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each bar with what was reached, at its worst shape; empty on anything but a Hopper GPU."""
    if not result.machine.hopper:
        return []
    by_op = {row["op"]: row for row in rates}
    dense = by_op.get("gemm", {}).get("flop_per_s")
    reached = {
        "mfu": by_op.get("step:kimi-k2-small", {}).get("mfu"),
        "attention": _worst(result, ("attention_forward", "attention_backward"), dense),
        "grouped": _worst(result, ("grouped", "grouped_weight"), dense),
    }
    return [
        {
            "bar": name,
            "wanted": BARS[name],
            "reached": share,
            "held": None if share is None else share >= BARS[name],
        }
        for name, share in reached.items()
    ]


def _worst(result: Measurement, ops: Sequence[str], dense: float | None) -> float | None:
    """Of every operation, with each pair of widths, the share of the dense rate that its best
    length or number of rows reaches; the least of these."""
    best: dict[tuple[object, ...], float] = {}
    for point in result.points:
        if point.op in ops and dense:
            widths = [point.shape.get(name) for name in ("heads", "query_key", "value")]
            key = (point.op, *widths, _weight(point))
            best[key] = max(best.get(key, 0.0), point.rate(result.statistic) / dense)
    return min(best.values(), default=None)


def _weight(point: MeasuredPoint) -> tuple[int, int] | None:
    """The sides of an expert's matrix; None of attention."""
    if "inner" not in point.shape:
        return None
    other = "rows" if point.op.endswith("_weight") else "inner"
    return point.shape[other], point.shape["cols"]


def disturbed(points: Iterable[MeasuredPoint]) -> list[MeasuredPoint]:
    """Points whose median lies well above their least, by the wall's clock where there is one:
    something else ran meanwhile."""

    def spread(point: MeasuredPoint) -> float:
        timing = point.timing
        return (timing.wall_median or timing.median) / (timing.wall_least or timing.least)

    return [point for point in points if spread(point) > SPREAD]


def text(result: Measurement) -> str:
    """The same for a person."""
    machine, facts = result.machine, summary(result)
    state = (
        f"the machine was {'busy' if facts['busy'] else 'quiet'} (load up to {facts['load']:.1f} "
        f"on {machine.count} {'GPUs' if machine.kind == 'cuda' else 'cores'}); of "
        f"{facts['points']} points {facts['disturbed']} have a median 10 % above their least; fits "
        f"take the {result.statistic}"
    )
    lines = [f"{machine.device}, {machine.software}, {machine.date}", ""]
    lines += [*map(_row, facts["rates"]), "", state, *map(str, result.skips)]
    lines += map(_bar, facts["bars"]) if machine.hopper else [_UNJUDGED]
    if result.profile is None:
        lines += [f"no profile yet: it also needs points of {result.missing} in the same folder"]
    else:
        lines += ["", *map(str, result.profile.residuals)]
        lines += [
            "",
            f"wrote {len(result.files)} files to {result.folder}",
            use(result.machine, result.folder),
        ]
        steps = [path for path in result.files if path.name.startswith("step-")]
        lines += [f"the twin's answer: twin run {path}" for path in steps]
    return "\n".join(lines)


def use(machine: Machine, folder: Path) -> str:
    """What a scenario in the folder says to be predicted from it."""
    name = machine.name
    fields = {"calibration": name, "cluster.node": name, "software": name}
    if machine.kind == "cuda":
        slowness = load_part("nodes", name, [folder]).spec.host.slowness
        fields = {"calibration": name, "cluster.node.host.slowness": f"{slowness:.3g}"}
    told = ", ".join(f"{field}: {value}" for field, value in fields.items())
    return f"a scenario in {folder} uses it with {told}"


_UNJUDGED = (
    "skipped the bars: 25 % MFU of the small preset, attention and grouped products at 60 % of "
    "dense ones: they are for a Hopper GPU"
)


def _row(row: dict[str, Any]) -> str:
    sizes = " x ".join(f"{value:,}" for value in row["shape"].values())
    tail = ""
    if row.get("mfu") is not None:
        tail = f"  {row['mfu']:.1%} MFU"
    elif "of_dense" in row:
        tail = f"  {row['of_dense']:.0%} of dense"
    return f"{row['op']:24} {row['flop_per_s'] / 1e12:10.3f} TFLOP/s{tail}  ({sizes})"


def _bar(bar: dict[str, Any]) -> str:
    if bar["reached"] is None:
        return f"bar {bar['bar']}: not measured"
    word = "held" if bar["held"] else "MISSED"
    return f"bar {bar['bar']}: {bar['reached']:.0%} of {bar['wanted']:.0%} wanted, {word}"
