"""What the run costs."""

from __future__ import annotations

from pydantic import Field

from twin.spec.base import Dollars, Spec


class CostSpec(Spec):
    """Prices in US dollars; no conversion between currencies happens."""

    gpu_hour: Dollars = Field(description="price of one GPU for one hour")
