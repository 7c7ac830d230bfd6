"""Seconds of the items of a step: functions forward and backward, loops over experts, calls.

All functions of a layer run in a shuffled order, as often as a layer calls them, after as much
memory has streamed through the caches as a layer's experts do in a step. So each finds its code and
objects as cold as a step does. A loop over experts finds its code warm, and its weights and sums of
gradients in memory: since the last micro-batch those of the other layers have passed. Before it
more streams than the last cache holds. Means leave out nothing: a step is the sum of its calls, the
disturbed ones among them. No step is timed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import fmean, median
from time import thread_time
from typing import Any, Final

import torch
from torch import Tensor

from reference.measure.clock import last_level_cache
from reference.measure.host.functions import (
    BLOCK,
    BLOCKS,
    LOOPS,
    TOKENS,
    Layers,
    Timed,
    loop,
    narrow_run,
)
from reference.trainer.settings import settings

ROUNDS: Final = 200
WARM: Final = 20
"""Rounds before the first that counts."""
LAYER: Final = 8 << 20
"""Bytes that pass through the caches before a round, OURS: more than a core's own, and about what
the experts of a small model's layer read and write."""
ALL: Final = 2 * last_level_cache()
"""Bytes after which no cache holds what it held before."""
FEW: Final = 4
MANY: Final = 64
"""Experts of the loops that are timed: their difference says what an expert takes."""
MOVED: Final = {"": 2, "_backward": 10}
"""Bytes of a weight that a loop moves, which a profile counts and no item does: reads it; reads it
again, and adds to its fp32 gradient."""
FRAMES: Final = 200
"""Calls of Python that are timed together, each of a function of its own."""
NODES: Final = (2, 42)
"""Lengths of the chains whose difference says what a node of autograd takes."""


@dataclass(slots=True)
class Samples:
    """Seconds by item."""

    seconds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def add(self, name: str, call: Callable[[], Any]) -> Any:
        """Time a call and return what it gives; other processes on the core take none of it."""
        begun = thread_time()
        given = call()
        self.seconds.setdefault(name, []).append(thread_time() - begun)
        return given

    def __getitem__(self, name: str) -> float:
        """The mean, less what the clock takes."""
        return fmean(self.seconds[name]) - CLOCK


def _clock() -> float:
    times = [thread_time() for _ in range(2000)]
    return median(after - before for before, after in pairwise(times))


CLOCK: Final = _clock()
"""Seconds between two readings."""


def items(rounds: int = ROUNDS, warm: int = WARM) -> dict[str, float]:
    """Seconds of each item, over so many rounds behind `warm` ones. Functions have two: `NAME`
    forward, `NAME_backward` for gradients."""
    run = narrow_run()
    with settings(run.train):
        narrow = Layers(run)
        short = {name: Timed(loop(name, FEW)) for name in LOOPS}
        found = _functions(narrow.functions() | narrow.blocks() | short, rounds, warm)
        for way in MOVED:
            few, whole, more = (found.pop(f"{length}{way}") for length in BLOCKS)
            # Beside what as many queries take within a block.
            block = more - whole - (whole - few) * TOKENS / (BLOCK - TOKENS)
            found |= {f"attention{way}": few - block, f"attention_block{way}": block}
        each, byte = _loops(rounds // 2, warm)
        beside = {
            name + way: each[name + way] - moved * inputs * outputs * byte
            for name, (inputs, outputs) in LOOPS.items()
            for way, moved in MOVED.items()
        }
        for way in MOVED:
            around = [found.pop(name + way) - FEW * beside[name + way] for name in LOOPS]
            found[f"experts{way}"] = fmean(around)
        calls, parameter = _calls(rounds // 5, warm), _update(narrow, rounds // 5, warm)
        return {**found, **beside, **calls, "parameter": parameter}


def in_place(layers: Layers, rounds: int = ROUNDS // 10, warm: int = 3) -> dict[str, float]:
    """Median seconds of each function at a model's widths, forward and backward, among all others:
    they leave caches to each other as in a step. The engine's start is part of a backward."""
    core = {"attention": Timed(layers.attention(*layers.place))}
    samples = _turns(layers.functions() | core, rounds, warm, lambda: None)
    return {name: median(seconds) - CLOCK for name, seconds in samples.seconds.items()}


def _functions(timed: Mapping[str, Timed], rounds: int, warm: int) -> dict[str, float]:
    """Each function forward and backward. A backward of one node stands for the engine's start."""
    one = torch.randn(8, requires_grad=True)
    timed = {**timed, "engine": Timed(lambda: one.view(8))}
    samples = _turns(timed, rounds, warm, _stream())
    engine = samples["engine_backward"]
    names = [name for name in timed if name != "engine"]
    backward = {f"{name}_backward": samples[f"{name}_backward"] - engine for name in names}
    return {name: samples[name] for name in names} | backward | {"engine": engine}


def _turns(
    timed: Mapping[str, Timed], rounds: int, warm: int, stream: Callable[[], Any]
) -> Samples:
    """All functions forward, then backward, as often as a layer calls them, in a shuffled order;
    `stream` passes before each."""
    samples = Samples()
    order = [name for name, each in timed.items() for _ in range(each.times)]
    for turn in range(rounds + warm):
        found = samples if turn >= warm else Samples()
        random.shuffle(order)
        stream()
        made = [(name, found.add(name, timed[name].call)) for name in order]
        todo = [(name, *_ends(out)) for name, out in made]
        random.shuffle(todo)
        del made
        stream()
        while todo:
            name, outs, grads = todo.pop()
            found.add(f"{name}_backward", partial(torch.autograd.backward, outs, grads))
            del outs, grads
    return samples


def _ends(out: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Where a backward begins, and with which gradients."""
    outs = out if isinstance(out, tuple) else (out,)
    ends = tuple(one for one in outs if one.grad_fn is not None)
    return ends, tuple(torch.ones_like(one) for one in ends)


def _loops(rounds: int, warm: int) -> tuple[dict[str, float], float]:
    """What an expert takes of each loop, forward and backward, and a byte that is streamed."""
    samples, stream = Samples(), _stream(ALL)
    calls = {(name, experts): loop(name, experts) for name in LOOPS for experts in (FEW, MANY)}
    order = list(calls)
    for turn in range(rounds + warm):
        found = samples if turn >= warm else Samples()
        random.shuffle(order)
        for name, experts in order:
            stream()
            found.add("stream", stream)
            ends, grads = _ends(found.add(f"{name}*{experts}", calls[name, experts]))
            stream()
            back = partial(torch.autograd.backward, ends, grads)
            found.add(f"{name}_backward*{experts}", back)
    each = {
        name: (samples[f"{name}*{MANY}"] - samples[f"{name}*{FEW}"]) / (MANY - FEW)
        for one in LOOPS
        for name in (one, f"{one}_backward")
    }
    return each, samples["stream"] / (2 * ALL)


def _calls(rounds: int, warm: int) -> dict[str, float]:
    """Calls of torch and Python that a micro-batch makes beside its functions."""
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    frames = [_frame(number) for number in range(FRAMES)]
    calls: dict[str, list[Callable[[], Any]]] = {
        "view": [lambda: x.view(64), lambda: x[1:5], lambda: x.unsqueeze(0), x.detach],
        "fill": [lambda: torch.zeros_like(x), lambda: torch.arange(8)],
        "pointwise": [lambda: x * y, lambda: x + y, lambda: x.mul_(1.0), x.neg],
        "frames": [lambda: [call(x, y) for call in frames]],
    }
    short, long = NODES
    calls |= {f"node*{length}": [_chain(length)] for length in NODES}
    samples, stream = Samples(), _stream()
    order = [(name, call) for name, some in calls.items() for call in some]
    for turn in range(rounds + warm):
        found = samples if turn >= warm else Samples()
        random.shuffle(order)
        stream()
        for name, call in order:
            found.add(name, call)
    node = (samples[f"node*{long}"] - samples[f"node*{short}"]) / (long - short)
    own = {name: samples[name] for name in ("view", "fill", "pointwise")}
    return {**own, "frame": samples["frames"] / FRAMES, "node": node}


def _frame(number: int) -> Callable[[Any, Any], Any]:
    """A small function of Python with code of its own."""
    space: dict[str, Any] = {}
    exec(f"def call(x, y):\n    return (x, y, {number})", space)
    return space["call"]


def _chain(length: int) -> Callable[[], Any]:
    """A backward through so many views."""
    first = torch.randn(8, requires_grad=True)
    last = first
    for _ in range(length):
        last = last.view(8)
    grad = torch.ones(8)
    return lambda: torch.autograd.grad(last, first, grad, retain_graph=True)


def _update(narrow: Layers, rounds: int, warm: int) -> float:
    """What a step does once, for each parameter."""
    samples, stream = Samples(), _stream(ALL)
    for turn in range(rounds + warm):
        narrow.give_gradients()
        stream()
        (samples if turn >= warm else Samples()).add("update", narrow.update)
    return samples["update"] / narrow.parameters


def _stream(size: int = LAYER) -> Callable[[], Any]:
    """Pass memory through the caches."""
    memory = torch.zeros(size // 4)
    return lambda: memory.add_(1.0)
