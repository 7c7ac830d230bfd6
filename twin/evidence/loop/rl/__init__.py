"""The closed loop of reinforcement learning: an iteration is predicted, then the reference runs
such iterations in one process of this machine, and phases are put side by side.

`trainer` writes what the reference reads, `outcome` compares, `run` does both.
"""

from twin.evidence.loop.rl.outcome import LoopOutcome
from twin.evidence.loop.rl.run import predict_then_run

__all__ = ["LoopOutcome", "predict_then_run"]
