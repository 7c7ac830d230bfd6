"""What `twin run` and `compare` say of rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table

from twin.cli.answer import say_failed, say_unmeasured
from twin.cli.output import Output
from twin.cli.side_by_side import refuse_limits, say
from twin.cli.tables import expectation_list, warning_list
from twin.reports.numbers import count, digits, duration, gibibytes, show
from twin.spec.kpis import ROLLOUT_KPIS

if TYPE_CHECKING:
    from twin.kinds.rollouts import Iteration, RolloutAnswer
    from twin.reports.limits import Limit
    from twin.scenario import Scenario

_MOMENTS: Final = 12
"""Rows of the timeline."""
_WIDTH: Final = 30
"""Characters of a full bar."""


def run(scenario: Scenario, output: Output, *, strict: bool) -> int:
    """Play the rollouts of a scenario and print what came of them; the exit code."""
    from twin.kinds.rollouts import rollout

    found = rollout(scenario)
    output.document(found.to_json())
    output.sentence(words(found))
    failed = say_failed(found.expectations, output)
    unmeasured = say_unmeasured(found.unmeasured, output, strict=strict)
    if output.tables:
        told = (*expectation_list(found.expectations), warning_list(found.warnings))
        output.show(_iterations(found), _spent(found), _kpis(found), _timeline(found), *told)
    return failed or unmeasured


def compare(scenarios: Sequence[Scenario], limits: Sequence[Limit], output: Output) -> int:
    """Print what differs between rollouts; the exit code."""
    from twin.kinds.rollouts import rollout
    from twin.kinds.rollouts.compare import compare as side_by_side

    refuse_limits(limits, scenarios[0].kind, ROLLOUT_KPIS)
    answers = [rollout(one) for one in scenarios]
    return say(side_by_side(answers), limits, output)


def words(found: RolloutAnswer) -> str:
    """How long an iteration's rollouts take, and why, in a sentence or two."""
    said = (
        f"Rollouts of an iteration take {duration(found.seconds)} on {found.gpus:,} GPUs, "
        f"{count(found.tokens_per_second)} tokens per second; {digits(100 * found.tail)} % of that "
        "passes after nine of ten requests are done."
    )
    if found.gain is None:
        return said
    return f"{said} Partial rollouts write {digits(found.gain)} times as many tokens per second."


def _iterations(found: RolloutAnswer) -> Table:
    table = _table("Iterations", ("", "takes", "done", "paused", "half", "90 %", "99 %", "tok/s"))
    table.add_column("prefilled", justify="right")
    table.add_column("of it again", justify="right")
    for number, one in enumerate(found.trace.iterations, 1):
        table.add_row(
            str(number),
            duration(one.length_ns / 1e9),
            f"{len(one.done_ns):,}",
            f"{one.carried:,}",
            *(_at(one, share) for share in (0.5, 0.9, 0.99)),
            count(one.tokens_per_second),
            count(one.prefilled),
            count(one.again),
        )
    place, room = found.place, found.room
    table.caption = (
        f"{place.engines} engines with room for {count(place.tokens)} tokens each, "
        f"{gibibytes(max(0.0, room.cache))} of every GPU; half, 90 %, 99 %: when so many of the "
        "requests were done"
    )
    table.caption_justify = "left"
    return table


def _at(one: Iteration, share: float) -> str:
    ns = one.at(share)
    return "-" if ns is None else duration(ns / 1e9)


def _spent(found: RolloutAnswer) -> Table:
    from twin.kinds.rollouts.types import SPENT

    table = _table("What engines do", ("", "share"))
    for key, part in found.spent.items():
        table.add_row(SPENT[key], f"{100 * part:.1f} %")
    return table


def _kpis(found: RolloutAnswer) -> Table:
    table = _table("Key figures, of the later half of the iterations", ("", ""))
    for kpi in ROLLOUT_KPIS:
        table.add_row(kpi.label, show(found.kpis[kpi.key], kpi.unit))
    return table


def _timeline(found: RolloutAnswer) -> Table:
    """The last iteration: requests that are written at even moments."""
    last = found.trace.iterations[-1]
    table = _table("The last iteration", ("after", "written", "wait", "queue"))
    table.add_column("", justify="left")
    most = max((load.running for load in last.loads), default=0)
    at = 0
    for moment in range(_MOMENTS):
        ns = last.begin_ns + moment * last.length_ns // _MOMENTS
        while at + 1 < len(last.loads) and last.loads[at + 1].ns <= ns:
            at += 1
        load = last.loads[at]
        bar = "█" * round(_WIDTH * load.running / most) if most else ""
        cells = (load.running, load.waiting, load.queued)
        table.add_row(duration((ns - last.begin_ns) / 1e9), *(f"{n:,}" for n in cells), bar)
    return table


def _table(title: str, heads: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    for index, head in enumerate(heads):
        table.add_column(head, justify="right" if index else "left")
    return table
