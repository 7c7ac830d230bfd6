"""Cost of a run: days lost by cause, dollars and watts by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twin.figures.charts import name_axis
from twin.figures.palette import Meaning, Theme, swatch
from twin.figures.plotly import Axis, Bars, Drawing, Frame, Picture, Row, draw
from twin.goodput import LOSSES, Goodput
from twin.goodput.types import Loss
from twin.reports.numbers import digits, show
from twin.spec.kpis import Unit

_MEANING: Final[dict[Loss, Meaning]] = {
    "rework": "recompute",
    "saving": "offload",
    "restart": "tensor",
    "waiting": "bubble",
    "stragglers": "contention",
}
_NAMES: Final[dict[Loss, str]] = {
    "rework": "Recomputed after failures",
    "saving": "Saves",
    "restart": "Restarts",
    "waiting": "Waiting for a repair",
    "stragglers": "Slow nodes",
}
_PARTS: Final[dict[str, tuple[str, Meaning]]] = {
    "rent": ("Rented GPUs", "compute"),
    "nodes": ("Nodes", "backward"),
    "network": ("Network", "pipeline"),
    "facility": ("Facility", "other"),
    "operations": ("Operations", "recompute"),
    "energy": ("Energy", "tensor"),
    "gpus": ("GPUs", "compute"),
    "site": ("Cooling and losses", "bubble"),
}
"""Parts of cost and power in words, and their looks."""
_SIMULATED: Final = "simulated"
_CLOSED: Final = "closed form"


def days_lost(found: Goodput, theme: Theme) -> Picture:
    """Days without progress by cause, in simulation, with what 80 % of the runs lost, and in the
    closed form."""
    wall = found.wall_ns / 86400e9
    progress = found.useful_ns / 86400e9
    rows: dict[Loss, tuple[float, float]] = {
        name: (found.losses_ns[name] / 86400e9, found.expected_losses[name] * wall)
        for name in LOSSES
        if found.losses_ns[name] or found.expected_losses[name]
    }
    lost = wall - progress
    drawn: list[Drawing] = []
    for at, (name, days) in enumerate(rows.items()):
        last = at == len(rows) - 1
        low, high = (_lost(progress, share) for share in reversed(found.interval))
        drawn.append(
            Bars(
                _NAMES[name],
                swatch(_MEANING[name], theme),
                x=list(days),
                y=[_SIMULATED, _CLOSED],
                hover=f"{LOSSES[name]}: %{{x:.3g}} days",
                reach=([max(0.0, lost - low), 0.0], [max(0.0, high - lost), 0.0]) if last else None,
            )
        )
    frame = Frame(
        x=Axis("Days without progress"),
        y=name_axis((_SIMULATED, _CLOSED)),
        height=170,
        theme=theme,
    )
    share = 100 * found.fraction
    return Picture(
        title=f"Of {digits(wall)} days {digits(lost)} are lost: {share:.1f} % of the time makes "
        "progress" + (f"; most goes to {_worst(found)}" if rows else ""),
        caption=f"Mean of {found.seeds} simulated runs; the whisker spans the total loss of 80 % "
        "of them. The closed form is a check by formulas, with unlimited spares.",
        figure=draw(drawn, frame),
        table=tuple(_loss_row(name, days, wall) for name, days in rows.items()),
    )


def _lost(progress: float, share: float) -> float:
    """Days lost beside so many of progress, where that is a share of the time."""
    return progress / share - progress if share else 0.0


def _worst(found: Goodput) -> str:
    worst = max(found.losses_ns, key=lambda name: found.losses_ns[name])
    return _NAMES[worst].lower()


def _loss_row(name: Loss, days: tuple[float, float], wall: float) -> Row:
    return {
        "Lost to": LOSSES[name],
        "Simulated": f"{digits(days[0])} d",
        "Share": f"{100 * days[0] / wall:.2f} %",
        "Closed form": f"{digits(days[1])} d",
    }


def amounts(
    rows: Mapping[str, Mapping[str, float]], unit: Unit, what: str, theme: Theme
) -> Picture:
    """Amounts by part, a stacked bar for each row; `what` names the amount."""
    names = list(dict.fromkeys(name for own in rows.values() for name in own))
    shown = [name for name in names if any(own.get(name) for own in rows.values())]
    drawn: list[Drawing] = [
        Bars(
            _PARTS[name][0],
            swatch(_PARTS[name][1], theme),
            x=[own.get(name, 0.0) for own in rows.values()],
            y=list(rows),
            text=[show(own.get(name, 0.0), unit) for own in rows.values()],
            hover=f"{_PARTS[name][0]}, %{{y}}: %{{text}}",
        )
        for name in shown
    ]
    frame = Frame(
        x=Axis(f"{what}, {unit}"),
        y=name_axis(rows),
        height=70 + 50 * len(rows),
        theme=theme,
    )
    totals = {row: sum(own.values()) for row, own in rows.items()}
    said = ", ".join(f"{show(total, unit)} {row}" for row, total in totals.items())
    return Picture(
        title=f"{what}: {said}",
        caption=f"{what} by part; the parts of a bar sum to the figure above.",
        figure=draw(drawn, frame),
        table=tuple(
            {"Part": _PARTS[name][0]}
            | {row.capitalize(): show(own.get(name, 0.0), unit) for row, own in rows.items()}
            for name in shown
        ),
    )
