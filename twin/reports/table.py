"""A table as plain data: the command line prints it, the app shows it, an export writes it.

Numbers as people read them: three significant digits, always with the unit. For words and
tables, never for JSON.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from twin.spec.kpis import Unit
from twin.units import Dimension, format_quantity

IN_BRACKETS: Final = "in brackets: 80 % interval"
"""The caption of tables with ranged figures."""
_WIDTH = 24
"""Characters of a full bar."""


@dataclass(slots=True)
class Table:
    """A title, column heads, rows of cells and a caption. Columns in `left` stand to the left, all
    others to the right; a table without heads has rows that name themselves."""

    title: str
    heads: tuple[str, ...] = ()
    left: frozenset[int] = frozenset((0,))
    rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    rules: set[int] = field(default_factory=set[int])
    """Indices of rows above which a section ends."""
    dim: set[int] = field(default_factory=set[int])
    """Indices of rows that matter less."""
    caption: str = ""

    def add_row(self, *cells: object, dim: bool = False) -> None:
        """Append a row; `dim` where it matters less."""
        self.dim.update([len(self.rows)] if dim else ())
        self.rows.append(tuple(str(cell) for cell in cells))

    def add_section(self) -> None:
        """End a section: the next row begins another one."""
        self.rules.add(len(self.rows))

    def records(self) -> list[dict[str, str]]:
        """The rows by column head; heads that are empty or repeated get a number."""
        width = max((len(row) for row in self.rows), default=len(self.heads))
        heads = [*self.heads, *[""] * (width - len(self.heads))]
        names = [
            name if name and heads.index(name) == at else f"{name} {at + 1}".strip()
            for at, name in enumerate(heads)
        ]
        return [dict(zip(names, row, strict=False)) for row in self.rows]


@dataclass(frozen=True, slots=True)
class Notes:
    """Paragraphs under a title: warnings, expectations."""

    title: str
    lines: tuple[str, ...]


Block: TypeAlias = Table | Notes
"""What an answer consists of besides its sentences."""


def headed(title: str, *heads: str, left: Collection[int] = (0,)) -> Table:
    """An empty table with column heads."""
    return Table(title, heads, frozenset(left))


def headless(title: str, *sides: str) -> Table:
    """An empty table without heads; a column whose side is not `right` stands to the left."""
    return Table(title, (), frozenset(at for at, side in enumerate(sides) if side != "right"))


def bar(share: float, width: int = _WIDTH) -> str:
    """A bar of `share` (0 to 1) of the width, to an eighth of a character; above zero it shows."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, part = divmod(max(eighths, 1) if share > 0 else 0, 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[part].strip()


def percent(share: float) -> str:
    """A share as a percentage with one decimal, so that a column of them adds up by eye."""
    return f"{100 * share:.1f} %"


def warning_notes(warnings: Iterable[Any], title: str = "Warnings") -> list[Notes]:
    """Warnings, each with its code; nothing where there are none."""
    lines = tuple(f"{warning.code}: {warning.message}" for warning in warnings)
    return [Notes(title, lines)] if lines else []


def lookup(rows: Mapping[str, object], title: str, side: str = "right") -> Table:
    """A table of names and values, which stand to the right or the `left`."""
    table = headless(title, "left", side)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


_COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, ""))
"""Prefixes of counts as prose writes them; `B` is billions."""
_SI = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
"""Prefixes of units."""


def changed(delta: float, relative: float | None, unit: Unit) -> str:
    """A change in words: of shares in points, of all else in percent of what it was."""
    if unit == "%":
        return f"{signed(100 * delta)} points"
    return "from zero" if relative is None else f"{signed(100 * relative)} %"


def signed(value: float) -> str:
    """Three digits with their sign."""
    return f"{'-' if value < 0 else '+'}{digits(abs(value))}"


_QUANTITIES: Final[Mapping[Unit, Dimension]] = {
    "bytes/s": "bytes_per_s",
    "kWh": "kwh",
    "W": "watts",
}


def show(value: float | None, unit: Unit, places: int = 3) -> str:  # noqa: PLR0911  one per unit
    """The value with its unit: `show(18.13, "s")` is `18.1 s`, `show(2**36, "bytes")` is `64 GiB`;
    None is `unknown`. `places` are significant digits."""
    if value is None:
        return "unknown"
    match unit:
        case "bytes":
            return gibibytes(value, places)
        case "bytes/s" | "kWh" | "W":
            return format_quantity(value, _QUANTITIES[unit], digits=places)
        case "s":
            return duration(value, places)
        case "%":
            return f"{digits(100 * value, places)} %"
        case "USD" | "tok/s" | "tok/s/GPU" | "GPU-h" | "t":
            return f"{count(value, places)} {unit}"
        case "/d":
            return f"{digits(value, places)} a day"
        case "TFLOP/s" | "d":
            return f"{digits(value, places)} {unit}"


def ranged(value: float | None, span: tuple[float, float] | None, unit: Unit) -> str:
    """The value with its 80 % interval: `48.0 d (33 to 70)`; without one the value alone.

    >>> ranged(48.0, (33.0, 70.0), "d"), ranged(100.0, (80.0, 150.0), "s"), ranged(1.0, None, "d")
    ('48.0 d (33 to 70)', '100 s (80 to 150)', '1.00 d')
    """
    ends = interval_words(value, span, unit)
    return f"{show(value, unit)} ({ends})" if ends else show(value, unit)


def interval_words(value: float | None, span: tuple[float, float] | None, unit: Unit) -> str:
    """The 80 % interval of a value without the unit that both have: `33 to 70`. Empty where there
    is none, or it has no width. Two digits, or three where two do not tell the ends apart.

    >>> interval_words(18.1, (17.9, 18.4), "s"), interval_words(2.0, None, "s")
    ('17.9 to 18.4', '')
    >>> interval_words(131.0, (110.0, 168.0), "s")  # around 2.18 min, in its unit
    '1.8 to 2.8'
    >>> interval_words(0.728, (0.0, 4.9), "s")  # far beyond 728 ms
    '0 to 4.9 s'
    """
    if value is None or span is None or span[0] == span[1]:
        return ""
    own = _unit_of(show(value, unit))
    of = " s" if own == " ms" and span[1] >= 1 else own
    size = _SECONDS.get(of) if unit == "s" else None

    def shown(one: float, places: int) -> str:
        return show(one, unit, places) if size is None else digits(one / size, places) + of

    told = [[shown(one, places) for one in (value, *span)] for places in (2, 3)]
    _, *ends = next((texts for texts in told if len(set(texts)) == len(texts)), told[-1])
    if all(_unit_of(end) == of for end in ends):
        ends = [end.removesuffix(of) for end in ends]
    return f"{ends[0].strip()} to {ends[1].strip()}{of if of != own else ''}"


_SECONDS: Final = {" ms": 1e-3, " s": 1.0, " min": 60.0, " h": 3600.0, " d": 86400.0}


def _unit_of(shown: str) -> str:
    """What stands behind the number: ` d`, ` a day`; a prefix of a count belongs to its number."""
    return shown[shown.index(" ") :] if " " in shown else ""


def digits(value: float, places: int = 3) -> str:
    """Three significant digits, or `places`; larger whole parts are rounded to them, and beyond a
    quadrillion written with an exponent: `digits(1234.5)` is `1,230`.

    >>> digits(18.13), digits(0.05), digits(1234.5), digits(18.13, 2)
    ('18.1', '0.0500', '1,230', '18')
    """
    if value == 0:
        return "0"
    rounded = float(f"{value:.{places}g}")
    if not 1e-4 <= abs(rounded) < 1e15:
        return f"{rounded:.{places - 1}e}"
    after = places - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(after, 0)}f}"


def duration(seconds: float, places: int = 3) -> str:
    """Seconds up to two minutes stay seconds, so that steps compare at sight; the rest takes a
    larger or smaller unit."""
    if 1 <= abs(seconds) < 120:
        return f"{digits(seconds, places)} s"
    return format_quantity(seconds, "seconds", digits=places)


def duration_beside(seconds: float, other: float) -> str:
    """A duration that is read beside another one: in seconds where that is.

    >>> duration(131), duration_beside(131, 109), duration_beside(131, 200)
    ('2.18 min', '131 s', '2.18 min')
    """
    if 1 <= other < 120 and 1 <= abs(seconds) < 1000:
        return f"{digits(seconds)} s"
    return duration(seconds)


def gibibytes(value: float, places: int = 3) -> str:
    """Bytes with a binary prefix."""
    return format_quantity(value, "bytes", digits=places)


def decimal_bytes(value: float) -> str:
    """Bytes with a decimal prefix, as papers write them: `6.16 TB`."""
    number, prefix = _prefixed(value, _SI)
    return f"{number} {prefix}B"


def rate(value: float | None) -> str:
    """Bytes per second with a decimal prefix; None is `unknown`."""
    return "unknown" if value is None else format_quantity(value, "bytes_per_s", digits=3)


def signed_duration(seconds: float) -> str:
    """A change in seconds with its sign; none is `no change`."""
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}" if seconds else "no change"


def signed_bytes(value: float) -> str:
    """A change in bytes with its sign; none is `no change`."""
    return f"{'-' if value < 0 else '+'}{gibibytes(abs(value))}" if value else "no change"


def count(value: float, places: int = 3) -> str:
    """A count with a prefix: `2.83M`, `15.5T`, `914`."""
    number, prefix = _prefixed(value, _COUNTS, places)
    return f"{number}{prefix}"


def flop(value: float) -> str:
    """FLOP with the prefix at the unit: `flop(1.38e19)` is `13.8 EFLOP`."""
    number, prefix = _prefixed(value, _SI)
    return f"{number} {prefix}FLOP"


def _prefixed(
    value: float, prefixes: tuple[tuple[float, str], ...], places: int = 3
) -> tuple[str, str]:
    """The number before a prefix, and the prefix. The larger one is taken once rounding reaches
    it."""
    size = abs(float(f"{value:.{places}g}"))
    factor, prefix = next(((f, n) for f, n in prefixes if size >= f), prefixes[-1])
    return digits(value / factor, places), prefix


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
