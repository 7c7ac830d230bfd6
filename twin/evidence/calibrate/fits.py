"""Measured rows to a calibration: step times and kernels, each fitted near a base profile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from twin.errors import Problem, UsageError
from twin.evidence.calibrate import factors as numbers
from twin.evidence.calibrate import kernel_fit, result
from twin.evidence.calibrate.choice import ROWS_PER_NUMBER, TOLD, ChosenFactors
from twin.evidence.calibrate.columns import StepRow
from twin.evidence.calibrate.factors import NAMED_FACTORS, Factor, named
from twin.evidence.calibrate.kernels import Kernel
from twin.evidence.calibrate.result import Calibration, RowError, Stamp
from twin.evidence.calibrate.step_fit import (
    SEEN,
    SETS,
    StepSimulator,
    errors,
    fit_steps,
    is_bare,
)
from twin.loading.tree import hint
from twin.spec.base import Spec
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import GpuSpec

FAR: Final = 4.0
"""Spreads between a factor and the base from which something is likely wrong with the rows (OURS):
one in 16,000 by the prior."""


def from_steps(
    rows: Sequence[StepRow],
    base: CalibrationSpec,
    stamp: Stamp,
    name: str,
    wanted: Sequence[str] | None = None,
    measured: Iterable[str] = (),
) -> Calibration:
    """A calibration from step times. Rows of use `check` are predicted, and nothing else. Factors
    that other rows have `measured` stay. Raises `UsageError` where the rows are too few for what is
    wanted."""
    own, checks = ([row for row in rows if row.use == use] for use in ("fit", "check"))
    sets = _read_by(own, _without(_sets(wanted, len(own)), set(measured)))
    played = StepSimulator(own, base)
    if wanted:
        _refuse_silent(played, sets[-1])
    chosen = fit_steps(played, sets, forced=bool(wanted))
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
        (*facts, *unseen(checks, (base, {}), (base, best))),
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


def _without(sets: Sequence[tuple[Factor, ...]], names: set[str]) -> tuple[tuple[Factor, ...], ...]:
    """The sets without some factors, each once."""
    left = (tuple(factor for factor in own if factor.name not in names) for own in sets)
    return tuple(dict.fromkeys(own for own in left if own))


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


def unseen(rows: Sequence[StepRow], before: Under, after: Under) -> tuple[RowError, ...]:
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


def _named(profile: CalibrationSpec, name: str, stamp: Stamp) -> CalibrationSpec:
    """The profile under its own name, device and date."""
    software = f"calibrated on {stamp.kind} from {stamp.base}"
    changes = {"name": name, "gpu": stamp.device, "date": stamp.date, "software": software}
    return profile.model_copy(update=changes)


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
