"""The step under other software: as written, and under each stack with a calibration of its GPU.

Each row is the scenario with `software` set to the stack, as `--set software=NAME` does it: the
stack brings its host and its calibration of the GPU, unless the scenario writes a calibration. The
layout stays; layers are balanced anew where the scenario does not write their split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from twin.answers.nearest import StepAnswer, StepAnswers
from twin.errors import ScenarioError
from twin.kinds.base import Fidelity
from twin.loading import stacks_of
from twin.reports.breakdown import CAUSE_WORDS
from twin.reports.kpi_intervals import step_interval
from twin.reports.table import Table, duration, headed, percent, ranged, signed_duration
from twin.scenario import Scenario

BARE: Final = "bare kernels"
"""The name of a scenario without a stack (`software: null`)."""
Loader = Callable[[Sequence[str]], Scenario]
"""The scenario under some more overrides, after its own."""


@dataclass(frozen=True, slots=True)
class StackAnswer:
    """The step under one stack; figures are None where its layout is impossible."""

    stack: str
    """Its name, or `BARE`."""
    as_written: bool
    """Whether it is the scenario's own."""
    assumed: bool = False
    """Whether the scenario has it because none is written."""
    calibration: str = ""
    step_seconds: float | None = None
    change_seconds: float | None = None
    """Against the scenario as written."""
    interval: tuple[float, float] | None = None
    """80 % interval of the step in seconds, as published runs suggest; it has their correction."""
    host_seconds: float | None = None
    """In which ranks wait for the host, a mean over them."""
    cause: str = ""
    """The cause of time that changes most in the direction of the step."""
    cause_seconds: float = 0.0
    """By how much."""
    fits: bool = True
    """Whether device and host memory have room."""
    problem: str = ""
    """Why the layout is impossible."""

    @property
    def label(self) -> str:
        """Its name, and whether the scenario's own was chosen."""
        own = "assumed" if self.assumed else "as written"
        return f"{self.stack} ({own})" if self.as_written else self.stack

    @property
    def relative_change(self) -> float | None:
        """The change over the step as written."""
        if self.step_seconds is None or self.change_seconds is None:
            return None
        return self.change_seconds / (self.step_seconds - self.change_seconds)

    @property
    def host_share(self) -> float | None:
        """The share of the step that waits for the host."""
        if self.step_seconds is None or self.host_seconds is None:
            return None
        return self.host_seconds / self.step_seconds

    def to_json(self) -> dict[str, Any]:
        """The row in plain data."""
        shares = {"relative_change": self.relative_change, "host_share": self.host_share}
        return {**asdict(self), **shares}


def under_other_software(
    load: Loader, progress: Callable[[float], None] | None = None, *, fidelity: Fidelity = "events"
) -> tuple[StackAnswer, ...]:
    """The scenario as written, then under each other stack, the fastest first. `progress` is told
    the share that is done.

    Raises `ScenarioError` where the layout is impossible as written.
    """
    written = load(())
    gpu = written.cluster.node.gpu.name
    mine = _name(written)
    others = [name for name in (BARE, *stacks_of(gpu)) if name != mine]
    answers = StepAnswers(fidelity)
    before = answers.of(written)
    first = _row(before, None)
    found: list[StackAnswer] = []
    for done, name in enumerate(others, 2):
        over = "null" if name == BARE else name
        try:
            found.append(_row(answers.of(load((f"software={over}",))), before))
        except ScenarioError as error:
            found.append(StackAnswer(name, as_written=False, problem=error.problems[0].message))
        if progress is not None:
            progress(done / (len(others) + 1))
    return (first, *sorted(found, key=lambda one: one.step_seconds or float("inf")))


def _name(scenario: Scenario) -> str:
    return scenario.software.name if scenario.software else BARE


def _row(answer: StepAnswer, before: StepAnswer | None) -> StackAnswer:
    """The row of an answer; `before` is that of the scenario as written, None: this is it."""
    scenario, spent = answer.plan.scenario, answer.breakdown_ns
    usual = before or answer
    change = answer.step_ns - usual.step_ns
    changes = {name: spent.get(name, 0) - usual.breakdown_ns.get(name, 0) for name in CAUSE_WORDS}
    cause = max(changes, key=lambda name: changes[name] * (1 if change > 0 else -1))
    return StackAnswer(
        stack=_name(scenario),
        as_written=before is None,
        assumed=scenario.software_assumed,
        calibration=scenario.calibration.name,
        step_seconds=answer.step_ns / 1e9,
        change_seconds=change / 1e9,
        interval=step_interval(answer.plan, spent),
        host_seconds=spent.get("host", 0) / 1e9,
        cause=cause if change else "",
        cause_seconds=changes[cause] / 1e9 if change else 0.0,
        fits=answer.plan.memory.fits,
    )


def sentence(found: Sequence[StackAnswer]) -> str:
    """The step as written, and the span of the others, in words."""
    first, *others = found
    step = duration(first.step_seconds or 0.0)
    seconds = [one.step_seconds for one in others if one.step_seconds is not None]
    if not seconds:
        return f"Under {first.label} a step takes {step}; there is no other stack."
    fast, slow = duration(min(seconds)), duration(max(seconds))
    span = fast if fast == slow else f"{fast} to {slow}"
    return f"Under {first.label} a step takes {step}; under others {span}."


def software_table(found: Sequence[StackAnswer]) -> Table:
    """One row per stack: the step, its change, the host's share, and the calibration."""
    heads = (
        "software",
        "step",
        "change",
        "host wait",
        "largest change",
        "calibration",
    )
    table = headed("Under other software", *heads, left={0, 4, 5})
    for one in found:
        table.add_row(one.label, *_figures(one))
    table.caption = (
        "Layout and batch stay. host wait: share of the step. largest change: the part of the step "
        "that differs most. In brackets: the 80 % interval, around the step that published runs "
        "suggest. A "
        "calibration that the scenario writes stays; else the stack brings its own."
    )
    return table


def _figures(one: StackAnswer) -> tuple[str, ...]:
    """Step, interval, change, share of the host, cause and calibration, as text."""
    if one.step_seconds is None:
        return "impossible", "", "", one.problem, ""
    step = ranged(one.step_seconds, one.interval, "s") + ("" if one.fits else ", does not fit")
    change = "" if one.as_written else f"{100 * (one.relative_change or 0.0):+.1f} %"
    cause = f"{CAUSE_WORDS[one.cause]} {signed_duration(one.cause_seconds)}" if one.cause else ""
    return step, change, percent(one.host_share or 0.0), cause, one.calibration
