"""What the host takes to issue a step (`host`).

On a CPU host and device are one thread: the items of the reference's own stack
(`reference.measure.host`), all timed together. On a GPU the host runs ahead, and its stack is the
planner's: one call of the framework tells how fast a thread of this CPU is.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import torch
from torch import nn

from reference.measure import clock
from reference.measure.catalog import ITEM, STACK
from reference.measure.clock import Call, Timing
from reference.measure.host.items import ROUNDS, WARM, items
from reference.measure.points import BF16, Setting, Skip, TimedCase
from twin.loading import load_part

QUICK: Final = (5, 1)
"""Rounds of a quick look, and before the first that counts."""
AGAIN: Final = (40, 4)
"""The same where cases run again and again."""
WIDTH: Final = 8
"""Sides of the linear layer, whose kernel is over long before the next is issued."""


def host_cases(setting: Setting) -> list[TimedCase | Skip]:
    """A linear layer on a GPU, else a case for each item of the stack."""
    if setting.cuda:
        return [TimedCase("linear", {"width": WIDTH}, BF16, 0.0, 0.0, 1, _linear)]
    host = load_part("software", STACK).spec.host
    assert host is not None, "the stack of a CPU has a host"
    made: dict[str, float] = {}
    return [
        TimedCase(f"{ITEM}{name}", {}, BF16, 0.0, 0.0, 0, partial(_item, name, made))
        for name in host.items
    ]


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
