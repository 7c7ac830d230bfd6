"""What serving a model takes, as terminal tables."""

from __future__ import annotations

from rich.table import Table

from twin.cli.columns import headed
from twin.reports.inference import Beside, Convention, Inference
from twin.reports.numbers import flop, gibibytes, signed


def inference_tables(found: Inference) -> tuple[Table, ...]:
    """All contexts, then the ways to count at the longest."""
    return _contexts(found), _conventions(found.conventions, found.heads)


def _contexts(found: Inference) -> Table:
    title = f"{found.heads} heads, and what twice as many add"
    heads = ("tokens", "train, per token", "prefill, sequence", "decode, per token", "KV cache")
    table = headed(title, *heads, left=())
    for one in found.contexts:
        cells = [
            f"{flop(getattr(one.own, key))} {_change(one, key)}"
            for key in ("training_flop_per_token", "prefill_flop", "decode_flop_per_token")
        ]
        cache = f"{gibibytes(one.own.cache_bytes)} {_change(one, 'cache_bytes')}"
        table.add_row(f"{one.own.tokens:,}", *cells, cache)
    return table


def _conventions(found: tuple[Convention, ...], heads: int) -> Table:
    title = f"FLOP per token at long context, {heads} and {2 * heads} heads, by how one counts"
    table = headed(title, "counted", "tokens", str(heads), str(2 * heads), "more")
    for one in found:
        more = f"{signed(100 * one.change)} %"
        table.add_row(one.name, f"{one.tokens:,}", flop(one.own), flop(one.twice), more)
    return table


def _change(one: Beside, key: str) -> str:
    change = one.change(key)
    return f"{signed(100 * change)} %" if change else "+0 %"
