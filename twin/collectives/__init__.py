"""What collectives cost: bytes through the ports of one rank and serial hops, one module per
algorithm. `traffic` prices one algorithm, `chosen` a run's choice of one, `deepep` the expert
all-to-all that sends one copy per node."""

from twin.collectives.base import START_HOPS, Algorithm, Choice, Traffic
from twin.collectives.deepep import deepep
from twin.collectives.point_to_point import point_to_point
from twin.collectives.spread import Spread, spread
from twin.collectives.traffic import alone, chosen, serial, traffic

__all__ = [
    "START_HOPS",
    "Algorithm",
    "Choice",
    "Spread",
    "Traffic",
    "alone",
    "chosen",
    "deepep",
    "point_to_point",
    "serial",
    "spread",
    "traffic",
]
