"""Clusters whose GPUs differ: which of them wait, on a map of nodes."""

from __future__ import annotations

from math import ceil, nan
from typing import Final

from twin.figures.drawing import Axis, Cells, Dots, Frame
from twin.figures.palette import ALARM, Theme
from twin.figures.plotly import Picture, draw
from twin.reports.table import duration, signed_duration
from twin.reports.uneven import Uneven

_NODES: Final = 64
"""Nodes side by side; further ones are below them."""
_ROW: Final = 12
"""Pixels of a GPU."""


def waiting_map(found: Uneven, gpus: int, name: str, theme: Theme) -> Picture:
    """Every GPU of a cluster of nodes of so many GPUs, coloured by how much longer its compute
    stream waits than with equal ranks; GPUs that do less are framed."""
    nodes = ceil(len(found.longer_ns) / gpus)
    across = min(nodes, _NODES)
    rows = ceil(nodes / across) * gpus

    def spot(gpu: int) -> tuple[int, int]:
        node, place = divmod(gpu, gpus)
        return node % across, node // across * gpus + place

    values = [[nan] * across for _ in range(rows)]
    words = [[""] * across for _ in range(rows)]
    for gpu, longer_ns in enumerate(found.longer_ns):
        column, row = spot(gpu)
        values[row][column] = longer_ns / 1e6
        waits = f"{duration(abs(longer_ns) / 1e9)} {'longer' if longer_ns >= 0 else 'less'}"
        words[row][column] = f"GPU {gpu:,} (node {gpu // gpus:,}) waits {waits}"
    cells = Cells(
        x=[*range(across)],
        y=[*range(rows)],
        values=values,
        text=(),
        hover="%{customdata}",
        unit="ms longer",
        least=min(found.longer_ns) / 1e6,
        detail=words,
    )
    spots = [spot(gpu) for gpu in found.less]
    framed = Dots(
        "do less",
        [float(x) for x, _ in spots],
        [float(y) for _, y in spots],
        "rgba(0,0,0,0)",
        ALARM[theme],
        "square",
        _ROW - 2,
        "",
        outline=2,
    )
    starts = [*range(0, rows, gpus)]
    ticks = tuple((float(at), f"Node {at // gpus * across:,}") for at in starts)
    frame = Frame(
        x=Axis("Nodes, each a column of its GPUs", grid=False),
        y=Axis(ticks=ticks, span=(-0.5, rows - 0.5), reverse=True, grid=False),
        height=110 + _ROW * rows,
        theme=theme,
        legend=False,
    )
    drawn = [cells, framed] if len(found.less) < len(found.longer_ns) else [cells]
    told = [f"{one.relation} {signed_duration(one.longer_ns / 1e9)}" for one in found.kinds]
    return Picture(
        title=f"{name}: {found.words.rstrip('.')}\nWaiting: {'; '.join(told)}",
        caption="Each cell is a GPU. Its colour says how much longer it waits in a step, for "
        f"transfers and for other ranks, than with {found.equal}. Those that do less are framed.",
        figure=draw(drawn, frame),
        table=tuple(
            {
                "Ranks": one.relation,
                "GPUs": f"{one.ranks:,}",
                "Busy": duration(one.busy_ns / 1e9),
                "Waiting for transfers": duration(one.exposed_ns / 1e9),
                "Waiting for others": duration(one.bubble_ns / 1e9),
                f"Longer than with {found.equal}": signed_duration(one.longer_ns / 1e9),
            }
            for one in found.kinds
        ),
    )
