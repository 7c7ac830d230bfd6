"""The verb: a source of measurements and a base profile to a calibration.

Three kinds of sources: a table of step times, a folder of `reference.measure`, a profiler trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from twin.errors import Problem, UsageError
from twin.evidence.calibrate import factors as numbers
from twin.evidence.calibrate import kernel_fit, result
from twin.evidence.calibrate.choice import ROWS_PER_NUMBER, TOLD, ChosenFactors
from twin.evidence.calibrate.columns import StepRow, steps
from twin.evidence.calibrate.factors import NAMED_FACTORS, Factor, named
from twin.evidence.calibrate.kernels import Kernel
from twin.evidence.calibrate.measure_folder import read_folder
from twin.evidence.calibrate.profiler import Profiled, read_trace
from twin.evidence.calibrate.result import Calibration, RowError, Stamp
from twin.evidence.calibrate.step_fit import (
    SEEN,
    SETS,
    StepSimulator,
    errors,
    fit_steps,
    is_bare,
)
from twin.evidence.calibrate.table import SUFFIXES, read_table
from twin.loading import catalog_parts, load_part
from twin.loading.files import display
from twin.loading.tree import hint
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec

Tell = Callable[[str], None]
FAR: Final = 4.0
"""Spreads between a factor and the base from which something is likely wrong with the rows (OURS):
one in 16,000 by the prior."""
_UNMAPPED: Final = 12
"""Names of a trace that are said to be unmapped; the rest is one line."""


@dataclass(frozen=True, slots=True)
class CalibrationRequest:
    """What to calibrate from: the source; the base profile and the GPU by their names (None: those
    of the source); a scenario that says what a table leaves out, and overrides of every row; the
    factors to fit, instead of those that the rows can tell; and what the profile is called."""

    source: Path
    base: str | None = None
    gpu: str | None = None
    defaults: str | None = None
    sets: tuple[str, ...] = ()
    factors: tuple[str, ...] | None = None
    name: str | None = None


def calibrate(request: CalibrationRequest, tell: Tell | None = None) -> Calibration:
    """The calibration of a source. Raises `twin.errors.TwinError` for what is wrong with it."""
    path = request.source
    if not path.exists():
        fix = "name a table of step times, a profiler trace, or a folder of reference.measure"
        raise UsageError([Problem("TW350", "", f"there is no `{display(path)}`", fix)])
    if path.suffix.lower() in SUFFIXES:
        return _table(request, tell)
    if request.factors:
        message = f"`{display(path)}` holds kernels, and factors are fitted on step times"
        fix = "leave --factors out: each class of kernels is fitted by itself"
        raise UsageError([Problem("TW359", "--factors", message, fix)])
    if path.is_dir():
        return _folder(request)
    if path.suffix.lower() in (".json", ".gz"):
        return _trace(request)
    message = f"`{display(path)}` is no source: its name says neither table nor trace"
    fix = f"tables end in {', '.join(SUFFIXES)}, traces in .json or .json.gz; or name a folder"
    raise UsageError([Problem("TW350", "", message, fix)])


def _table(request: CalibrationRequest, tell: Tell | None) -> Calibration:
    table = read_table(request.source)
    rows = steps(table, request.defaults, request.sets)
    base = _base(request, rows[0].scenario.calibration)
    stamp = Stamp.now(
        "step times", table.file, table.digest, rows[0].scenario.cluster.node.gpu.name, base
    )
    return from_steps(rows, base, stamp, _name(request, stamp), request.factors, tell)


def from_steps(
    rows: Sequence[StepRow],
    base: CalibrationSpec,
    stamp: Stamp,
    name: str,
    wanted: Sequence[str] | None = None,
    tell: Tell | None = None,
) -> Calibration:
    """A calibration from step times. Rows of use `check` are predicted, and nothing else. Raises
    `UsageError` where the rows are too few for what is wanted."""
    own, checks = ([row for row in rows if row.use == use] for use in ("fit", "check"))
    sets = _read_by(own, _sets(wanted, len(own)))
    played = StepSimulator(own, base)
    if wanted:
        _refuse_silent(played, sets[-1])
    chosen = fit_steps(played, sets, forced=bool(wanted), tell=tell)
    best = chosen.best.values()
    parts: dict[str, Mapping[str, Spec]] = {
        "node": {step.scenario.cluster.node.name: step.scenario.cluster.node for step in own},
        "software": {one.name: one for step in own if (one := step.scenario.software)},
    }
    after = errors(played, best, range(len(own)))
    profile = numbers.scaled("calibration", base, best)
    names, times = [step.name for step in own], [step.measured for step in own]
    facts = result.row_errors("steps", names, times, chosen, after)
    moved = result.found(chosen, base, parts)
    changed = {root: _changed(root, named, best) for root, named in parts.items()}
    return Calibration(
        name,
        stamp,
        _named(profile, name, stamp),
        changed,
        moved,
        result.trials("steps", chosen),
        (*facts, *_unseen(checks, (base, {}), (base, best))),
        result.interval(chosen),
        (*_notes(stamp), *_far(chosen), *_untold(chosen), *_named_by(changed, name)),
    )


def _read_by(
    rows: Sequence[StepRow], sets: Sequence[tuple[Factor, ...]]
) -> tuple[tuple[Factor, ...], ...]:
    """Factors without the host of bare kernels, where every row has a stack with a host."""
    if any(is_bare(row.scenario) for row in rows):
        return tuple(sets)

    def own(factor: Factor) -> Factor:
        read = tuple(path for path in factor.numbers if path != numbers.BARE_HOST)
        return replace(factor, numbers=read)

    return tuple(tuple(own(factor) for factor in factors) for factors in sets)


def _refuse_silent(rows: StepSimulator, factors: Iterable[Factor]) -> None:
    """Raises `UsageError` where a factor that was asked for moves no row."""
    silent = [factor for factor in factors if rows.moves(factor) < SEEN]
    if silent:
        fix = "measure steps that wait for it, or leave it out of --factors"
        texts = (f"`{factor.name}` moves none of the rows: {factor.meaning}" for factor in silent)
        raise UsageError(Problem("TW359", "--factors", text, fix) for text in texts)


def _changed(root: str, parts: Mapping[str, Spec], by: Mapping[Factor, float]) -> dict[str, Spec]:
    """The parts that some factors change."""
    after = {name: numbers.scaled(root, part, by) for name, part in parts.items()}
    return {name: part for name, part in after.items() if part != parts[name]}


def _untold(chosen: ChosenFactors) -> tuple[str, ...]:
    """A note on each factor of which the rows tell hardly anything at its value."""
    facts = zip(chosen.best.factors, chosen.best.ridge.learned, strict=True)
    return tuple(
        f"rows tell hardly anything of `{factor.name}`: they took {max(0.0, learned):.0%} of its "
        "spread, so it stays near the base"
        for factor, learned in facts
        if learned < TOLD
    )


def _named_by(changed: Mapping[str, Mapping[str, Spec]], name: str) -> tuple[str, ...]:
    """A note on how scenarios name the parts beside the profile."""
    fields = {"node": "cluster.node", "software": "software"}
    return tuple(
        f"scenarios name what was fitted beside the profile with `{fields[root]}: {part}-{name}`"
        for root, parts in changed.items()
        for part in parts
    )


Under = tuple[CalibrationSpec, dict[Factor, float]]
"""A profile, and factors on it, on the links of nodes and on the hosts of stacks."""


def _unseen(rows: Sequence[StepRow], before: Under, after: Under) -> tuple[RowError, ...]:
    """Rows that no fit has seen, under the base and under the result."""

    def by(under: Under) -> list[float]:
        played = StepSimulator(rows, under[0])
        return [result.share(played.error(row, under[1])) for row in range(len(rows))]

    return tuple(
        RowError(row.name, "steps", "check", row.measured, old, new, None)
        for row, old, new in zip(rows, by(before), by(after), strict=True)
    )


def _sets(wanted: Sequence[str] | None, rows: int) -> tuple[tuple[Factor, ...], ...]:
    """The sets of factors to try. Raises `UsageError` where rows are too few, or one is unknown."""
    names = [factor.name for factor in NAMED_FACTORS]
    for name in wanted or ():
        if name not in names:
            message = f"there is no factor `{name}`"
            raise UsageError([Problem("TW359", "--factors", message, hint(name, names))])
    count = max(1, len(wanted or ()))
    if rows < ROWS_PER_NUMBER * count:
        message = f"{_count(rows, 'row')} cannot tell {_count(count, 'number')}"
        fix = f"each number needs {ROWS_PER_NUMBER} rows of other layouts, batches or models"
        raise UsageError([Problem("TW355", "", message, fix)])
    return (named(NAMED_FACTORS, wanted),) if wanted else SETS


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _folder(request: CalibrationRequest) -> Calibration:
    found = read_folder(request.source)
    near = (request.source,)
    machine = str(found.machine.get("name", request.source.name))
    gpu = load_part("gpus", request.gpu or machine, near).spec
    base = _base(request, load_part("calibrations", gpu.calibration, near).spec)
    stamp = Stamp.now("measurement", display(request.source), found.digest, gpu.name, base)
    done = from_kernels(found.kernels, gpu, base, stamp, _name(request, stamp))
    checks = _unseen(found.steps, (base, {}), (done.profile, {}))
    left = ", ".join(f"{count} {what}" for what, count in found.left_out.items())
    notes = (*done.notes, f"points that a profile has no place for: {left}") if left else done.notes
    if base.name == machine:
        notes = (*notes, "the base was fitted on these very points: its errors flatter it")
    return replace(done, rows=(*done.rows, *checks), notes=notes)


def _trace(request: CalibrationRequest) -> Calibration:
    found = read_trace(request.source)
    gpu = _gpu(request, found)
    near = (request.source.parent,)
    base = _base(request, load_part("calibrations", gpu.calibration, near).spec)
    stamp = Stamp.now("profiler trace", display(request.source), found.digest, gpu.name, base)
    done = from_kernels(found.kernels, gpu, base, stamp, _name(request, stamp))
    others = [(o.name, o.why, o.calls, o.seconds / found.seconds) for o in found.others]
    head, tail = others[:_UNMAPPED], others[_UNMAPPED:]
    if tail:
        calls, part = sum(o[2] for o in tail), sum(o[3] for o in tail)
        head.append((f"{len(tail)} more", "", calls, part))
    note = (
        f"{found.share:.1%} of {found.seconds:.4g} s of kernels are mapped to classes of the twin"
    )
    return replace(done, notes=(*done.notes, note), others=tuple(head))


def _gpu(request: CalibrationRequest, found: Profiled) -> GpuSpec:
    """The GPU that was asked for, or the one that the trace names."""
    near = (request.source.parent,)
    if request.gpu is not None:
        return load_part("gpus", request.gpu, near).spec
    words = set(re.split(r"[^A-Z0-9]+", found.device.upper()))
    names = catalog_parts("gpus", near)
    # The most exact of those whose every word the device has: A100-SXM4-80GB is a100-80gb.
    known = [name for name in names if set(name.upper().split("-")) <= words]
    if known:
        return load_part("gpus", max(known, key=len), near).spec
    told = f"`{found.device}`" if found.device else "no GPU"
    message = f"the trace names {told}, and the catalog cannot tell which that is"
    fix = f"write --gpu with one of: {', '.join(names)}"
    raise UsageError([Problem("TW356", "--gpu", message, fix)])


def from_kernels(
    kernels: Sequence[Kernel], gpu: GpuSpec, base: CalibrationSpec, stamp: Stamp, name: str
) -> Calibration:
    """A calibration from measured kernels. Raises `UsageError` where no class has enough."""
    start = kernel_fit.start(base, kernels)
    profile, done = kernel_fit.fit_kernels(kernels, gpu, start)
    if not done:
        message = f"no class has {kernel_fit.FEWEST} kernels of different shapes"
        fix = "trace a whole step with record_shapes=True, or more than one model"
        raise UsageError([Problem("TW355", "", message, fix)])
    rows: list[RowError] = []
    parts: list[result.FittedNumber] = []
    for task in done:
        names = [f"{kernel.row} {kernel.shape}" for kernel in task.kernels]
        times = [kernel.measured for kernel in task.kernels]
        after = task.chosen.best.ridge.errors
        rows += result.row_errors(task.name, names, times, task.chosen, after)
        parts += result.found(task.chosen, start, {})
    notes = _notes(stamp)
    told = {task.name for task in done}
    thin = [task.name for task in kernel_fit.tasks(start) if task.name not in told]
    if thin:
        few = f"fewer than {kernel_fit.FEWEST} shapes"
        notes = (*notes, f"{few}, so as in the base: {'; '.join(thin)}")
    return Calibration(
        name,
        stamp,
        _named(profile, name, stamp),
        {},
        tuple(parts),
        tuple(trial for task in done for trial in result.trials(task.name, task.chosen)),
        tuple(rows),
        None,
        notes,
        spans=kernel_fit.spans(
            [k for k in kernels if not (k.work.product and k.work.product.weight)]
        ),
    )


def _base(request: CalibrationRequest, own: CalibrationSpec) -> CalibrationSpec:
    """The profile that a fit stays near: the one asked for, or that of the GPU."""
    if request.base is None:
        return own
    near = [request.source if request.source.is_dir() else request.source.parent]
    if request.defaults is not None:
        near.append(Path(request.defaults).parent)
    return load_part("calibrations", request.base, near).spec


def _named(profile: CalibrationSpec, name: str, stamp: Stamp) -> CalibrationSpec:
    """The profile under its own name, device and date."""
    software = f"calibrated on {stamp.kind} from {stamp.base}"
    changes = {"name": name, "gpu": stamp.device, "date": stamp.date, "software": software}
    return profile.model_copy(update=changes)


def _name(request: CalibrationRequest, stamp: Stamp) -> str:
    stem = request.name or f"{stamp.device}-{request.source.name.split('.')[0]}"
    return re.sub(r"[^a-z0-9.]+", "-", stem.lower()).strip("-")


def _far(chosen: ChosenFactors) -> tuple[str, ...]:
    """A note on each factor that lies where no right row would bring it."""
    ridge = chosen.best.ridge
    distances = zip(chosen.best.factors, abs(ridge.x) / ridge.spreads, strict=True)
    return tuple(
        f"`{factor.name}` lies {distance:.0f} spreads from the base: check units and layouts of "
        "the rows, or the base"
        for factor, distance in distances
        if distance > FAR
    )


def _notes(stamp: Stamp) -> tuple[str, ...]:
    if stamp.base_gpu == stamp.device:
        return ()
    return (f"the base is of another GPU, {stamp.base_gpu}: numbers that were not fitted are its",)
