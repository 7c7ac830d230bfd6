"""What is said of an engine over users and context, in sentences and in cells of tables."""

from __future__ import annotations

from twin.inference.curve import PARTS, AtContext, Point
from twin.reports.numbers import count, digits, duration, flop, gibibytes, signed
from twin.reports.serving import Doubled, Serving
from twin.spec.model import LatentAttention


def sentence(found: Serving) -> str:
    """How many users the engine serves at the shortest and at the longest context, and how fast."""
    short, long = found.curve.contexts[0], found.curve.contexts[-1]
    engine = f"An engine of {found.curve.gpus:,} GPUs"
    if not short.points:
        return f"{engine} has no room for one sequence of {short.context:,} tokens."
    said = f"{engine} serves {_largest(short, short.points[-1])}, {_why(short)}."
    last = short.points[-1]
    share = digits(100 * last.parts[last.bound] / last.step)
    said += f" There {share} % of a step are {PARTS[last.bound]}."
    if not long.points:
        return f"{said} It has no room for one sequence of {long.context:,} tokens."
    return f"{said} It serves {_largest(long, long.points[-1])}, {_why(long)}."


def _largest(at: AtContext, last: Point) -> str:
    return (
        f"{last.users:,} users at {at.context:,} tokens, each with {rate(last.per_user)}, "
        f"{rate(last.per_gpu)} per GPU"
    )


def _why(at: AtContext) -> str:
    return f"where {limit(at)}"


def limit(at: AtContext) -> str:
    """What allows no more users at a context."""
    return "memory ends" if at.limit == "memory" else "the engine's `batch` ends"


def turns(found: Serving) -> str | None:
    """Where one batch in line would be faster than halves that take turns; None where nowhere."""
    points = [(at.context, one) for at in found.curve.contexts for one in at.points]
    slower = [(context, one) for context, one in points if one.in_line < one.step]
    if not slower:
        return None
    context, worst = max(slower, key=lambda pair: pair[1].step / pair[1].in_line)
    return (
        "Halves that take turns read all weights twice, and are slower than one batch in line at "
        f"{len(slower)} of these {len(points)} points: with `two_batches: false` a step of "
        f"{worst.users:,} users at {context:,} tokens takes {duration(worst.in_line)}, not "
        f"{duration(worst.step)}."
    )


def heads(found: Serving) -> str:
    """What twice the heads take at long context: FLOP beside seconds and room."""
    first, users = found.doubled[0], found.twice("users")
    step, prompt = found.twice("step"), found.twice("prompt")
    latent = isinstance(found.model.attention, LatentAttention)
    counted = "by the count of Kimi K2's report" if latent else "with keys and values whole"
    said = f"Twice the {found.heads} heads add {percent(first)} of FLOP per token, {counted}"
    if step is not None and prompt is not None:
        said += f"; {percent(step)} to a step of as many users, {percent(prompt)} to a prompt"
    if users is not None:
        said += f"; memory has room for {shown(users, users.twice)}, not {shown(users, users.own)}"
    return f"{said}."


def percent(row: Doubled) -> str:
    """The change of a figure with its sign; `none` where nothing changes."""
    if row.change is None:
        return "unknown"
    return f"{signed(100 * row.change)} %" if row.change else "+0 %"


def shown(row: Doubled, value: float | None) -> str:
    """A figure of a row in its unit."""
    if value is None:
        return "no room"
    match row.unit:
        case "FLOP":
            return flop(value)
        case "s":
            return duration(value)
        case "bytes":
            return gibibytes(value)
        case "users":
            return f"{value:,.0f} users"
        case "tok/s/GPU":
            return f"{count(value)} tok/s/GPU"


def rate(value: float) -> str:
    """Tokens per second."""
    return f"{count(value)} tok/s"
