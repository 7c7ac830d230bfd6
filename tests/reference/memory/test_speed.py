"""What the mechanism costs beside what it makes run again. Times are minima of repeats."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import pytest
import torch

from reference.memory.stash import Stash
from tests.reference.memory.small import EXACT, KIMI_K2, model, plain_step, step, tokens
from twin.spec.memory import MemorySpec

pytestmark = pytest.mark.benchmark
NOTHING = MemorySpec()


def fastest(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds of each, taken in turns."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            start = perf_counter()
            run()
            best[name] = min(best[name], perf_counter() - start)
    return best


def test_a_tensor_costs_a_few_microseconds():
    """Packed, counted and given back, beyond what torch takes without hooks."""
    x = torch.randn(8, requires_grad=True)
    count = 2000

    def chain() -> torch.Tensor:
        y = x
        for _ in range(count):
            y = y.sin()
        return y.sum()

    def hooked() -> None:
        with Stash(NOTHING, measure=True):
            loss = chain()
        loss.backward()

    best = fastest({"plain": lambda: chain().backward(), "hooked": hooked}, 15)
    each = (best["hooked"] - best["plain"]) / count * 1e6
    print(f"\n{each:.1f} us per saved tensor")
    assert each < 20


def test_step_times_by_policy():
    """A policy that does nothing costs nothing; the others what they run again or copy."""
    nano = model("kimi-k2-nano", torch.bfloat16)
    batch = tokens(nano, 4, 128)
    runs: dict[str, Callable[[], object]] = {"plain": lambda: plain_step(nano, batch)}
    for name, policy in (EXACT | {"kimi k2": KIMI_K2}).items():
        runs[name] = lambda policy=policy: step(nano, batch, policy)
    runs["hooks"] = lambda: step(nano, batch, NOTHING, measure=True)
    best = fastest(runs, 10)
    for name, seconds in best.items():
        print(f"\n{name:18} {seconds * 1e3:6.1f} ms  {seconds / best['plain']:.3f}", end="")
    assert best["nothing"] < 1.05 * best["plain"]
    assert best["hooks"] < 1.10 * best["plain"]
