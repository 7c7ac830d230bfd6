"""What a run costs and draws, by part, as terminal tables."""

from __future__ import annotations

from typing import Final

from rich.table import Table

from twin.cli.columns import headless
from twin.reports.cost import Bill
from twin.reports.numbers import show

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
        table = headless("What it costs", "left", "right")
        for name, dollars in bill.cost.items():
            if dollars:
                table.add_row(_WORDS[name], show(dollars, "USD"))
        found.append(table)
    if bill.watts is not None and bill.energy_kwh is not None:
        table = headless("Power per GPU, energy of the run", "left", "right", "right")
        for name, watts in bill.watts.parts.items():
            kwh = bill.energy_kwh * watts / bill.watts.total if watts else 0.0
            table.add_row(_WORDS[name], show(watts, "W"), show(kwh, "kWh"))
        table.add_section()
        table.add_row("at the meter", show(bill.watts.total, "W"), show(bill.energy_kwh, "kWh"))
        found.append(table)
    return found
