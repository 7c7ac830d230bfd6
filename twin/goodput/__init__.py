"""Goodput: the share of its time in which a run makes progress, in spite of failures.

Rates of components add up to interruptions of the job (`rates`), the plan says what a checkpoint
holds (`saving`), formulas say how often to save (`interval`) and what is left of the time
(`closed`), and a simulation with seeds says it again, with its spread and with spares that run out
(`monte_carlo`). `goodput` puts them together."""

from twin.goodput.closed import LOSSES, Goodput, Loss
from twin.goodput.estimate import expected_goodput, goodput

__all__ = ["LOSSES", "Goodput", "Loss", "expected_goodput", "goodput"]
