"""What a run costs and draws, by part, as terminal tables."""

from __future__ import annotations

from typing import Final

from rich.table import Table

from twin.report.cost import Bill
from twin.report.numbers import show

_WORDS: Final = {
    "rent": "rented GPUs",
    "nodes": "nodes",
    "network": "network",
    "facility": "facility",
    "operations": "operations",
    "energy": "energy",
    "gpus": "GPUs",
    "site": "cooling and losses",
}
"""The parts in words."""


def cost_tables(bill: Bill) -> list[Table]:
    """Dollars by part where there are several, then watts and energy by part where known."""
    found: list[Table] = []
    if bill.cost is not None and len(bill.cost) > 1:
        table = _table("What it costs", 1)
        for name, dollars in bill.cost.items():
            if dollars:
                table.add_row(_WORDS[name], show(dollars, "USD"))
        found.append(table)
    if bill.watts is not None and bill.energy_kwh is not None:
        table = _table("Power per GPU, energy of the run", 2)
        for name, watts in bill.watts.parts.items():
            kwh = bill.energy_kwh * watts / bill.watts.total if watts else 0.0
            table.add_row(_WORDS[name], show(watts, "W"), show(kwh, "kWh"))
        table.add_section()
        table.add_row("at the meter", show(bill.watts.total, "W"), show(bill.energy_kwh, "kWh"))
        found.append(table)
    return found


def _table(title: str, numbers: int) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        show_header=False,
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column()
    for _ in range(numbers):
        table.add_column(justify="right")
    return table
