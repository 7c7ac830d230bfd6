"""How much slower a kernel runs while communication holds SMs and moves data beside it.

What SMs bound takes as much longer as there are fewer of them; what memory bounds does not, since
the rest still saturates it. On top, everything loses a share to traffic through L2 and memory, and
to the clock that falls with the power drawn. One share for all kernels is the simplest law that the
training trace of DeepSeek-V3 allows: beside DeepEP's 20 of 132 SMs its FP8 products reach 0.78
(dense; gradients of the experts' larger weights) to 0.81 (grouped) of what they reach alone, of
which the SMs explain 0.85; docs/kernels.md has the table. It breaks where
communication nears the memory's bandwidth, and for kernels whose blocks do not fit the remaining
SMs evenly.
"""

from __future__ import annotations


def slowdown(sm_share: float, held: int, sms: int, contention: float) -> float:
    """How many times as long a kernel takes while `held` of `sms` SMs are taken: `sm_share` of its
    time alone is bound by SMs; `contention` is the share of speed lost beyond them. 1 where nothing
    is held."""
    if held == 0:
        return 1.0
    left = 1.0 - held / sms
    return (sm_share / left + 1.0 - sm_share) / (1.0 - contention)
