"""What must be true for a decision: the values of its inputs at which it flips, and who wins then.

A decision flips where the pick no longer meets the goal, or where another layout that fits is
better by more than `contenders.TIE`. Each lever is moved by itself, to both sides of what it is
now: first over a few values, where every change between neighbours is a flip, then between those
two, until they are 1 % apart. A decision that flips and flips back between two neighbours is not
found, nor a layout that the search did not answer: what is pruned now may win elsewhere, so ask
`twin recommend` again with the lever set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any, Final, Literal, TypeAlias

from twin.answers.nearest import Document, document
from twin.explore.search.candidates import (
    Contender,
    Decision,
    Standing,
    scenario_of,
    standing,
)
from twin.explore.search.levers import Lever, NoLever, levers
from twin.explore.search.space import Kpis
from twin.explore.study.influence import Ends, Influence, influence
from twin.explore.sweep.points import PointOutcome, SweepPoint
from twin.explore.sweep.progress import Progress
from twin.explore.sweep.sweep import SweepProgress, answer_points

Side: TypeAlias = Literal["below", "above"]
Reason: TypeAlias = Literal["goal", "better", "does not fit", "meets the goal"]

Wanted: TypeAlias = tuple[float, tuple[int, ...]]
"""A value to ask about, and of which contenders."""

LEADERS: Final = 3
"""So many of the best at each end are asked about what lies between."""
SAME: Final = 1e-6
"""Part of a figure below which it has not changed: steps are whole nanoseconds."""
ODD: Final = 1e-3
"""Part of the days by which a lever may go the wrong way before that is said: where flows meet, a
faster link may make a step a little slower."""


@dataclass(frozen=True, slots=True)
class Flip:
    """One value at which the decision flips."""

    value: float
    """Here it holds; SI."""
    beyond: float
    """The nearest value that was asked about where it does not."""
    side: Side
    """Where it does not hold."""
    reason: Reason
    wins: Contender | None
    """Who is chosen there; None: nobody meets the goal."""
    figures: Kpis | None
    """Of who wins, at `beyond`."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """What one lever must be."""

    lever: Lever
    flips: tuple[Flip, ...]
    none: str = ""
    """Why there is no flip."""
    odd: str = ""
    """What is not monotone in it."""
    lost: tuple[str, ...] = ()
    """Why values were not answered: what lies there is not known."""

    def to_json(self) -> dict[str, Any]:
        """The threshold in plain data, in the lever's unit."""
        flips = [self._flip(one) for one in self.flips]
        return {
            **self.lever.to_json(),
            "evaluated": "exactly" if self.lever.closed else "events",
            "flips": flips,
            "none": self.none,
            "not_monotone": self.odd,
        }

    def _flip(self, one: Flip) -> dict[str, Any]:
        lever, wins, figures = self.lever, one.wins, one.figures or {}
        likely = lever.likely
        found: dict[str, Any] = {
            "value": one.value / lever.per_unit,
            "beyond": one.beyond / lever.per_unit,
            "side": one.side,
            "reason": one.reason,
            "in_source_range": likely and likely[0] <= one.value <= likely[1],
            "wins": wins
            and {**wins.named, **{key: figures.get(key) for key in ("days", "cost_usd")}},
        }
        return found if lever.load is None else {**found, "load": lever.load(one.value)}


@dataclass(frozen=True, slots=True)
class BreakEven:
    """What must be true for a decision."""

    contest: Decision
    thresholds: tuple[Threshold, ...]
    absent: tuple[NoLever, ...]
    bars: tuple[Bar, ...]
    points: int
    """Layouts at values that were asked about."""

    @property
    def lost(self) -> tuple[str, ...]:
        """Why values were not answered, a reason for each."""
        return tuple(reason for one in self.thresholds for reason in one.lost)

    def to_json(self) -> dict[str, Any]:
        """The keys that a recommendation gets."""
        absent: list[dict[str, Any]] = [one.to_json() for one in self.absent]
        return {
            "thresholds": [*(one.to_json() for one in self.thresholds), *absent],
            "thresholds_by": {
                "fidelity": "events",
                "points": self.points,
                "values_not_answered": list(self.lost),
                "contenders": [one.named for one in self.contest.near],
                "contenders_where_exact": len(self.contest.contenders),
            },
            "tornado": [one.to_json() for one in self.bars],
        }


@dataclass(slots=True)
class Scan:
    """A lever on its way: how contenders stand at the values that were asked about."""

    lever: Lever
    contest: Decision
    contenders: Sequence[Contender]
    known: dict[float, tuple[Standing, ...]] = field(
        default_factory=dict[float, tuple[Standing, ...]]
    )
    partial: set[float] = field(default_factory=set[float])
    """Values of which not everyone was asked."""
    lost: dict[float, str] = field(default_factory=dict[float, str])
    """Values of which some answer failed, by a bug or a worker that died. Without one contender
    nobody can say who wins."""

    def chosen(self, value: float) -> int | None:
        """Who is chosen at a value that was asked about."""
        return self.contest.decide(self.known[value])

    @property
    def usual(self) -> int | None:
        """Who is chosen where the lever is what it is in the recommendation."""
        return 0 if self.contest.has_pick else None

    @property
    def changes(self) -> Iterator[tuple[float, float]]:
        """Neighbouring values of which the decision holds at one."""
        for low, high in pairwise(sorted(self.known)):
            if (self.chosen(low) == self.usual) != (self.chosen(high) == self.usual):
                yield low, high

    def wanted(self) -> list[Wanted]:
        """The values to ask about next."""
        everyone = tuple(range(len(self.contenders)))
        if len(self.known) + len(self.lost) == 1:
            return [(one, everyone) for one in self.lever.points() if one not in self.known]
        found: list[Wanted] = []
        for low, high in self.changes:
            middle = self.lever.middle(low, high)
            if middle is None or middle in self.lost:
                found += [(end, everyone) for end in (low, high) if end in self.partial]
            else:
                who = everyone if self.lever.closed else self._leaders(low, high)
                found.append((middle, who))
        return found

    def _leaders(self, low: float, high: float) -> tuple[int, ...]:
        """Who may be chosen between two values: the pick, and of both of them the best and the
        safest. Once a flip is closed in on, everyone is asked at its ends."""
        found = {0}
        for value in (low, high):
            stands = self.known[value]
            found.update(self.contest.best(stands)[:LEADERS])
            found.update(self.contest.safest(stands)[:LEADERS])
        return tuple(sorted(found))

    def note(self, wanted: Wanted, outcomes: Sequence[PointOutcome]) -> None:
        """Take the answers that were wanted; who was not asked does not compete there."""
        value, who = wanted
        self.partial.discard(value)
        failed = next((one.reason for one in outcomes if one.status == "failed"), None)
        if failed is not None:
            self.lost[value] = failed
            return
        stands = [Standing(None, "not asked")] * len(self.contenders)
        for place, outcome in zip(who, outcomes, strict=True):
            stands[place] = standing(outcome)
        self.known[value] = tuple(stands)
        if len(who) < len(self.contenders):
            self.partial.add(value)


def break_even(contest: Decision) -> BreakEven:
    """What must be true for the decision of a contest, and how much uncertain inputs move its pick.

    Raises `UsageError` where a cluster of workers cannot be reached.
    """
    found = list(levers(contest)) if contest.contenders else []
    moved = [one for one in found if isinstance(one, Lever)]
    thresholds, points = find_flips(contest, moved)
    absent = tuple(one for one in found if isinstance(one, NoLever))
    return BreakEven(contest, thresholds, absent, tornado(contest), points)


def find_flips(contest: Decision, moved: Sequence[Lever]) -> tuple[tuple[Threshold, ...], int]:
    """The flips of each lever, and how many answers were asked for. All levers go
    on together, so that a round fills all workers."""
    near = contest.near
    scans = [Scan(one, contest, contest.contenders if one.closed else near) for one in moved]
    for scan in scans:
        scan.known[scan.lever.start] = tuple(one.now for one in scan.contenders)
    base, points = document(contest.scenario), 0
    while asked := [(scan, one) for scan in scans for one in scan.wanted()]:
        points += _ask(contest, base, asked)
    return tuple(_threshold(scan) for scan in scans), points


def _ask(contest: Decision, base: Document, asked: Sequence[tuple[Scan, Wanted]]) -> int:
    """How contenders stand at these values; gives how many answers that took."""
    points: list[SweepPoint] = []
    for scan, (value, who) in asked:
        closed, overrides = scan.lever.closed, scan.lever.overrides
        if closed is not None:
            scan.known[value] = tuple(closed(one, value) for one in scan.contenders)
        elif overrides is not None:
            moved = overrides(value)
            points += [
                SweepPoint(base, {**scan.contenders[n].overrides, **moved}, "events") for n in who
            ]
    found = dict(
        answer_points(
            points,
            pool=contest.pool,
            folder=contest.folder,
            play_unfit=False,
            progress=lambda counts: _tell(contest, counts),
        )
        if points
        else ()
    )
    outcomes = iter(found[place] for place in range(len(points)))
    for scan, wanted in asked:
        if scan.lever.closed is None:
            scan.note(wanted, list(islice(outcomes, len(wanted[1]))))
    return len(points)


def _tell(contest: Decision, counts: SweepProgress) -> None:
    if contest.progress is not None:
        contest.progress(Progress("moving levers", counts.done, counts.points))


def _threshold(scan: Scan) -> Threshold:
    flips = tuple(_flip(scan, low, high) for low, high in scan.changes)
    lost = tuple(scan.lost.values())
    found = Threshold(scan.lever, flips, odd=_odd(scan), lost=lost)
    return found if flips else replace(found, none=_none(scan))


def _flip(scan: Scan, low: float, high: float) -> Flip:
    """The flip between two values that are close."""
    side: Side = "above" if scan.chosen(low) == scan.usual else "below"
    value, beyond = (low, high) if side == "above" else (high, low)
    chosen, stands = scan.chosen(beyond), scan.known[beyond]
    return Flip(
        value,
        beyond,
        side,
        _reason(scan, stands),
        None if chosen is None else scan.contenders[chosen],
        None if chosen is None else stands[chosen].kpis,
    )


def _reason(scan: Scan, stands: Sequence[Standing]) -> Reason:
    """Why the pick is not chosen where contenders stand like this."""
    if not scan.contest.has_pick:
        return "meets the goal"
    if stands[0].kpis is None:
        return "does not fit"
    return "better" if scan.contest.goal.met(stands[0].kpis) else "goal"


def _none(scan: Scan) -> str:
    """Why there is no flip."""
    if len(scan.known) == 1:
        return "not answered"
    usual = scan.known[scan.lever.start]
    if not any(
        _differs(now, then)
        for one in scan.known.values()
        for now, then in zip(usual, one, strict=True)
    ):
        return "no influence on any layout that was asked"
    what = "the decision holds" if scan.contest.has_pick else "no layout meets the goal"
    return f"{what} over the whole range"


def _differs(now: Standing, then: Standing) -> bool:
    """Whether a layout stands otherwise than now."""
    if now.kpis is None or then.kpis is None:
        return now.kpis is not then.kpis
    return any(
        abs((now.kpis[key] or 0.0) - (then.kpis[key] or 0.0)) > SAME * (now.kpis[key] or 0.0)
        for key in ("days", "cost_usd")
    )


def _odd(scan: Scan) -> str:
    """Where days of the pick go the wrong way."""
    lever, values = scan.lever, sorted(scan.known)
    days = {
        value: kpis["days"] or 0.0
        for value in values
        if (kpis := scan.known[value][0].kpis) is not None
    }
    for low, high in pairwise(days):
        slow, quick = (low, high) if lever.more == "faster" else (high, low)
        if days[quick] > (1 + ODD) * days[slow]:
            ends = " and ".join(f"{one / lever.per_unit:.4g}" for one in (low, high))
            return f"not monotone: between {ends} {lever.unit} the days go the other way"
    return ""


@dataclass(frozen=True, slots=True)
class Bar:
    """One uncertain input, and what it makes of the pick at both ends of its range: [low, high]."""

    found: Influence
    days: Ends
    """Change of the run."""
    cost_usd: Ends | None
    """Change of the cost, in proportion to the days; None where nothing has a price."""
    flips: tuple[bool, bool]
    """Whether the pick no longer meets the goal there, or no longer fits."""

    def to_json(self) -> dict[str, Any]:
        """The bar in plain data."""
        one = self.found
        same = ("path", "value", "kind", "low", "high", "range_from", "headroom_bytes")
        return {
            **{key: getattr(one, key) for key in same},
            "source": one.source and one.source.id,
            "days": self.days,
            "cost_usd": self.cost_usd,
            "flips": self.flips,
        }


def tornado(contest: Decision) -> tuple[Bar, ...]:
    """The uncertain inputs that move the pick, the most influential first; none without a pick."""
    pick = contest.pick
    if pick is None:
        return ()

    def told(share: float) -> None:
        if contest.progress is not None:
            contest.progress(Progress("moving uncertain inputs", round(100 * share), 100))

    found = influence(scenario_of(contest, pick), told)
    return tuple(_bar(contest, pick, one) for one in found if one.span or any(one.headroom_bytes))


def _bar(contest: Decision, pick: Contender, one: Influence) -> Bar:
    kpis = pick.now.kpis
    assert kpis is not None
    usual, paid = kpis["days"] or 0.0, kpis["cost_usd"]
    low, high = one.days
    at_low, at_high = (
        _flips(contest, pick, kpis, (change, room))
        for change, room in zip((low, high), one.headroom_bytes, strict=True)
    )
    cost = None if paid is None else (paid * low / usual, paid * high / usual)
    return Bar(one, (low, high), cost, (at_low, at_high))


def _flips(contest: Decision, pick: Contender, kpis: Kpis, change: tuple[float, float]) -> bool:
    """Whether a change of days, and of the memory to spare, is too much."""
    usual, paid = kpis["days"] or 0.0, kpis["cost_usd"]
    days, room = usual + change[0], pick.headroom_bytes + change[1]
    cost = None if paid is None else paid * days / usual
    return room < 0 or not contest.goal.met({**kpis, "days": days, "cost_usd": cost})
