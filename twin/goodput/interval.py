"""The best time between two checkpoints, in closed form.

`blocked` is what one save takes from training, `mtbf` the mean time between failures of the whole
job; all are seconds. What a restart takes, and how long an asynchronous save needs until it counts,
do not move the optimum (`twin.goodput.closed`: they are factors of the whole).
"""

from __future__ import annotations

from math import sqrt


def young(blocked: float, mtbf: float) -> float:
    """Young's interval in seconds of work: sqrt(2 x blocked x mtbf) (Young 1974, A first order
    approximation to the optimum checkpoint interval, CACM 17(9)). Breaks where saves are not short
    beside the mean time between failures.

    >>> young(300, 86400)
    7200.0
    """
    return sqrt(2.0 * blocked * mtbf)


def daly_first_order(blocked: float, mtbf: float) -> float:
    """Daly's first-order interval in seconds of work: Young's, less the save (Daly 2006, A higher
    order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3)); no less than
    zero."""
    return max(young(blocked, mtbf) - blocked, 0.0)


def daly(blocked: float, mtbf: float) -> float:
    """Daly's interval in seconds of work, to higher order (his perturbation solution); the mean
    time between failures itself where a save takes twice as long.

    >>> round(daly(5, 24 * 60)), round(daly(5, 6 * 60)), round(daly(5, 15), 1)  # his figures 3 to 5
    (117, 57, 9.1)
    """
    if blocked >= 2.0 * mtbf:
        return mtbf
    ratio = blocked / (2.0 * mtbf)
    return young(blocked, mtbf) * (1.0 + sqrt(ratio) / 3.0 + ratio / 9.0) - blocked
