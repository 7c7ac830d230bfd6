"""Optimizers, as what a step costs: bytes of state per weight, work on the local shard, and extra
traffic.

Each module of this package holds one choice; `twin.spec.axis` finds it by its `kind`.
"""

from twin.optimizers.base import Optimizer, OptimizerStep

__all__ = ["Optimizer", "OptimizerStep"]
