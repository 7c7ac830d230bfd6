"""How the steps of templates fall in time when nothing disturbs them, and two passes in one order.

A pair of passes, a forward and the backward of another micro-batch, is one list of steps: streams
are in order, so while one pass waits for its all-to-all, the other's blocks fill the compute stream
(DeepSeek-V3, arXiv:2412.19437, section 3.2.1, figure 4: dispatch and combine of one under attention
and experts of the other). The order is that of the code of a trainer, block by block in turn, and
does not depend on times; so a faster operation never makes a pair longer. Choosing the order by
times instead gains 0.4 % of Kimi K2's step on 2,048 H800. Lengths here are those at full speed;
what communication takes from kernels beside it is the player's to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from twin.engine.host import weave, without_host
from twin.engine.program import COMPUTE, EXPERT, OverlapLoss, Step, Template

FORWARD, BACKWARD = 0, 1
"""The two lanes of a pair."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two passes in one order."""

    steps: Template
    lanes: tuple[int, ...]
    """The pass of each step: `FORWARD` or `BACKWARD`."""


def length_ns(template: Template, capacity: Mapping[str, float]) -> float:
    """Nanoseconds from the first start to the last end, links to itself."""
    return max(_stream_ends(template, capacity).values(), default=0.0)


def _stream_ends(template: Template, capacity: Mapping[str, float]) -> dict[int, float]:
    """When each stream's last step ends (ns), links to itself."""
    ends: list[float] = []
    free: dict[int, float] = {}
    for step in template:
        start = max((ends[i] for i in step.after), default=0.0)
        end = max(start, free.get(step.stream, 0.0)) + step.alone_ns(capacity)
        ends.append(end)
        free[step.stream] = end
    return free


def paired(
    forward: Template,
    backward: Template,
    capacity: Mapping[str, float],
    sync_ns: float,
    beside: OverlapLoss = OverlapLoss(),  # noqa: B008 (frozen)
) -> Pair:
    """A forward and a backward of another micro-batch, block by block, the backward first: a block
    is the segments up to the next exchange, and the exchanges after them."""
    lanes = (without_host(forward), without_host(backward))
    places: tuple[dict[int, int], dict[int, int]] = ({}, {})
    steps: list[Step] = []
    owners: list[int] = []
    for lane, position in in_turn(*lanes):
        step = lanes[lane][position]
        places[lane][position] = len(steps)
        after = tuple(places[lane][i] for i in step.after)
        steps.append(replace(together(step, beside), after=after))
        owners.append(lane)
    woven, at = weave(tuple(steps), capacity, sync_ns)
    whose = [owners[-1]] * len(woven)
    for place, lane in zip(at, owners, strict=True):
        whose[place] = lane
    return Pair(woven, tuple(whose))


def in_turn(forward: Template, backward: Template) -> Iterator[tuple[int, int]]:
    """The steps of a pair in their order: the lane, and the position in its pass; those of a pass
    stay in order."""
    for turn in zip_longest(_blocks(backward), _blocks(forward), fillvalue=range(0)):
        for lane, block in zip((BACKWARD, FORWARD), turn, strict=True):
            for position in block:
                yield lane, position


def together(step: Step, beside: OverlapLoss) -> Step:
    """The step as it goes beside the kernels of another pass."""
    if step.stream != EXPERT or step.traffic is None or step.asks == "end":
        return step
    wait = step.duration_ns + beside.wait_ns
    return replace(step, duration_ns=wait, slowed=beside.loss > 0)


def _blocks(template: Template) -> list[range]:
    """Positions of each block. Segments that differ in name only (recomputation, then backward)
    have nothing to hide between them; what the host waits for hides under nothing."""
    kernels = [step.stream == COMPUTE or step.asks == "end" for step in template]
    starts = [i for i in range(1, len(template)) if kernels[i] and not kernels[i - 1]]
    return [range(*ends) for ends in pairwise((0, *starts, len(template)))]
