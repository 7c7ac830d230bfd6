"""What failures leave of a run's time, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twin.goodput import LOSSES
from twin.reports.numbers import decimal_bytes, digits, duration
from twin.reports.table import Table, headed, headless, percent

if TYPE_CHECKING:  # simulating failures takes part in few runs
    from twin.goodput import Goodput

_CAUSES: Final = 8
"""Causes that are shown before the rest is added up."""


def goodput_tables(goodput: Goodput | None) -> list[Table]:
    """Where the time goes, what interrupts the run, and how it saves; nothing where the scenario
    says nothing of failures."""
    if goodput is None:
        return []
    return [_losses(goodput), _interruptions(goodput), _saves(goodput)]


def _losses(goodput: Goodput) -> Table:
    days = digits(goodput.wall_ns / 86400e9)
    title = f"With failures: {days} days, mean of {goodput.seeds} simulated runs"
    table = headed(title, "", "time", "share", "closed form")
    parts = {"progress": (goodput.useful_ns, goodput.expected_fraction)}
    for name, ns in goodput.losses_ns.items():
        if ns:
            parts[LOSSES[name]] = ns, goodput.expected_losses[name]
    for words, (ns, share) in parts.items():
        table.add_row(words, duration(ns / 1e9), percent(ns / goodput.wall_ns), percent(share))
    table.add_section()
    table.add_row("all", duration(goodput.wall_ns / 1e9), percent(1.0), "")
    low, high = (percent(share) for share in goodput.interval)
    table.caption = f"progress: {low} to {high} in 80 % of the runs; {_largest(goodput)}"
    return table


def _largest(goodput: Goodput) -> str:
    """What an interruption costs, and what it may cost."""
    largest = goodput.largest
    if largest.seconds is None or largest.mean_seconds is None:
        return "nothing interrupts them"
    return (
        f"an interruption costs {duration(largest.mean_seconds)}, and may cost "
        f"{duration(largest.seconds)} where {digits(100 * largest.target)} % are kept"
    )


def _interruptions(goodput: Goodput) -> Table:
    table = headed("Interruptions of the job", "", "a day")
    causes = list(goodput.per_day.items())
    for name, rate in causes[:_CAUSES]:
        table.add_row(name, digits(rate))
    rest = causes[_CAUSES:]
    if rest:
        table.add_row(f"{len(rest)} further causes", digits(sum(rate for _, rate in rest)))
    table.add_section()
    table.add_row("all", digits(sum(goodput.per_day.values())))
    table.caption = f"rates: {goodput.source}"
    return table


def _saves(goodput: Goodput) -> Table:
    saves = goodput.saves
    table = headless("Checkpoints and restarts", "left", "right")
    best = {
        "best by Young": saves.young_seconds,
        "best by Daly, first order": saves.daly_first_seconds,
        "best by Daly": saves.daly_seconds,
        "best by simulation": saves.simulated_seconds,
    }
    every = "never" if saves.every_seconds is None else duration(saves.every_seconds)
    table.add_row(f"between two saves ({saves.every})", every)
    for words, seconds in best.items():
        if seconds is not None:
            table.add_row(f"  {words}", duration(seconds))
    table.add_row("bytes of a checkpoint", decimal_bytes(saves.bytes))
    table.add_row("a save blocks training for", duration(saves.blocked_seconds))
    table.add_row("a save is durable after", duration(saves.durable_seconds))
    table.add_row("a restart after a failure", duration(goodput.restart_seconds))
    table.add_row("a restart that was planned", duration(goodput.planned_restart_seconds))
    return table
