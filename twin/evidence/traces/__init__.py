"""Profiler traces of real runs, from whatever trainer wrote them."""
