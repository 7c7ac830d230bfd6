"""An honest cluster on one machine: nodes that are network namespaces, links of a declared rate,
and ranks that are started and ended together.

`spec` says what it is, `namespaces` lays it out, `launch` runs a program on it (`python -m
reference.cluster`), `timing` measures what collectives cost over its links, `patterns` are
those it measures.
"""
