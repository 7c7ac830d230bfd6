"""Sweeps: many variants of a scenario answered on the cores of this machine or a cluster, so that a
killed sweep goes on where it was, and a worker that dies costs only its point.

Nothing is imported here: a worker that needs only `twin.explore.sweep.lanes` starts at once.
"""
