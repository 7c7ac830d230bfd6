"""The largest degree of expert parallelism whose all-to-all stays hidden.

The scenario is run at each degree that its layout permits, for its own number of attention heads
and for twice as many: attention is what an all-to-all hides under, so that more heads hide more
(Kimi K2, arXiv:2507.20534, sections 2.3 and 2.4, compares 64 with 128). Hidden means that what
shows in the steady state is less than `LIMIT` of the step. The ramp is left out: before its first
backward and after its last forward a rank has no other micro-batch to hide transfers under, at any
degree, and more micro-batches make that part of the step small.

Nothing else of the plan changes with the degree: not the split of layers where the scenario writes
one, not the memory policy. A degree may be hidden and not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from twin.answers import Run, ask
from twin.answers.variants import Document, document, replaced
from twin.errors import Problem, UsageError
from twin.kinds.base import Fidelity
from twin.planning.feasibility import problems
from twin.reports.breakdown import Exposure
from twin.reports.numbers import duration
from twin.reports.table import Table, headed, percent
from twin.scenario import Scenario

VERSION: Final = 1
"""Version of the JSON document."""
LIMIT: Final = 0.02
"""Share of the step that may show in the steady state."""
DEGREES: Final = (8, 16, 32, 64, 128)
"""Degrees of expert parallelism that are tried."""
HEADS: Final = "model.attention.heads"
EXPERT: Final = "parallel.expert"
NO_EXPERTS: Final = "TW160"


@dataclass(frozen=True, slots=True)
class Trial:
    """One degree: what shows of its all-to-all, or why it cannot run."""

    heads: int
    expert: int
    impossible: str = ""
    """Why the layout cannot be, in words; then nothing else is known."""
    fits: bool = False
    step_seconds: float = 0.0
    ramp_seconds: float = 0.0
    """Exposed while the pipeline fills and drains."""
    steady_seconds: float = 0.0
    """Exposed in between."""
    window_seconds: float = 0.0
    """Kernels of a layer with experts and a micro-batch that can hide its all-to-all."""
    demand_seconds: float = 0.0
    """That all-to-all alone, forward and backward."""
    nvlink_seconds: float = 0.0
    nic_seconds: float = 0.0
    """Its bytes through one port of each link."""

    @property
    def steady_share(self) -> float:
        """Of the step."""
        return self.steady_seconds / self.step_seconds if self.step_seconds else 0.0

    @property
    def ramp_share(self) -> float:
        """Of the step."""
        return self.ramp_seconds / self.step_seconds if self.step_seconds else 0.0

    @property
    def hidden(self) -> bool:
        """True where what shows in the steady state is below the limit."""
        return not self.impossible and self.steady_share < LIMIT

    def to_json(self) -> dict[str, Any]:
        """The trial in plain data."""
        shares = {"ramp_share": self.ramp_share, "steady_share": self.steady_share}
        return {**asdict(self), **shares, "hidden": self.hidden}


@dataclass(frozen=True, slots=True)
class HiddenExpert:
    """All degrees for all numbers of heads."""

    trials: tuple[Trial, ...]
    """By heads, then by degree."""

    @property
    def heads(self) -> tuple[int, ...]:
        """Numbers of heads, ascending."""
        return tuple(dict.fromkeys(one.heads for one in self.trials))

    def of(self, heads: int) -> tuple[Trial, ...]:
        """The trials with so many heads."""
        return tuple(one for one in self.trials if one.heads == heads)

    def largest(self, heads: int) -> Trial | None:
        """The trial of the largest degree that stays hidden; None where none does."""
        return max(
            (one for one in self.of(heads) if one.hidden),
            key=lambda one: one.expert,
            default=None,
        )

    def to_json(self) -> dict[str, Any]:
        """The study as one JSON document."""
        largest = {heads: self.largest(heads) for heads in self.heads}
        return {
            "limit": LIMIT,
            "largest_hidden": {str(h): one and one.expert for h, one in largest.items()},
            "trials": [one.to_json() for one in self.trials],
        }


def hidden_expert(
    scenario: Scenario,
    progress: Callable[[float], None] | None = None,
    *,
    fidelity: Fidelity = "events",
    cache: bool = True,
) -> HiddenExpert:
    """Every degree for the scenario's heads and for twice as many, each stored as a run unless
    `cache` is off. `progress` is told the share that is done.

    Raises `UsageError` where the model has no experts.
    """
    if scenario.model.moe is None:
        message = f"{scenario.model.name} has no experts, so there is no all-to-all to hide"
        raise UsageError([Problem(NO_EXPERTS, "model", message, "ask it of a model with experts")])
    asked = list(_asked(scenario))
    base, trials = document(scenario), list[Trial]()
    for done, (heads, expert) in enumerate(asked):

        def note(share: float, done: int = done) -> None:
            if progress is not None:
                progress((done + share) / len(asked))

        made = _variant(base, heads, expert)
        if isinstance(made, str):
            trials.append(Trial(heads, expert, impossible=made))
        else:
            answer = ask(made, fidelity=fidelity, progress=note, cache=cache)
            trials.append(_trial(heads, expert, answer))
        note(1.0)
    return HiddenExpert(tuple(trials))


def _asked(scenario: Scenario) -> Iterator[tuple[int, int]]:
    """Heads and degrees; the scenario's own degree among them."""
    own = scenario.model.attention.heads
    degrees = sorted({*DEGREES, scenario.parallel.expert} - {1})
    return ((heads, degree) for heads in (own, 2 * own) for degree in degrees)


def _variant(base: Document, heads: int, expert: int) -> Scenario | str:
    """The scenario at a degree, or why it cannot be."""
    name = f"{base['name']}, {heads} heads, expert {expert}"
    try:
        made = replaced(base, {"name": name, HEADS: heads, EXPERT: expert})
    except ValueError as error:
        return str(error).splitlines()[0]
    found = problems(made)
    return found[0].message if found else made


def _trial(heads: int, expert: int, answer: Run) -> Trial:
    report = answer.report
    whole = report.breakdown_ns["exposed_expert"]
    shown = report.exposure.get("exposed_expert", Exposure(0, whole))
    layer = next(one for one in report.overlap if one.kind == "moe")
    return Trial(
        heads,
        expert,
        fits=report.fits,
        step_seconds=report.step_ns / 1e9,
        ramp_seconds=shown.ramp_ns / 1e9,
        steady_seconds=shown.steady_ns / 1e9,
        window_seconds=layer.window.hiding,
        demand_seconds=layer.demand.alone,
        nvlink_seconds=layer.demand.links["nvlink"],
        nic_seconds=layer.demand.links["nic"],
    )


def sentence(found: HiddenExpert) -> str:
    """The answer in words: up to which degree, for each number of heads."""
    return " ".join(_said(found, heads) for heads in found.heads)


def _said(found: HiddenExpert, heads: int) -> str:
    limit, best = f"{100 * LIMIT:g} %", found.largest(heads)
    if best is None:
        return f"With {heads} heads no degree that was tried stays hidden{_least(found, heads)}."
    fits = "" if best.fits else ", though that plan does not fit"
    return (
        f"With {heads} heads expert parallelism stays hidden up to {best.expert}{fits}: "
        f"{100 * best.steady_share:.1f} % of the step shows in the steady state (limit {limit}), "
        f"and {100 * best.ramp_share:.1f} % in the ramp."
    )


def _least(found: HiddenExpert, heads: int) -> str:
    """The degree that shows least, where none is hidden."""
    ran = [one for one in found.of(heads) if not one.impossible]
    if not ran:
        return ""
    one = min(ran, key=lambda trial: trial.steady_share)
    return (
        f": expert parallelism {one.expert} shows least, {100 * one.steady_share:.1f} % of the "
        f"step in the steady state (limit {100 * LIMIT:g} %)"
    )


def hidden_table(found: HiddenExpert) -> Table:
    """Every degree: what shows, and why."""
    title = f"Expert all-to-all by degree; hidden: under {100 * LIMIT:g} % in the steady state"
    table = headed(
        title, "heads", "expert", "steady", "ramp", "", "step", "window", "demand", "RDMA", "memory"
    )
    for heads in found.heads:
        for trial in found.of(heads):
            table.add_row(*_trial_row(trial))
        table.add_section()
    notes = [
        "window: kernels of one layer that can hide its all-to-all",
        "demand: that all-to-all alone; RDMA: its bytes through a NIC",
        *dict.fromkeys(
            f"impossible: {trial.impossible}" for trial in found.trials if trial.impossible
        ),
    ]
    table.caption = "\n".join(notes)
    return table


def _trial_row(trial: Trial) -> tuple[str, ...]:
    if trial.impossible:
        return str(trial.heads), str(trial.expert), "impossible"
    return (
        str(trial.heads),
        str(trial.expert),
        percent(trial.steady_share),
        percent(trial.ramp_share),
        "hidden" if trial.hidden else "shows",
        duration(trial.step_seconds),
        duration(trial.window_seconds),
        duration(trial.demand_seconds),
        duration(trial.nic_seconds),
        "fits" if trial.fits else "does not fit",
    )
