"""Fitted numbers as they were had no fit seen a source, and the residuals of its rows under them.

Errors are linear in the numbers near the shipped ones, as `twin.evidence.calibrate.ridge` has it.
The linear errors of all rows but the source's are fitted again, under the same priors, bounds and
loss. That takes as many simulations as a fit has numbers, once for all sources. It breaks where a
number binds far from the shipped one only, such as a host that nothing waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from typing import Final

import numpy as np

from twin.engine import lower, plan, simulate
from twin.evidence.calibrate import require_scipy
from twin.evidence.calibrate.factors import Array
from twin.evidence.calibrate.ridge import slopes as slopes_of
from twin.evidence.calibrate.ridge import solve
from twin.evidence.validate.fit import Numbers, layers, numbers_at, targets
from twin.evidence.validate.free_parameters import FREE, profiles, shipped
from twin.evidence.validate.steps import measured_seconds, settled
from twin.evidence.validate.suite import PublishedRow, Unreadable, read_suite
from twin.evidence.validate.training import express
from twin.reports.breakdown import mean
from twin.reports.interval import Circumstances, Known, Residual, circumstances, project
from twin.reports.tuned_step import TunedStep, tuned_step

STEP: Final = "step_seconds"


@dataclass(frozen=True, slots=True)
class LinearFit:
    """The fit of a GPU at the shipped numbers: the source of each of its rows ("" of a layer's
    times), and their errors with slopes."""

    gpu: str
    projects: tuple[str, ...]
    shipped: Array
    errors: Array
    slopes: Array

    def without(self, name: str) -> Numbers:
        """The numbers that all other sources give."""
        free = FREE[self.gpu]
        keep = np.array([one != name for one in self.projects])
        errors, slopes = self.errors[keep], self.slopes[keep]
        low, high = (_logarithms(self.gpu, ends) for ends in _ends(self.gpu))
        found = solve(
            lambda x: errors + slopes @ (x - self.shipped),
            [one.spread for one in free],
            (low, high),
            self.shipped,
        )
        return _numbers(self.gpu, found.x)


@cache
def linear_fit(gpu: str) -> LinearFit:
    """The fit of a GPU, from all shipped rows that it saw."""
    rows, free = read_suite(), FREE[gpu]
    steps, times = targets(rows, profiles(gpu)), layers(gpu)
    source = {row.id: project(row.source) for row in rows}

    def errors(x: Array) -> Array:
        known = _numbers(gpu, x)
        return np.array([row.error(known) for row in (*steps, *times)])

    x = _logarithms(gpu, map(shipped, free))
    high = _logarithms(gpu, _ends(gpu)[1])
    projects = (*(source[row.id] for row in steps), *("" for _ in times))
    return LinearFit(gpu, projects, x, errors(x), slopes_of(errors, x, high))


def _ends(gpu: str) -> tuple[list[float], list[float]]:
    return [one.low for one in FREE[gpu]], [one.high for one in FREE[gpu]]


def _logarithms(gpu: str, values: Iterable[float]) -> Array:
    """Of values over their priors."""
    return np.array([log(own / one.prior) for own, one in zip(values, FREE[gpu], strict=True)])


def _numbers(gpu: str, x: Array) -> Numbers:
    free = FREE[gpu]
    return numbers_at(free, [one.prior * exp(moved) for one, moved in zip(free, x, strict=True)])


def numbers_without(name: str, fits: Iterable[LinearFit]) -> Numbers:
    """The numbers of all fits that saw a source, without it; others as shipped."""
    found = Numbers({}, {})
    for one in fits:
        if name in one.projects:
            again = one.without(name)
            found = Numbers(
                {**found.profiles, **again.profiles}, {**found.software, **again.software}
            )
    return found


@dataclass(frozen=True, slots=True)
class Unseen:
    """A row's step in seconds under numbers that no fit got from it, and the stack it ran."""

    predicted: float
    measured: float
    stack: str
    at: Circumstances
    tuned: TunedStep | None


def under(numbers: Numbers, row: PublishedRow) -> Unseen | None:
    """A row simulated; None where it has no scenario or no time."""
    try:
        expressed, scenario = settled(express(row))
        seconds = measured_seconds(row, expressed, scenario)
    except Unreadable:
        return None
    if not seconds:
        return None
    made = plan(numbers.into(scenario, str(expressed.tree["calibration"])))
    step = simulate(lower(made))
    assumed = not expressed.stack.ran(row)
    at = replace(circumstances(made, mean(step.breakdown_ns, step.ranks)), assumed=assumed)
    tuned = tuned_step(made, assumed=assumed)
    return Unseen(step.step_ns / 1e9, seconds, expressed.stack.name, at, tuned)


def leave_sources_out(rows: Sequence[PublishedRow], known: Known, processes: int) -> Known:
    """Residuals of steps with `left_out`, of sources that a fit saw; takes minutes. Raises
    `UsageError` where scipy is not installed."""
    require_scipy()
    of_row = {one.id: one for one in known.residuals if one.metric == STEP}
    asked = [row for row in rows if row.id in of_row]
    if not asked:
        return known
    own = [of_row[row.id] for row in asked]
    fitted = {project(row.source) for row in read_suite() if row.use == "fit"}
    seen = fitted.intersection(one.source for one in own)
    with ProcessPoolExecutor(processes) as pool:
        fits = tuple(pool.map(linear_fit, FREE)) if seen else ()
        without = {one.source: numbers_without(one.source, fits) for one in own}
        numbers = [without[one.source] for one in own]
        told = {one.id: one for one in pool.map(_left_out, asked, own, numbers)}
    found = tuple(told.get(r.id, r) if r.metric == STEP else r for r in known.residuals)
    return replace(known, residuals=found)


def _left_out(row: PublishedRow, own: Residual, numbers: Numbers) -> Residual:
    """With ln(measured / predicted) under some numbers, where they are not the shipped ones."""
    found = under(numbers, row) if numbers.profiles or numbers.software else None
    if found is None:
        return own
    return replace(own, left_out=round(log(found.measured / found.predicted), 4))
