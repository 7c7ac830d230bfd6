"""An honest cluster on one machine: nodes that are network namespaces, links of a declared rate,
and ranks that are started and ended together.

`namespaces` describes it and lays it out, `launch` runs a program on it (`python -m
reference.cluster`), `timing` measures what messages and collectives cost over its links.
"""
