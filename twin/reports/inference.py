"""What a model asks of whoever serves it, at contexts from short to long, and what twice the heads
would: FLOP of training, prefill and decode, and bytes of the cache.

Kimi K2's report (arXiv:2507.20534, section 2.3) turns down 128 heads because they cost 83 % more
inference FLOP at 128k. It does not say of what; `conventions` has the ways to count, and one of
them gives that number.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from twin.arch.count import flop_per_token
from twin.arch.inference import Context, Form, context, decode_flop, prefill_flop, with_heads
from twin.reports.table import Table, digits, flop, gibibytes, headed, signed
from twin.spec.model import LatentAttention, ModelSpec

CONTEXTS: Final = (4096, 8192, 16_384, 32_768, 65_536, 131_072)
"""Tokens, from what Kimi K2 was trained on to what it serves (section 2.5)."""
LONG: Final = 131_072
REPORTED: Final = 128_000
"""128k in steps of a thousand, with which the report's figure agrees."""


@dataclass(frozen=True, slots=True)
class Beside:
    """One context, for the model and for twice its heads."""

    own: Context
    twice: Context

    def change(self, key: str) -> float:
        """How much more of a figure twice the heads take, as a share."""
        return getattr(self.twice, key) / getattr(self.own, key) - 1

    def to_json(self) -> dict[str, Any]:
        """Both, in plain data."""
        return {"own": asdict(self.own), "twice_the_heads": asdict(self.twice)}


@dataclass(frozen=True, slots=True)
class Convention:
    """A way to count FLOP per token at long context, and what twice the heads add under it."""

    name: str
    tokens: int
    own: float
    twice: float

    @property
    def change(self) -> float:
        """How much more twice the heads take, as a share."""
        return self.twice / self.own - 1

    def to_json(self) -> dict[str, Any]:
        """All fields and the change."""
        return asdict(self) | {"change": self.change}


@dataclass(frozen=True, slots=True)
class Inference:
    """What serving a model takes."""

    heads: int
    latent: bool
    """Whether all heads share one latent, so that the cache does not depend on their number."""
    contexts: tuple[Beside, ...]
    conventions: tuple[Convention, ...]

    def to_json(self) -> dict[str, Any]:
        """The study in plain data."""
        return {
            "heads": self.heads,
            "cache_depends_on_heads": not self.latent,
            "contexts": [one.to_json() for one in self.contexts],
            "conventions": [one.to_json() for one in self.conventions],
        }


def inference(model: ModelSpec) -> Inference:
    """FLOP and cache of a model at all contexts, beside twice the heads."""
    twice = with_heads(model, 2 * model.attention.heads)
    rows = tuple(Beside(context(model, n), context(twice, n)) for n in CONTEXTS)
    latent = isinstance(model.attention, LatentAttention)
    return Inference(model.attention.heads, latent, rows, conventions(model, twice))


def conventions(model: ModelSpec, twice: ModelSpec) -> tuple[Convention, ...]:
    """The ways to count inference FLOP per token at 128k."""
    whole = "one token that sees the whole context, keys and values whole"
    found = [_convention(whole, LONG, model, twice, "whole")]
    if isinstance(model.attention, LatentAttention):
        narrow = f"{whole}, without the rotary part of keys"
        absorbed = "one token that sees the whole context, keys and values absorbed (decode)"
        found = [
            _convention(narrow, REPORTED, model, twice, "whole_without_rotary"),
            *found,
            _convention(absorbed, LONG, model, twice, "absorbed"),
        ]
    mean = "mean token of a prompt, which sees half of it (prefill)"
    own, other = (prefill_flop(one, LONG) / LONG for one in (model, twice))
    trained = "training, forward and backward"
    pair = (flop_per_token(model, LONG), flop_per_token(twice, LONG))
    return (*found, Convention(mean, LONG, own, other), Convention(trained, LONG, *pair))


def _convention(
    name: str, tokens: int, model: ModelSpec, twice: ModelSpec, form: Form
) -> Convention:
    own, other = (decode_flop(one, tokens, form) for one in (model, twice))
    return Convention(name, tokens, own, other)


def sentence(found: Inference) -> str:
    """The longest context in words."""
    last = found.contexts[-1]
    keeps = "whatever the number of heads" if found.latent else "for its key and value heads"
    changes = [one.change for one in found.conventions]
    low, high = digits(100 * min(changes)), digits(100 * max(changes))
    return (
        f"At {last.own.tokens:,} tokens a sequence keeps {gibibytes(last.own.cache_bytes)} of keys "
        f"and values, {keeps}; one further token takes {flop(last.own.decode_flop_per_token)}. "
        f"Twice the {found.heads} heads cost {low} % to {high} % more FLOP per token there, by how "
        "one counts."
    )


def inference_tables(found: Inference) -> tuple[Table, ...]:
    """FLOP and cache by context, then by counting convention at the longest."""
    return _context_table(found), _convention_table(found.conventions, found.heads)


def _context_table(found: Inference) -> Table:
    title = f"{found.heads} heads, and what twice as many add"
    heads = ("tokens", "train, per token", "prefill, sequence", "decode, per token", "KV cache")
    table = headed(title, *heads, left=())
    for row in found.contexts:
        cells = [
            f"{flop(getattr(row.own, key))} {_change(row, key)}"
            for key in ("training_flop_per_token", "prefill_flop", "decode_flop_per_token")
        ]
        cache = f"{gibibytes(row.own.cache_bytes)} {_change(row, 'cache_bytes')}"
        table.add_row(f"{row.own.tokens:,}", *cells, cache)
    return table


def _convention_table(found: tuple[Convention, ...], heads: int) -> Table:
    title = f"FLOP per token at long context, {heads} and {2 * heads} heads, by how one counts"
    table = headed(title, "counted", "tokens", str(heads), str(2 * heads), "more")
    for row in found:
        more = f"{signed(100 * row.change)} %"
        table.add_row(row.name, f"{row.tokens:,}", flop(row.own), flop(row.twice), more)
    return table


def _change(row: Beside, key: str) -> str:
    change = row.change(key)
    return f"{signed(100 * change)} %" if change else "+0 %"
