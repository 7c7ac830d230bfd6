"""A recommendation, and what must be true for it, in words and tables."""

from __future__ import annotations

from typing import Final

from twin.explore.search.candidates import MOST, REACH, TIE, Contender, Decision
from twin.explore.search.judge import words
from twin.explore.search.levers import Lever
from twin.explore.search.recommendation import Recommendation, Size
from twin.explore.search.scale import Scaling
from twin.explore.search.thresholds import Bar, BreakEven, Flip, Threshold
from twin.explore.search.wording import (
    UNITS,
    overrides_in_words,
    recommendation_sentences,
    scaling_sentence,
)
from twin.explore.sweep.points import PointOutcome
from twin.reports.table import Table, count, digits, gibibytes, headed, ranged

_BARS: Final = 10
"""Uncertain inputs that are shown: the most influential."""
_FRONTIER: Final = "* Pareto-optimal in time and cost"
_FIGURES: Final = {"step_seconds": "step", "days": "run", "cost_usd": "cost", "mfu": "MFU"}


def search_words(found: Recommendation | Scaling) -> list[str]:
    """What is recommended, how to type it, and how it was found."""
    if isinstance(found, Scaling):
        return [scaling_sentence(found)]
    first, *rest = recommendation_sentences(found)
    typed = overrides_in_words(found)
    return [first, *([f"As overrides: {typed}"] if typed else []), *rest]


def search_tables(found: Recommendation | Scaling) -> tuple[Table, ...]:
    """Every size with its figures, and, of a search, why layouts were pruned."""
    if isinstance(found, Scaling):
        return (_scaling_table(found),)
    return (_sizes(found), _reasons(found))


def _sizes(found: Recommendation) -> Table:
    heads = ("", "GPUs", "layout", *_FIGURES.values(), "to spare", "")
    table = headed("The best of every size", *heads, left=(0, 2, len(heads) - 1))
    frontier = {id(one) for one in found.frontier}
    for size in found.sizes:
        leader, gpus = size.leader, f"{size.nodes * found.asked.scenario.cluster.node.gpus:,}"
        if leader is None:
            table.add_row("", gpus, _why_none(size), *[""] * (len(_FIGURES) + 1), "", dim=True)
            continue
        mark = "*" if id(leader) in frontier else ""
        table.add_row(mark, gpus, leader.layout.words, *_figures(leader.answer), _doubt(size))
    table.caption = _FRONTIER
    return table


def _why_none(size: Size) -> str:
    return "none fits" if size.asked else "no layout is left: too large, too slow or not possible"


def _figures(outcome: PointOutcome) -> list[str]:
    """Key figures and memory to spare; blank where there are none."""
    if not outcome.kpis:
        return [""] * (len(_FIGURES) + 1)
    spare = "" if outcome.headroom_bytes is None else gibibytes(outcome.headroom_bytes)
    return [
        *(ranged(outcome.kpis[key], outcome.intervals.get(key), UNITS[key]) for key in _FIGURES),
        spare,
    ]


def _doubt(size: Size) -> str:
    """What is not known of a size."""
    if size.doubt < 0.005:
        return ""
    return f"{size.left:,} not simulated, at most {100 * size.doubt:.0f} % faster"


def _reasons(found: Recommendation) -> Table:
    table = headed("Why layouts were pruned", "layouts", "reason", left=(1,))
    for reason, number in found.pruned.items():
        code = f" ({reason})" if reason.startswith("TW") else ""
        table.add_row(f"{number:,}", f"{words(reason)}{code}")
    left = sum(size.left for size in found.sizes)
    table.add_row(f"{left:,}", "not simulated: bound no better than the best, or out of time")
    return table


def _scaling_table(found: Scaling) -> Table:
    """One row per size: its figures, or why it is not possible."""
    heads = ("", "nodes", "GPUs", *_FIGURES.values(), "to spare", "why not")
    table = headed("One layout on every size", *heads, left=(0, len(heads) - 1))
    for place, (nodes, one) in enumerate(found.rows):
        mark = "*" if place in found.frontier else ""
        gpus = f"{nodes * found.scenario.cluster.node.gpus:,}"
        why = "; ".join(text for text in (f"{one.code} {one.reason}".strip(), one.hint) if text)
        dim = one.status != "fits"
        table.add_row(mark, f"{nodes:,}", gpus, *_figures(one), why, dim=dim)
    table.caption = _FRONTIER
    return table


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
        return f"then {wins.words} on {wins.gpus:,} GPUs meets the goal{_flip_figures(flip)}"
    why = {
        "goal": "the pick no longer meets the goal, and",
        "does not fit": "the pick no longer fits, and",
    }.get(flip.reason, "")
    said = f"{where}, {why} " if why else f"{where}, "
    if wins is None:
        return f"{said}no layout that was asked does"
    verb = "is better" if flip.reason == "better" else "wins"
    name = "the same layout" if _is_same(wins, pick) else contest.name(wins)
    return f"{said}{name} on {wins.gpus:,} GPUs {verb}{_flip_figures(flip)}"


def _is_same(one: Contender, other: Contender) -> bool:
    """Whether two differ in the size of the cluster only."""
    paths = {*one.overrides, *other.overrides} - {"cluster.nodes"}
    return all(one.overrides.get(path) == other.overrides.get(path) for path in paths)


def _flip_figures(flip: Flip) -> str:
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
    asked = (
        f"Asked of {len(near)} layouts (at most {MOST}, within {100 * REACH:.0f} % of goal and "
        f"pick, and safe ones beyond): {found.points:,} answers by events."
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
    heads = ("input", "now", "from", "to", "days", "cost", "range from")
    table = headed("Most uncertain inputs of the pick", *heads, left=(0, 6))
    for bar in found.bars[:_BARS]:
        one = bar.found
        by = one.source.id if one.source and one.range_from == "source" else one.range_from
        table.add_row(one.path, one.value, one.low, one.high, *_changes(bar), by)
    left = len(found.bars) - _BARS
    table.caption = "! the pick no longer meets the goal, or no longer fits" + (
        f"; {left} further inputs move it less" if left > 0 else ""
    )
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
