"""Sweeps: many variants of a scenario, answered on the cores of this machine or a cluster. A killed
sweep continues where it was, and a worker that dies costs only its point."""
