"""The closed loop: a layout is predicted, then the reference trainer runs it on this machine, and
the two are put side by side.

`layouts` are ordinary scenarios whose nodes are network namespaces, `trainer` writes from one of
them what the trainer reads, `start` runs it, `outcome` compares, and `score` sums up over all. The
trainer is another program: it is never imported, and what it says is read from its files.
"""

from twin.evidence.loop.layouts import Layout, Mode, find
from twin.evidence.loop.outcome import Outcome
from twin.evidence.loop.run import Asked, predict_then_run
from twin.evidence.loop.score import Score, score

__all__ = ["Asked", "Layout", "Mode", "Outcome", "Score", "find", "predict_then_run", "score"]
