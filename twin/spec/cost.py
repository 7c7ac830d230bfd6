"""What the run costs."""

from __future__ import annotations

from twin.spec.base import Dollars, Spec


class CostSpec(Spec):
    """Prices; no conversion between currencies happens."""

    gpu_hour: Dollars
