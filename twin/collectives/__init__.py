"""What collectives cost: bytes through the ports of one rank and serial hops, one module per
algorithm. `traffic` picks the algorithm."""

from twin.collectives.traffic import START_HOPS, Traffic, traffic

__all__ = ["START_HOPS", "Traffic", "traffic"]
