"""Optimizers, as what a step costs: bytes of state per weight, work on the local shard, and extra
traffic.

Each module of this package holds one choice, but for `base` and `orthogonal`, which hold what
several share; `twin.spec.axis` finds a choice by its `kind`.
"""
