"""How full the fullest GPU of an engine is: what requests make of its experts.

Requests do not use experts evenly, and balance in training does not make them. TensorRT-LLM counts
rows per GPU and layer of DeepSeek-R1, iteration by iteration (NVIDIA/TensorRT-LLM,
examples/wide_ep/ep_load_balancer/README.md). In the mean of the layers the fullest of 32 GPUs, with
8 experts each, has 2.56 times the rows of the mean; of 36 GPUs with 8 each, 32 of them copies that
a balancer placed, 1.115.

For other engines: experts' rows are as if drawn one by one, so that those of a GPU spread by the
root of their number less, log-normally (what DeepEP's pull request 393 finds to fit DeepSeek-V3's
rows per GPU best), and the fullest is the usual largest of so many. Both spreads below are what
the two measurements above say of one expert. The same law gives 2.3 where the standard deviation
that is printed beside 2.56 stands for the spread, and 1.4 for 8 GPUs with 32 experts each, where
balance gains an engine of DeepSeek-V4 Pro on 8 GPUs 17 to 34 % of prefill (ROCm/ATOM, pull request
1210).
"""

from __future__ import annotations

from math import exp, log1p, sqrt
from statistics import NormalDist
from typing import Final

AS_THEY_COME: Final = 1.577
"""Standard deviation over mean of one expert's rows, where nothing balances them."""
BALANCED: Final = 0.155
"""The same where copies of popular experts were placed for balance."""


def fullest(slots: int, gpus: int, copies: int) -> float:
    """Rows of the fullest GPU over those of the mean, of so many experts, `copies` among them."""
    if gpus == 1:
        return 1.0
    each = BALANCED if copies else AS_THEY_COME
    spread = sqrt(log1p(each**2 * gpus / slots))
    largest = NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))  # Blom 1958
    return exp(spread * (largest - spread / 2))
