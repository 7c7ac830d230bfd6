"""The arithmetic: what each layer of a model computes, moves, keeps and weighs, on one rank.

`layers` gives the ops of the whole model, `parameters` exact counts, `flop_per_token` the model
FLOP of MFU. This is the only place that counts any of these.
"""

from twin.arch.count import Parameters, adapter_parameters, flop_per_token, parameters
from twin.arch.ops import Exchange, Item, Layer, Matrices, Op, Shape, Weights, Work
from twin.arch.recompute import ALTERNATE, ATTENTION_CORE, RECOMPUTED, again, wholly
from twin.arch.stack import layers, sequence_parts, uneven

__all__ = [
    "ALTERNATE",
    "ATTENTION_CORE",
    "RECOMPUTED",
    "Exchange",
    "Item",
    "Layer",
    "Matrices",
    "Op",
    "Parameters",
    "Shape",
    "Weights",
    "Work",
    "adapter_parameters",
    "again",
    "flop_per_token",
    "layers",
    "parameters",
    "sequence_parts",
    "uneven",
    "wholly",
]
