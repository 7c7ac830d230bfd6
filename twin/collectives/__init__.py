"""What collectives cost: bytes through the ports of one rank and serial hops, one module per
algorithm. `traffic` prices one algorithm, `chosen` a run's choice of one, `deepep` the expert
all-to-all that sends one copy per node."""
