"""Engines over concurrent users and context, as terminal tables."""

from __future__ import annotations

from rich.table import Table

from twin.cli.columns import headed
from twin.inference.curve import AtContext, Point
from twin.reports.numbers import count, digits, duration, gibibytes
from twin.reports.serving import Reach, Serving, limit, percent, shown


def serving_tables(found: Serving) -> tuple[Table, ...]:
    """Every context with its users, then what twice the heads do."""
    return _points(found), _contexts(found), _heads(found)


def _points(found: Serving) -> Table:
    own = found.curve
    title = f"{found.engine.name}: {found.model.name} on {own.gpus:,} GPUs in {own.groups:,} groups"
    heads = ("context", "users", "step", "tok/s/user", "tok/s/GPU", "with prompts", "in line")
    table = headed(title, *heads, "roofline", "bound by", left=(8,))
    for at in own.contexts:
        for one in at.points:
            table.add_row(f"{at.context:,}", *_cells(one))
    table.caption = (
        f"with prompts: the engine also prefills all but the {own.written:,} tokens of each "
        "answer; in line: a step without halves that take turns"
    )
    table.caption_justify = "left"
    return table


def _cells(one: Point) -> tuple[str, ...]:
    share = digits(100 * one.parts[one.bound] / one.step)
    return (
        f"{one.users:,}",
        duration(one.step),
        digits(one.per_user),
        count(one.per_gpu),
        count(one.with_prompts),
        duration(one.in_line),
        duration(one.light),
        f"{one.bound}, {share} %",
    )


def _contexts(found: Serving) -> Table:
    heads = ("context", "users", "because", "prompt takes", "tok/s/GPU", "by its ranges")
    table = headed("At most", *heads, "moved most by", left=(2, 6))
    for at in found.curve.contexts:
        if at.points:
            table.add_row(*_largest(at, found.curve.groups, found.reach[at.context]))
        else:
            table.add_row(f"{at.context:,}", "0", limit(at))
    room = found.curve.room
    table.caption = f"{gibibytes(max(0.0, room.cache))} of every GPU are left for the cache"
    table.caption_justify = "left"
    return table


def _largest(at: AtContext, groups: int, reach: Reach) -> tuple[str, ...]:
    last = at.points[-1]
    return (
        f"{at.context:,}",
        f"{at.most * groups:,}",
        limit(at),
        duration(at.prefill),
        count(last.per_gpu),
        f"{count(last.per_gpu * reach.low)} to {count(last.per_gpu * reach.high)}",
        "\n".join(reach.drivers),
    )


def _heads(found: Serving) -> Table:
    title = f"{found.heads} and {2 * found.heads} heads at 131,072 tokens"
    table = headed(title, "", str(found.heads), str(2 * found.heads), "change")
    for one in found.doubled:
        table.add_row(one.name, shown(one, one.own), shown(one, one.twice), percent(one))
    return table
