"""The largest degree of expert parallelism whose all-to-all stays hidden.

The scenario is run at each degree that its layout permits, for its own number of attention heads
and for twice as many: attention is what an all-to-all hides under, so that more heads hide more
(Kimi K2, arXiv:2507.20534, sections 2.3 and 2.4, compares 64 with 128). Hidden means that what
shows in the steady state is less than `LIMIT` of the step. The ramp is left out: before its first
backward and after its last forward a rank has no other micro-batch to hide transfers under, at any
degree, and more micro-batches make that part of the step small.

Nothing else of the plan changes with the degree: not the split of layers where the scenario writes
one, not the memory policy. A degree may be hidden and not fit.

Figures of studies: memory levers, and degrees of expert parallelism that stay hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from twin.answers import Run, ask
from twin.answers.nearest import Document, MemoryLever, document, replaced
from twin.errors import Problem, UsageError
from twin.figures.charts import Ranked, name_axis, ranking
from twin.figures.palette import ALARM, Swatch, Theme, swatch
from twin.figures.plotly import Axis, Bars, Frame, Mark, Picture, Row, draw
from twin.kinds.base import Fidelity, kind_named
from twin.planning.feasibility import problems
from twin.reports.breakdown import Exposure
from twin.reports.report import MemoryReport
from twin.reports.table import Table, digits, duration, gibibytes, headed, percent, show
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
            step = kind_named("step")
            answer = ask(made, fidelity=fidelity, progress=note, cache=cache, kind=step)
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
            table.add_row(*_trial_cells(trial))
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


def _trial_cells(trial: Trial) -> tuple[str, ...]:
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


_GIB: Final = 2.0**30
_ROW: Final = 30
"""Pixels of one bar."""


def memory_levers(
    levers: Sequence[MemoryLever], memory: MemoryReport, name: str, theme: Theme
) -> Picture:
    """What single changes of the plan would free on the fullest GPU, in GiB."""
    look = swatch("free", theme)
    rows = [
        Ranked(
            lever.label,
            lever.saved_bytes / _GIB,
            look,
            _freed(lever),
            f"{lever.path}, {lever.label}: {_freed(lever)}<br>{lever.price}",
        )
        for lever in levers
    ]
    widest = max((lever.saved_bytes for lever in levers), default=0.0) / _GIB
    x = Axis("GiB freed on the fullest GPU", span=(0.0, 1.04 * max(widest, 0.1)))
    return Picture(
        title=f"{name}: {_best_lever(levers, memory)}",
        caption=(
            "Each bar is the plan with that one change, planned anew; other stages may become the "
            "fullest. What it costs is in the table; two changes at once do not add up."
        ),
        figure=ranking(rows, x, theme, row=46),
        table=tuple(
            {
                "Change": lever.label,
                "Frees": gibibytes(lever.saved_bytes),
                "Peak then": gibibytes(lever.peak_bytes),
                "Fits": "yes" if lever.fits else "no",
                "Price": lever.price,
            }
            | ({} if lever.step_seconds is None else {"Step": _longer(lever.step_seconds)})
            for lever in levers
        ),
    )


def _freed(lever: MemoryLever) -> str:
    price = "" if lever.step_seconds is None else f",<br>step {_longer(lever.step_seconds)}"
    return f"{gibibytes(lever.saved_bytes)}, {'fits' if lever.fits else 'does not fit'}{price}"


def _longer(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{show(abs(seconds), 's')}"


def _best_lever(levers: Sequence[MemoryLever], memory: MemoryReport) -> str:
    if not levers:
        return "no single change of the layout frees memory on the fullest GPU"
    best = levers[0]
    saved = f"{best.label} frees most, {gibibytes(best.saved_bytes)}"
    if memory.peak.peak_bytes <= memory.budget:
        return saved
    fitting = sum(lever.fits for lever in levers)
    return f"{saved}; {fitting} of {len(levers)} single changes make the plan fit"


def hidden_degrees(found: HiddenExpert, name: str, theme: Theme) -> Picture:
    """What shows of the all-to-all at each degree, in percent of the step: solid in the steady
    state, hatched in the ramp."""
    shown = [one for one in found.trials if not one.impossible]
    steady = swatch("expert", theme)
    ramp: Swatch = replace(steady, pattern="/")
    rows = [_trial_words(one) for one in shown]
    longest = max((one.steady_share + one.ramp_share for one in shown), default=1.0)
    bars = [
        Bars(
            name="Steady state",
            swatch=steady,
            x=[100 * one.steady_share for one in shown],
            y=rows,
            hover="%{y}: %{x:.2~f} % in the steady state",
        ),
        Bars(
            name="Ramp: the pipeline fills and drains",
            swatch=ramp,
            x=[100 * one.ramp_share for one in shown],
            y=rows,
            text=[_said_words(one) for one in shown],
            outside=True,
            hover="%{y}: %{x:.2~f} % in the ramp",
        ),
    ]
    frame = Frame(
        x=Axis("Percent of the step", span=(0.0, max(104.0 * longest, 250 * LIMIT))),
        y=name_axis(rows),
        height=60 + _ROW * max(len(rows), 1),
        theme=theme,
        marks=(Mark(100 * LIMIT, f"hidden: {100 * LIMIT:g} %", ALARM[theme]),),
    )
    return Picture(
        title="\n".join(f"{name}: {one}" for one in _sentences(found)),
        caption=(
            "The plan at each degree of expert parallelism, for its heads and for twice as many: "
            "more attention hides more. Hidden means that the solid part stays left of the line; "
            "the hatched part has nothing to hide under at any degree."
        ),
        figure=draw(bars, frame),
        table=tuple(_trial_row(one) for one in found.trials),
    )


def _sentences(found: HiddenExpert) -> list[str]:
    return [
        sentence(HiddenExpert(found.of(heads))).rstrip(".").replace("With", "with", 1)
        for heads in found.heads
    ]


def _trial_words(one: Trial) -> str:
    return f"{one.heads} heads, expert {one.expert}"


def _said_words(one: Trial) -> str:
    fits = "" if one.fits else ", does not fit"
    word = "hidden" if one.hidden else "shows"
    return f"{digits(100 * one.steady_share)} % steady, {word}{fits}"


def _trial_row(one: Trial) -> Row:
    head = {"Heads": str(one.heads), "Expert": str(one.expert)}
    if one.impossible:
        return head | {"Steady": f"impossible: {one.impossible}"}
    return head | {
        "Steady": show(one.steady_share, "%"),
        "Ramp": show(one.ramp_share, "%"),
        "Hidden": "yes" if one.hidden else "no",
        "Step": show(one.step_seconds, "s"),
        "Can hide, per layer": _ms(one.window_seconds),
        "All-to-all alone": _ms(one.demand_seconds),
        "RDMA": _ms(one.nic_seconds),
        "NVLink": _ms(one.nvlink_seconds),
        "Memory": "fits" if one.fits else "does not fit",
    }


def _ms(seconds: float) -> str:
    return f"{digits(1e3 * seconds)} ms"
