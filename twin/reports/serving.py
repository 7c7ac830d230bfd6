"""The engines of a scenario over concurrent users and context, how far that may lie off, and what
twice the heads would do to it.

Kimi K2's report (arXiv:2507.20534, section 2.3) turns down 128 heads for the inference FLOP that
they add at 128k. FLOP are no seconds: attention to a cache waits for memory, which twice the heads
read once as well, and prompts wait for arithmetic. So FLOP, by the report's own count and as
engines decode, stand beside seconds and bytes here.

Intervals: no published run tells of a whole curve, so they are what the ranges of the engine, the
calibration and the links make of a step (`twin.loading.input_ranges`). What an engine loses over
hours (`utilisation`) is not among them.

What is said of an engine over users and context, in sentences and in cells of tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import log
from typing import Any, Final, Literal

from twin.arch.inference import with_heads
from twin.errors import Problem, ScenarioError
from twin.inference.curve import (
    PARTS,
    WRITTEN,
    AtContext,
    Curve,
    Point,
    Request,
    curve,
    most,
    point,
)
from twin.inference.engine import Engine, engine
from twin.inference.kv_capacity import cached_bytes, room
from twin.inference.seconds import decode_pass
from twin.loading.input_ranges import at_both_ends, spread
from twin.reports.inference import LONG, conventions
from twin.reports.table import Table, count, digits, duration, flop, gibibytes, headed, signed
from twin.scenario import Scenario
from twin.spec.inference import EngineSpec
from twin.spec.model import LatentAttention, ModelSpec

ROLLOUT: Final = "rl.rollout.engine"
PREFILL: Final = "rl.rollout.prefill.engine"
DATA: Final = "data.engine"
ROOTS: Final = (
    "calibration",
    "cluster.fabric",
    "cluster.node.gpu.memory_bandwidth",
    "cluster.node.nic",
    "cluster.node.nvlink",
)
"""What moves a step beside the engine's own numbers."""
FLOP_KEYS: Final = ("flop_report", "flop_whole", "flop_absorbed", "flop_prompt")
"""Ways to count FLOP, in the order of `conventions`; without a latent the second and the last."""
_SHOWN: Final = 3
"""Numbers that are named, of those that move a step most."""
_LEAST: Final = 0.002
"""Changes below this are not named."""

NONE: Final = Problem(
    "TW190",
    DATA,
    "the scenario has no inference engine",
    "add `data: {engine: deepep-32gpu}`, or `rl.rollout` with an engine",
)
"""What is wrong where no engine is declared."""

Interval = tuple[float, float]
Unit = Literal["FLOP", "s", "bytes", "users", "tok/s/GPU"]


@dataclass(frozen=True, slots=True)
class Doubled:
    """A figure with the model's heads and with twice as many; None: there is no room for one
    sequence."""

    key: str
    name: str
    unit: Unit
    own: float | None
    twice: float | None

    @property
    def change(self) -> float | None:
        """How much more twice the heads have, as a share."""
        return self.twice / self.own - 1 if self.own and self.twice is not None else None

    def to_json(self) -> dict[str, Any]:
        """All fields and the change."""
        return asdict(self) | {"change": self.change}


@dataclass(frozen=True, slots=True)
class Reach:
    """By how much tokens per second at the largest batch of a context may be less and more, as
    factors, and the numbers that move them most."""

    low: float
    high: float
    drivers: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {"low": self.low, "high": self.high, "drivers": list(self.drivers)}


@dataclass(frozen=True, slots=True)
class Serving:
    """One engine of a scenario, written at `path`. `reach` is by context, `doubled` are figures at
    131,072 tokens, `kept` is the share of these rates that the engine keeps over hours."""

    path: str
    engine: EngineSpec
    model: ModelSpec
    curve: Curve
    reach: Mapping[int, Reach]
    doubled: tuple[Doubled, ...]
    kept: Interval

    def twice(self, key: str) -> Doubled | None:
        """A figure beside that of twice the heads; None where there is none to compare."""
        return next((one for one in self.doubled if one.key == key), None)

    @property
    def heads(self) -> int:
        """The model's query heads."""
        return self.model.attention.heads

    def to_json(self) -> dict[str, Any]:
        """All of it in plain data."""
        return {
            "engine": {"path": self.path, "name": self.engine.name, "model": self.model.name},
            "curve": self.curve.to_json(),
            "intervals": {str(at): one.to_json() for at, one in self.reach.items()},
            "utilisation": {"value": self.engine.utilisation, "range": list(self.kept)},
            "heads": self.heads,
            "twice_the_heads_at": LONG,
            "twice_the_heads": [one.to_json() for one in self.doubled],
        }


def engines_of(scenario: Scenario) -> dict[str, Engine]:
    """Engines that a scenario declares, by where they are written: of its rollouts, of its data.

    Raises `ScenarioError` where one cannot be.
    """
    wanted: dict[str, tuple[EngineSpec, ModelSpec | None]] = {}
    if scenario.rl is not None:
        own = scenario.rl.rollout
        wanted[ROLLOUT] = own.engine, own.model
        if own.prefill is not None:
            wanted[PREFILL] = own.prefill.engine, own.model
    if scenario.data is not None and scenario.data.engine is not None:
        wanted[DATA] = scenario.data.engine, scenario.data.model
    cluster, profile = scenario.cluster, scenario.calibration
    return {
        path: engine(spec, model or scenario.model, cluster, profile, path)
        for path, (spec, model) in wanted.items()
    }


def serving(scenario: Scenario) -> tuple[Serving, ...]:
    """Every engine of a scenario over users and context.

    Raises `ScenarioError` where there is none, or one cannot be.
    """
    try:
        found = engines_of(scenario)
    except ScenarioError as error:
        raise ScenarioError(scenario.locate(error.problems)) from None
    if not found:
        raise ScenarioError(scenario.locate([NONE]))
    return tuple(_serving(scenario, path, server) for path, server in found.items())


def _serving(scenario: Scenario, path: str, server: Engine) -> Serving:
    found, own, ends = curve(server), _model(scenario, path), _ends(scenario, path)
    moves = {
        at.context: _reach(server, at, found.written, ends) for at in found.contexts if at.points
    }
    return Serving(
        path, server.spec, own, found, moves, doubled(server, own), _kept(scenario, path, server)
    )


def _kept(scenario: Scenario, path: str, server: Engine) -> Interval:
    """The range of what the engine keeps over hours; the number itself where it has none."""
    known = scenario.ledger.get(f"{path}.utilisation")
    if known is None or known.range is None:
        return server.spec.utilisation, server.spec.utilisation
    low, high = (float(str(end)) for end in known.range)
    return low, high


def _model(scenario: Scenario, path: str) -> ModelSpec:
    if path in (ROLLOUT, PREFILL):
        return (scenario.rl.rollout.model if scenario.rl else None) or scenario.model
    return (scenario.data.model if scenario.data else None) or scenario.model


def _reach(server: Engine, at: AtContext, written: int, ends: Mapping[str, list[Engine]]) -> Reach:
    """How far tokens per second at the largest batch of a context lie off."""
    now = _step(server, at, written)
    changes = {  # a longer step gives fewer tokens
        path: [now / _step(other, at, written) for other in others] for path, others in ends.items()
    }
    sizes = [
        (max((abs(log(one)) for one in own), default=0.0), path) for path, own in changes.items()
    ]
    named = tuple(path for size, path in sorted(sizes, reverse=True)[:_SHOWN] if size > _LEAST)
    return Reach(*spread(changes.values()), named)


def _ends(scenario: Scenario, path: str) -> dict[str, list[Engine]]:
    """The engine at either end of every range that a step may depend on, where there can be one."""
    found = at_both_ends(scenario, (f"{path}.", *ROOTS), lambda changed: engines_of(changed)[path])
    no_part_of_a_step = (f"{path}.utilisation", f"{path}.batch")
    return {
        name: [one for one in ends if one] for name, *ends in found if name not in no_part_of_a_step
    }


def _step(server: Engine, at: AtContext, written: int) -> float:
    return decode_pass(server, at.most, at.context - written / 2).seconds


def doubled(server: Engine, model: ModelSpec) -> tuple[Doubled, ...]:
    """What twice the heads do at 131,072 tokens: FLOP per token by the report's count and as
    engines decode, then seconds, bytes, and users that memory has room for."""
    other = with_heads(model, 2 * model.attention.heads)
    twin_of = with_heads(server.model, 2 * model.attention.heads)
    twice = Engine(server.spec, twin_of, server.cluster, server.calibration)
    counts = conventions(model, other)[:-1]  # the last is training
    keys = FLOP_KEYS if isinstance(model.attention, LatentAttention) else FLOP_KEYS[1::2]
    rows = [
        Doubled(key, f"FLOP per token: {one.name}", "FLOP", one.own, one.twice)
        for key, one in zip(keys, counts, strict=True)
    ]
    pair, tops = (server, twice), [most(one, LONG)[0] for one in (server, twice)]
    request = Request(float(LONG - WRITTEN), 0.0, float(WRITTEN))
    few = min(tops)
    if few:
        steps = [point(one, request, few) for one in pair]
        users = f"{few * server.groups:,} users"
        rows.append(Doubled("step", f"Step with {users}", "s", *(one.step for one in steps)))
        prompts = (one.pace.prefill_seconds for one in steps)
        rows.append(Doubled("prompt", f"Prompt of {LONG - WRITTEN:,} tokens", "s", *prompts))
    caches = (cached_bytes(one) * LONG for one in pair)
    weights = (room(one).weights for one in pair)
    held = (float(top * server.groups) for top in tops)
    rates = (
        point(one, request, top).per_gpu if top else None
        for one, top in zip(pair, tops, strict=True)
    )
    return (
        *rows,
        Doubled("cache", "Cache of a sequence on a GPU", "bytes", *caches),
        Doubled("weights", "Weights of a GPU", "bytes", *weights),
        Doubled("users", "Users of an engine, at most", "users", *held),
        Doubled("rate", "Tokens per second and GPU with so many", "tok/s/GPU", *rates),
    )


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


def serving_tables(found: Serving) -> tuple[Table, ...]:
    """Concurrent users by context, the most users by context, and twice the heads."""
    return _users_table(found), _limits_table(found), _heads_table(found)


def _users_table(found: Serving) -> Table:
    own = found.curve
    title = f"{found.engine.name}: {found.model.name} on {own.gpus:,} GPUs in {own.groups:,} groups"
    columns = ("context", "users", "step", "tok/s/user", "tok/s/GPU", "with prompts", "in line")
    table = headed(title, *columns, "roofline", "bound by", left=(8,))
    for at in own.contexts:
        for users in at.points:
            table.add_row(f"{at.context:,}", *_user_row(users))
    table.caption = (
        f"with prompts: the engine also prefills all but the {own.written:,} tokens of each "
        "answer; in line: a step without halves that take turns"
    )
    return table


def _user_row(row: Point) -> tuple[str, ...]:
    share = digits(100 * row.parts[row.bound] / row.step)
    return (
        f"{row.users:,}",
        duration(row.step),
        digits(row.per_user),
        count(row.per_gpu),
        count(row.with_prompts),
        duration(row.in_line),
        duration(row.light),
        f"{row.bound}, {share} %",
    )


def _limits_table(found: Serving) -> Table:
    columns = (
        "context",
        "users",
        "because",
        "prompt takes",
        "cache moves",
        "tok/s/GPU",
        "by its ranges",
    )
    table = headed("At most", *columns, "moved most by", left=(2, 7))
    for at in found.curve.contexts:
        if at.points:
            table.add_row(*_limit_row(at, found.curve.groups, found.reach[at.context]))
        else:
            table.add_row(f"{at.context:,}", "0", limit(at))
    room = found.curve.room
    table.caption = f"{gibibytes(max(0.0, room.cache))} of every GPU are left for the cache"
    return table


def _limit_row(at: AtContext, groups: int, reach: Reach) -> tuple[str, ...]:
    last = at.points[-1]
    return (
        f"{at.context:,}",
        f"{at.most * groups:,}",
        limit(at),
        duration(at.prefill),
        duration(at.moved),
        count(last.per_gpu),
        f"{count(last.per_gpu * reach.low)} to {count(last.per_gpu * reach.high)}",
        "\n".join(reach.drivers),
    )


def _heads_table(found: Serving) -> Table:
    title = f"{found.heads} and {2 * found.heads} heads at 131,072 tokens"
    table = headed(title, "", str(found.heads), str(2 * found.heads), "change")
    for row in found.doubled:
        table.add_row(row.name, shown(row, row.own), shown(row, row.twice), percent(row))
    return table
