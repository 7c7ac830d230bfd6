"""Published times of collectives beside ours, as docs/collectives.md has them.

`python -m tests.collectives.rows` prints the tables of docs/collectives.md, and every row.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from twin.collectives.spread import spread
from twin.evidence.validate.answer import not_predicted
from twin.evidence.validate.collectives import points as points_of
from twin.evidence.validate.exchanges import EFA, TOP_K, MeasuredTransfer
from twin.evidence.validate.suite import read_suite
from twin.network.placement import Placement

OUTSIDE = {
    name: reason for reason, names in not_predicted()["collectives"].items() for name in names
}
"""Rows that are not priced, and why."""


def points() -> Iterator[tuple[str, MeasuredTransfer]]:
    """Every priced number, with its row."""
    for row in read_suite():
        if row.category == "collective" and row.id not in OUTSIDE:
            yield from ((row.id, point) for point in points_of(row))


def copies() -> str:
    """The table of docs/collectives.md of how far a token of Kimi K2 spreads, and how many copies
    plain all-to-all sends to other nodes."""
    lines: list[str] = []
    for ranks in (8, 16, 32, 64, 128):
        placed = Placement(ranks, 8)
        found = spread(384, TOP_K, placed)
        counts = (
            found.nodes,
            found.nodes * (1 - 1 / placed.nodes),
            found.ranks,
            TOP_K * (1 - 8 / ranks),
        )
        lines.append(f"| {ranks} | " + " | ".join(f"{one:.2f}" for one in counts) + " |")
    return "\n".join(lines)


def table() -> str:
    """The table of docs/collectives.md: by family, how many numbers, median and worst error."""
    families: dict[str, list[tuple[str, MeasuredTransfer]]] = {}
    for row, point in points():
        families.setdefault(point.family, []).append((row, point))
    counted = [pair for name, own in families.items() if name != EFA for pair in own]
    rows = [_line(name, own) for name, own in sorted(families.items())]
    head = "| family | numbers | median error | worst |\n|---|---|---|---|"
    return "\n".join([head, *rows, _line("**all but EFA**", counted)])


def _line(name: str, own: list[tuple[str, MeasuredTransfer]]) -> str:
    row, worst = max(own, key=lambda pair: abs(pair[1].error))
    middle = median(abs(point.error) for _, point in own)
    where = f"{worst.error:+.0%} {row}, {worst.what}"
    return f"| {name} | {len(own)} | `{middle:.1%}` | `{where}` |".replace("%", " %")


if __name__ == "__main__":
    for row, point in points():
        times = f"{point.measured * 1e6:10.1f} us, ours {point.ours * 1e6:10.1f}"
        print(f"{point.family}: {row} {point.what}: {times}, {point.error:+.1%}")
    print(table())
