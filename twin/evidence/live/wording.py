"""How a run stands, a check and a hit rate, in words: the same everywhere."""

from __future__ import annotations

from twin.evidence.live.drift import StepTimeChange
from twin.evidence.live.follower import SealComparison, Track
from twin.evidence.live.seals import Check, HitRate
from twin.evidence.live.step_time_estimate import FEWEST, Remaining, StepTime
from twin.reports.table import count, digits, duration, signed

Rows = list[tuple[str, str]]


def sentence(found: Track) -> str:
    """How a run stands, in one line."""
    if found.state == "waiting":
        return f"Waiting for the first step of `{found.run}`."
    told = [_progress(found)]
    if found.pace is not None:
        told.append(f"{duration(found.pace.seconds)} per step")
    if found.state in ("running", "silent") and found.remaining is not None:
        told.append(f"{left(found.remaining)} left")
    if found.prediction is not None and found.prediction.ratio is not None:
        told.append(_beside(found.prediction))
    if found.changes:
        told.append(f"last change: {change(found.changes[-1])}")
    return "; ".join(told) + "."


def sections(found: Track) -> list[tuple[str, Rows]]:
    """Everything, in rows under headings."""
    parts = [("Run", _run(found))]
    if found.prediction is not None:
        parts.append(("Sealed prediction", _prediction(found.prediction)))
    if found.changes:
        rows = [(f"{number:,}", change(one)) for number, one in enumerate(found.changes, 1)]
        parts.append(("Changes of the step time", rows))
    if found.cause is not None:
        rows = [("Cause", found.cause.words)]
        rows += [("", one.words) for one in found.cause.evidence[:4]]
        parts.append(("Why it is slow", rows))
    return parts


def left(one: Remaining) -> str:
    """Remaining time with its interval."""
    return f"{duration(one.seconds)}{_span(one.interval)}"


def step_time(one: StepTime) -> str:
    """Seconds of a step with their interval."""
    return f"{duration(one.seconds)}{_span(one.interval)}"


def change(one: StepTimeChange) -> str:
    """A change of the step time."""
    way = "slower" if one.ratio > 1 else "faster"
    return (
        f"{signed(100 * (one.ratio - 1))} % ({way}) from step {one.step:,} on, called at "
        f"{one.called:,}: {duration(one.before)} -> {duration(one.after)}"
    )


def checked(one: Check) -> str:
    """What a check found."""
    found = f"{duration(one.measured)} measured, {duration(one.predicted)} predicted"
    found += f" ({signed(100 * (one.ratio - 1))} %)"
    if one.hit is None:
        return f"{found}: no interval was sealed"
    told = "inside" if one.hit else "outside of"
    assert one.interval is not None, "a hit or a miss has an interval"
    return f"{found}: {told} {duration(one.interval[0])} to {duration(one.interval[1])}"


def rate(one: HitRate) -> str:
    """The hit rate of intervals, and what it leaves out."""
    parts = [
        (one.unchecked, "not checked yet"),
        (one.without_interval, "sealed without an interval"),
        (one.late, "not known to be sealed before their run began"),
    ]
    rest = ", ".join(f"{many} {words}" for many, words in parts if many)
    apart = f" Not counted: {rest}." if rest else ""
    if one.share is None or one.interval is None:
        return f"No sealed interval has been checked yet, of {_sealed(one)}.{apart}"
    low, high = one.interval
    return (
        f"{one.hits} of {one.counted} sealed intervals held what was measured: "
        f"{digits(100 * one.share)} % (95 % confidence: {digits(100 * low)} to "
        f"{digits(100 * high)} %), where 80 % are meant to.{apart}"
    )


def _sealed(one: HitRate) -> str:
    return f"{one.sealed} prediction{'s' * (one.sealed != 1)}"


def _progress(found: Track) -> str:
    if found.steps is None:
        return f"Step {found.step:,} of an unknown number"
    words = {"done": "Done: ", "silent": "Silent: "}.get(found.state, "")
    share = digits(100 * found.step / found.steps)
    return f"{words}{'step' if words else 'Step'} {found.step:,} of {found.steps:,} ({share} %)"


def _beside(one: SealComparison) -> str:
    assert one.ratio is not None, "only what was measured is compared"
    told = f"{digits(one.ratio)} of the sealed {duration(one.predicted)}"
    if one.inside is not None:
        told += f", {'inside' if one.inside else 'outside of'} its interval"
    since = one.inside and one.left is not None
    return f"{told}, but called away from it at step {one.left:,}" if since else told


def _run(found: Track) -> Rows:
    rows = [("State", found.state), ("Progress", _progress(found))]
    if found.stage:
        rows.append(("Stage", found.stage))
    if found.tokens is not None:
        rows.append(("Tokens", count(found.tokens)))
    if found.pace is not None:
        rows.append((f"Step, median of {found.pace.steps:,}", step_time(found.pace)))
    if found.tokens_per_second is not None:
        rows.append(("Tokens per second", count(found.tokens_per_second)))
    if found.remaining is not None and found.state != "done":
        rows.append(("Remaining", left(found.remaining)))
    if found.ends is not None:
        rows.append(("Ends", found.ends))
    if found.pause_share is not None:
        rows.append(("Between steps", f"{digits(100 * found.pause_share)} % of the steps"))
    return rows


def _prediction(one: SealComparison) -> Rows:
    rows = [("Seal", f"{one.seal[:8]}, {one.name}, {one.sealed}")]
    rows.append(("Predicted", f"{duration(one.predicted)}{_span(one.interval)}"))
    if one.measured is not None:
        rows.append((f"Measured, median of {one.measured.steps:,}", step_time(one.measured)))
    if one.ratio is not None:
        rows.append(("Measured over predicted", digits(one.ratio)))
        rows.append(("Verdict", _verdict(one)))
    return rows


def _verdict(one: SealComparison) -> str:
    if one.inside is None:
        short = one.interval is not None
        found = f"too few steps, {FEWEST} are needed" if short else "no interval was sealed"
    else:
        found = "inside the interval" if one.inside else "outside of the interval"
    if one.left is None:
        return found
    what = "its interval" if one.interval else "what is within 5 % of it"
    return f"{found}; called outside of {what} at step {one.left:,}"


def _span(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    return f" ({duration(interval[0])} to {duration(interval[1])})"
