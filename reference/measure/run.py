"""One measurement from end to end: groups in turn, then the fit over all that the folder holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from reference.machine import Machine, busy, inspect, pick, state
from reference.measure import clock
from reference.measure.cases import Setting, Skip, TimedCase
from reference.measure.catalog import write_loop, write_parts, write_passes, write_steps
from reference.measure.clock import Effort
from reference.measure.groups import GROUPS
from reference.measure.limits import device_limits, fit_engine, fit_links
from reference.measure.points import MeasuredPoint, Statistic, open_folder, read_points, write_group
from reference.measure.profile import Profile, fit_profile
from twin.errors import Problem, UsageError
from twin.loading import load_part
from twin.loading.suggest import hint

MOST_FLOP: Final = {"cpu": 5e9, "cuda": 2e13}
"""Of a single call: tens of milliseconds on a core, on a GPU."""
MOST_BYTES: Final = {"cpu": 2.0**28, "cuda": 2.0**34}
QUICK_FLOP: Final = 5e8
SECONDS: Final = {"cpu": 0.25, "cuda": 0.1}
"""Of one case at most, but for the fewest samples."""
QUICK_SECONDS: Final = 0.01
CACHES: Final = 4
"""How many times the L2 of a GPU sets of inputs are together."""


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
    found, skips, loads = _measure(plans, setting, machine, folder, tell)
    if not found:
        message = f"nothing of {', '.join(groups)} can run here: {'; '.join(map(str, skips))}"
        raise UsageError([Problem("TW264", "--only", message, "measure other groups, too")])
    points = read_points(folder)
    statistic: Statistic = "median" if setting.cuda else "least"
    limits = device_limits(points, machine, statistic)
    profile, missing = None, ""
    files: list[Path] = sorted((folder / "points").glob("*.jsonl"))
    try:
        profile = fit_profile(points, machine, limits, statistic)
        links = fit_links(points, limits, statistic)
        engine = fit_engine(points, limits, links)
        files += write_parts(folder, machine, limits, profile, links, engine)
        if engine is not None:
            files.append(write_loop(folder, machine, setting.model, engine))
            files.append(write_passes(folder, setting.model, points))
        files += write_steps(folder, machine, points, statistic)
    except LookupError as error:
        missing = str(error.args[0])
    told = (profile, missing, tuple(files), limits.peak, tuple(loads))
    place = (machine, folder, setting.model, statistic)
    return Measurement(*place, tuple(points), tuple(skips), *told)


def _measure(
    plans: dict[str, list[TimedCase | Skip]],
    setting: Setting,
    machine: Machine,
    folder: Path,
    tell: Tell,
) -> tuple[list[MeasuredPoint], list[Skip], list[float]]:
    """Every group in turn, each written once it has ended."""
    done, total = 0, sum(isinstance(c, TimedCase) for cases in plans.values() for c in cases)
    points: list[MeasuredPoint] = []
    skips: list[Skip] = []
    loads: list[float] = []
    start = time.perf_counter()
    for group, cases in plans.items():
        before = state()
        own: list[MeasuredPoint] = []
        left = [case for case in cases if isinstance(case, Skip)]
        for case in (case for case in cases if isinstance(case, TimedCase)):
            seconds_each = (time.perf_counter() - start) / done if done else setting.effort.seconds
            tell(f"{group}: {case}", done, total, seconds_each * (total - done))
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
        ("bf16", "fp32"),
        effort,
        request.quick,
        QUICK_FLOP if request.quick else MOST_FLOP[kind],
        min(MOST_BYTES[kind], machine.free / 8),
        CACHES * clock.cache_bytes(device),
        ranks=machine.count if kind == "cuda" else min(2, machine.count),
    )
