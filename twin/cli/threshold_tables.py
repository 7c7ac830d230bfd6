"""What must be true for a recommendation, in words and tables."""

from __future__ import annotations

from typing import Final

from rich.table import Table

from twin.explore.search.candidates import MOST, REACH, TIE, Contender, Decision
from twin.explore.search.levers import Lever
from twin.explore.search.thresholds import Bar, BreakEven, Flip, Threshold
from twin.reports.numbers import count, digits

_BARS: Final = 10
"""Uncertain inputs that are shown: the most influential."""


def threshold_words(found: BreakEven) -> list[str]:
    """Each value at which the decision flips, then what does not flip it, then how it was found."""
    if not found.contest.contenders:
        return ["What must be true: no layout fits, so there is nothing to decide."]
    flips = [
        f"- {_flip(found.contest, one, flip)}" for one in found.thresholds for flip in one.flips
    ]
    head = "What must be true:" if flips else "What must be true: nothing that was asked about."
    notes = [
        f"{one.lever.name}: {text}."
        for one in found.thresholds
        if one.flips
        for text in (one.lever.note, one.odd)
        if text
    ]
    return ["", head, *flips, *_rest(found), *notes, *_how(found)]


def _flip(contest: Decision, one: Threshold, flip: Flip) -> str:
    """One flip in a sentence."""
    lever, last = one.lever, flip.value
    at_least = flip.side == "below"
    if not contest.has_pick:  # what is asked for is on the other side
        at_least, last = not at_least, flip.beyond
    bound = "at least" if at_least else "at most"
    if lever.more == "less room":
        said = f"{lever.name} {_value(lever, last)}, by which the reserve may grow"
    else:
        said = f"{lever.name} {bound} {_value(lever, last)} ({_now(lever, bound, last)}"
        said += f"{_holds(lever, flip)})"
    return f"{said}: {_beyond(contest, flip)}{_likely(lever, flip)}."


def _now(lever: Lever, bound: str, last: float) -> str:
    """What the lever is now; of experts also in the other way to say it."""
    if lever.now is None:
        return "unknown now"
    if lever.load is None:
        return f"{_plain(lever, lever.now)} now"
    exponents = f"{lever.unit} {bound} {_plain(lever, last)}, {_plain(lever, lever.now)} now"
    return f"{lever.load(lever.now):.2f} now; {exponents}"


def _holds(lever: Lever, flip: Flip) -> str:
    """Whether what must be true is so now, where that is not plain."""
    if lever.now is None or lever.start == lever.now:
        return ""
    above = lever.now > flip.value
    return "" if above == (flip.side == "below") else ", so it does not hold"


def _beyond(contest: Decision, flip: Flip) -> str:
    """What is so where the decision does not hold."""
    pick, wins = contest.pick, flip.wins
    where = "above" if flip.side == "above" else "below"
    if pick is None:
        assert wins is not None
        return f"then {wins.words} on {wins.gpus:,} GPUs meets the goal{_figures(flip)}"
    why = {
        "goal": "the pick no longer meets the goal, and",
        "does not fit": "the pick no longer fits, and",
    }.get(flip.reason, "")
    said = f"{where}, {why} " if why else f"{where}, "
    if wins is None:
        return f"{said}no layout that was asked does"
    verb = "is better" if flip.reason == "better" else "wins"
    name = "the same layout" if _is_same(wins, pick) else contest.name(wins)
    return f"{said}{name} on {wins.gpus:,} GPUs {verb}{_figures(flip)}"


def _is_same(one: Contender, other: Contender) -> bool:
    """Whether two differ in the size of the cluster only."""
    paths = {*one.overrides, *other.overrides} - {"cluster.nodes"}
    return all(one.overrides.get(path) == other.overrides.get(path) for path in paths)


def _figures(flip: Flip) -> str:
    days, cost = (flip.figures or {}).get("days"), (flip.figures or {}).get("cost_usd")
    said = [f"{digits(days)} d"] if days is not None else []
    said += [f"{count(cost)} USD"] if cost is not None else []
    return f" ({', '.join(said)})" if said else ""


def _likely(lever: Lever, flip: Flip) -> str:
    """Where the value lies in what its source states."""
    if lever.likely is None:
        return ""
    low, high = lever.likely
    inside = low <= flip.value <= high
    ends = f"{_plain(lever, low)} to {_value(lever, high)}"
    return f"; {'within' if inside else 'beyond'} the range of its source, {ends}"


def _rest(found: BreakEven) -> list[str]:
    """What does not flip the decision, and what was not asked."""
    still = [one for one in found.thresholds if not one.flips]
    said = [
        f"{one.lever.name} from {_plain(one.lever, one.lever.low)} to "
        f"{_value(one.lever, one.lever.high)}: {one.none}"
        for one in still
    ]
    said += [f"{one.name}: {one.why}" for one in found.absent]
    return [f"No flip: {'; '.join(said)}."] if said else []


def _how(found: BreakEven) -> list[str]:
    """What was evaluated, of whom, and with which fidelity."""
    contest, near = found.contest, found.contest.near
    own = sum(one.own_ratio for one in near)
    ratios = [one.ratio for one in near]
    by = f"the fast path times events / fast, {min(ratios):.3f} to {max(ratios):.3f}"
    whose = "their own" if own == len(near) else f"{own} their own, {len(near) - own} a leader's"
    asked = (
        f"Asked of {len(near)} layouts (at most {MOST}, within {100 * REACH:.0f} % of goal and "
        f"pick, and safe ones beyond): {found.points:,} answers by {by} ({whose})."
    )
    exact = (
        "Price, memory and losses are worked out exactly, of all "
        f"{len(contest.contenders)} layouts that fit. Less than {100 * TIE:.0f} % better is no "
        "better. What the search did not answer may win elsewhere: ask again with --set."
    )
    if not found.lost:
        return [asked, exact]
    lost = (
        f"{len(found.lost)} values were not answered ({found.lost[0]}): flips there are not seen, "
        "or not closed in on. Ask again."
    )
    return [asked, exact, lost]


def _value(lever: Lever, value: float) -> str:
    """A value in the lever's unit; of experts the load that it makes."""
    if lever.load is not None:
        return f"{lever.load(value):.2f} x the mean load"
    return f"{_plain(lever, value)} {lever.unit}".strip()


def _plain(lever: Lever, value: float) -> str:
    return digits(value / lever.per_unit)


def threshold_tables(found: BreakEven) -> tuple[Table, ...]:
    """The tornado: what uncertain inputs make of the pick."""
    return (_tornado(found),) if found.bars else ()


def _tornado(found: BreakEven) -> Table:
    table = Table(title="Most uncertain inputs of the pick", title_justify="left", box=None)
    table.add_column("input")
    for heading in ("now", "from", "to", "days", "cost"):
        table.add_column(heading, justify="right")
    table.add_column("range from")
    for one in found.bars[:_BARS]:
        source = one.found.source
        by = source.id if source and one.found.range_from == "source" else one.found.range_from
        table.add_row(
            one.found.path, one.found.value, one.found.low, one.found.high, *_changes(one), by
        )
    left = len(found.bars) - _BARS
    table.caption = "! the pick no longer meets the goal, or no longer fits" + (
        f"; {left} further inputs move it less" if left > 0 else ""
    )
    table.caption_justify = "left"
    return table


def _changes(one: Bar) -> tuple[str, str]:
    """Changes of days and cost at both ends, with a mark where the decision flips."""
    marks = ["!" if flips else "" for flips in one.flips]
    days = " / ".join(f"{_signed(d)}{m}" for d, m in zip(one.days, marks, strict=True))
    if one.cost_usd is None:
        return days, ""
    return days, " / ".join(f"{_sign(c)}{count(abs(c))}" for c in one.cost_usd)


def _signed(value: float) -> str:
    return f"{_sign(value)}{digits(abs(value))}"


def _sign(value: float) -> str:
    return "-" if value < 0 else "+" if value > 0 else ""
