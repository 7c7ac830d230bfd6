"""What the host takes to issue a step (`host`).

On a CPU host and device are one thread: the items of the reference's own stack
(`reference.measure.host`), all timed together. On a GPU the host runs ahead: calls of eager PyTorch
(`reference.measure.host.eager`), and one linear layer that tells how fast a thread of this CPU is.
A full collection of Python's garbage is a point, too, with the objects that it walks.
"""

from __future__ import annotations

import gc
from functools import partial
from typing import Final

import torch
from torch import nn

from reference.measure import clock
from reference.measure.clock import Call, Timing
from reference.measure.host import eager
from reference.measure.host.items import ROUNDS, WARM, items
from reference.measure.points import BF16, ITEM, STACK, Make, Setting, Skip, TimedCase
from twin.loading import load_part

QUICK: Final = (5, 1)
"""Rounds of a quick look, and before the first that counts."""
AGAIN: Final = (40, 4)
"""The same where cases run again and again."""
TURN: Final = "turn:"
"""Before the name of a call that is timed in turns with all others."""
CPU: Final = torch.device("cpu")
WIDTH: Final = 8
"""Sides of the linear layer, whose kernel is over long before the next is issued."""


def host_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Calls of eager PyTorch on a GPU, else a case for each item of the stack."""
    if setting.cuda:
        linear = TimedCase("linear", {"width": WIDTH}, BF16, 0.0, 0.0, 1, _linear)
        calls = [_issued(name, make, times) for name, (make, times) in eager.CALLS.items()]
        return [linear, *calls, *_turns(), _collection()]
    host = load_part("software", STACK).spec.host
    assert host is not None, "the stack of a CPU has a host"
    made: dict[str, float] = {}
    return [
        TimedCase(f"{ITEM}{name}", {}, BF16, 0.0, 0.0, 0, partial(_item, name, made))
        for name in host.items
    ]


def _issued(name: str, make: Make, times: int) -> TimedCase:
    def run(setting: Setting) -> Timing:
        call = make(setting.device)
        if name in eager.WAITS:
            return clock.measure([call], setting.device, setting.effort, with_host=True)
        return clock.host_seconds(call, setting.device, setting.effort)

    return TimedCase(f"{ITEM}{name}", {"times": times}, BF16, 0.0, 0.0, times, run)


def _turns() -> list[TimedCase]:
    """A case for each call of the same rounds, all of which are timed with the first."""
    made: dict[str, list[float]] = {}

    def run(setting: Setting, name: str) -> Timing:
        if not made:
            made.update(eager.in_turns(setting.device))
        return clock.summary(made[name], 1)

    return [
        TimedCase(f"{TURN}{name}", {"times": times}, BF16, 0.0, 0.0, times, partial(run, name=name))
        for name, (_, times) in eager.CALLS.items()
        if name not in eager.WAITS and times < max(eager.TENSORS)
    ]


def _collection() -> TimedCase:
    """Its shape counts the objects alive when cases are listed."""

    def run(setting: Setting) -> Timing:
        return clock.measure([eager.collect(setting.device)], CPU, setting.effort)

    return TimedCase(f"{ITEM}collect", {"objects": len(gc.get_objects())}, BF16, 0.0, 0.0, 0, run)


def _item(name: str, made: dict[str, float], setting: Setting) -> Timing:
    """An item of the same rounds as the others, which are timed anew once it has been told."""
    if name not in made:
        made |= items(*(QUICK if setting.quick else AGAIN if setting.keep else (ROUNDS, WARM)))
    return clock.summary([made.pop(name)], 1)


def _linear(setting: Setting) -> Timing:
    return clock.host_seconds(_layer(setting.device), setting.device, setting.effort)


def _layer(device: torch.device) -> Call:
    layer = nn.Linear(WIDTH, WIDTH, device=device, dtype=torch.bfloat16)
    x_TD = torch.ones(WIDTH, WIDTH, device=device, dtype=torch.bfloat16)
    return lambda: layer(x_TD)
