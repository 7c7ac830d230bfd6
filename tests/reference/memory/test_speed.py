"""What the mechanism costs beside what it makes run again. Times are minima of repeats, of the
processor's time for this process: on a CPU with one thread, what a step costs."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from reference.memory.stash import Stash
from tests.reference.memory.small import EXACT, KIMI_K2, model, plain_step, step, tokens
from twin.spec.memory import MemorySpec

pytestmark = pytest.mark.benchmark
NOTHING = MemorySpec()


def fastest(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Processor seconds of each, taken in turns."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            start = process_time()
            run()
            best[name] = min(best[name], process_time() - start)
    return best


def test_a_tensor_costs_little_more_than_hooks_that_do_nothing():
    """Packed, counted and given back; torch's calls of Python for it are there either way."""
    x = torch.randn(8, requires_grad=True)
    count = 1000

    def chain() -> torch.Tensor:
        y = x
        for _ in range(count):
            y = y.sin()
        return y.sum()

    def idle() -> None:
        with saved_tensors_hooks(lambda one: one.detach(), lambda one: one):
            loss = chain()
        loss.backward()

    def hooked() -> None:
        with Stash(NOTHING, measure=True):
            loss = chain()
        loss.backward()

    best = fastest({"plain": lambda: chain().backward(), "idle": idle, "hooked": hooked}, 40)
    each = {name: seconds / count * 1e6 for name, seconds in best.items()}
    print("\nus per operation, forward and backward:", each)
    assert each["hooked"] < 2.5 * each["idle"]


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
    assert best["nothing"] < 1.1 * best["plain"]
    assert best["hooks"] < 1.2 * best["plain"]
