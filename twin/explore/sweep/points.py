"""A point of a sweep: one scenario made from a base by some other values, and its answer.

A layout that cannot run is an outcome like any other, and so is a bug, so that no point ends a
sweep. What was played is kept by content (`twin.explore.sweep.kept`).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from twin.answers.key import source_digest
from twin.engine import lower, simulate
from twin.errors import FieldError, Problem, ScenarioError
from twin.explore.study.variants import Document, replaced
from twin.explore.sweep.kept import keep, recall
from twin.explore.sweep.outcome import Outcome, Way, failed, impossible
from twin.loading import scenario_hash
from twin.planning import plan
from twin.planning.types import Memory, Plan
from twin.reports.breakdown import mean
from twin.reports.kpis import kpis
from twin.reports.numbers import gibibytes
from twin.reports.with_failures import goodput_of
from twin.scenario import Scenario
from twin.units import BareNumberError, QuantityError


@dataclass(frozen=True, slots=True)
class Point:
    """A scenario as other values on a base: quick to send to a worker, and to make there."""

    base: Document
    """From `twin.explore.study.variants.document`; points may share it."""
    overrides: Mapping[str, Any]
    """Dotted path to plain data, as the base would say it: catalog names are opened already."""
    fidelity: Way = "fast"

    def scenario(self) -> Scenario:
        """The scenario. Raises pydantic's `ValidationError` where a section does not allow it."""
        return replaced(self.base, self.overrides)


def answer_point(
    point: Point, folder: Path | None = None, *, play_unfit: bool = True, source: str = ""
) -> Outcome:
    """What is said of a point: recalled from `folder`, or played and kept there (None: neither).

    With `play_unfit` off, a plan that does not fit costs a plan only, and has no key figures.
    `source` is the digest of the code that asks: a worker of other code refuses.
    """
    if source and source != source_digest():
        return failed("the worker runs other code of the twin than the sweep", point.fidelity)
    begin = time.perf_counter()
    try:
        scenario = point.scenario()
    except ValidationError as error:
        return impossible(problem_of(error), point.fidelity)
    name = scenario_hash(scenario)
    known = known_outcome(folder, name, point.fidelity, play_unfit=play_unfit)
    if known is not None:
        return known
    found = _answered(scenario, point.fidelity, play_unfit=play_unfit)
    found = replace(found, hash=name, played_seconds=time.perf_counter() - begin)
    # A failure may be of this machine, such as too little memory: it is tried again next time.
    if folder is not None and found.status != "failed":
        keep(folder, found)
    return found


def known_outcome(
    folder: Path | None, name: str, fidelity: Way, *, play_unfit: bool = True
) -> Outcome | None:
    """The outcome kept of the scenario with this hash; None where there is none, or one without the
    key figures that are wanted."""
    known = recall(folder, name, fidelity) if folder is not None else None
    if known is None or (play_unfit and known.status == "does_not_fit" and not known.kpis):
        return None
    return replace(known, cached=True)


def problem_of(error: ValidationError) -> Problem:
    """The first of what pydantic found wrong in plain data."""
    entry = error.errors(include_url=False)[0]
    path = ".".join(str(step) for step in entry["loc"])
    cause: object = entry.get("ctx", {}).get("error")
    if isinstance(cause, FieldError):
        return Problem(cause.code, path, cause.message, cause.hint)
    if isinstance(cause, QuantityError):
        code = "TW012" if isinstance(cause, BareNumberError) else "TW013"
        return Problem(code, path, cause.message, cause.hint)
    return Problem("TW017", path, str(entry["msg"]))


def _answered(scenario: Scenario, fidelity: Way, *, play_unfit: bool) -> Outcome:
    """The outcome, whatever happens on the way."""
    try:
        if fidelity == "whole":
            from twin.explore.sweep.whole import answered  # noqa: PLC0415  few sweeps are of more than a step

            return answered(scenario)
        planned = plan(scenario)
        found = _fitting(planned.memory, fidelity)
        if found.status == "fits" or play_unfit:
            return _played(planned, found)
    except ScenarioError as error:
        return impossible(error.problems[0], fidelity)
    except Exception as error:  # noqa: BLE001  a bug costs its point, and is told there
        return failed(traceback.format_exception_only(error)[-1].strip(), fidelity)
    return found


def _fitting(memory: Memory, fidelity: Way) -> Outcome:
    """Whether a plan fits, and why not."""
    headroom, stage = memory.budget - memory.peak.peak_bytes, memory.peak.stage
    over: list[str] = []
    if not memory.fits_device:
        over.append(f"stage {stage} is {gibibytes(-headroom)} over")
    if not memory.fits_host:
        missing = memory.host_per_node - memory.host_capacity
        over.append(f"the host memory of a node is {gibibytes(missing)} over")
    return Outcome(
        "does_not_fit" if over else "fits",
        fidelity=fidelity,
        reason="; ".join(over),
        headroom_bytes=headroom,
        peak_stage=stage,
    )


def _played(planned: Plan, found: Outcome) -> Outcome:
    """The outcome with the step that was played."""
    program = lower(planned, "group" if found.fidelity == "group" else "folded")
    trace = simulate(program, fidelity="fast" if found.fidelity == "fast" else "events")
    simulated = None if found.fidelity == "fast" else goodput_of(planned, trace.step_ns)
    figures = kpis(planned, trace.step_ns, mean(trace.breakdown_ns), simulated)
    if found.fidelity == "fast" and planned.scenario.goodput is not None:
        figures |= _with_failures(planned, figures)
    return replace(found, kpis=figures, step_ns=trace.step_ns)


def _with_failures(planned: Plan, figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """The key figures with failures in the closed form: simulated ones take as long as a hundred
    points."""
    from twin.goodput import expected_goodput  # noqa: PLC0415  few scenarios speak of failures

    goodput = planned.scenario.goodput
    if goodput is not None and goodput.spares is not None:
        return {}  # the closed form knows no end of spares: what it says would look right
    days, cost = figures["days"] or 0.0, figures["cost_usd"]
    share = expected_goodput(planned, figures["step_seconds"] or 0.0).fraction
    return {
        "goodput_fraction": share,
        "days_with_failures": days / share if share else None,
        "cost_usd_with_failures": cost / share if cost is not None and share else None,
    }
