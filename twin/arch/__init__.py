"""The arithmetic: what each layer of a model computes, moves, keeps and weighs, on one rank.

`layers` gives the ops of the whole model, `parameters` exact counts, `flop_per_token` the model
FLOP of MFU. This is the only place that counts any of these.
"""
