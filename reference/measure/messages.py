"""Processor time of a message on a core that computes: `python -m reference.cluster --nodes 2
--rate 500Mbps --pin -- reference.measure.messages --output FOLDER`, then `python -m
reference.measure --output FOLDER`. Each call adds the points of its rate.

The threads of gloo, and the kernel's part of the network, have the core of the rank that computes.
A link hands over frames one by one, or what comes within a timer of it, and each wakes a thread: a
slow link costs more than a fast one. So both ranks multiply matrices while messages pass, and what
their processes take beyond the products alone is the messages'. A point is the mean of both sides.
An exchange of a few bytes between ranks that come from products tells how long they wait for each
other and for their threads, in the mean: exchanges of ranks that have nothing else to do begin in a
tenth of that.

While nothing computes the kernel's part is nobody's: a sender at 100 Mbps then seems to take 0.4 ms
for 256 KiB, of 2.9 ms (AMD EPYC family 26, 2026-11-29).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Final

import torch
import torch.distributed as dist

from reference.machine import inspect
from reference.measure import clock
from reference.measure.points import (
    EXCHANGE,
    MESSAGE,
    MeasuredPoint,
    open_folder,
    read_points,
    write_group,
)
from reference.parallel.groups import PostedMessages
from twin import units

SIZES: Final = (1 << 16, 1 << 18)
"""Bytes between two stages of a small model."""
WIDTH: Final = 512
"""Of the matrices."""
SECONDS: Final = 0.25
"""Of products in a row."""
FILLED: Final = 0.7
"""Share of it in which messages pass."""
SAMPLES: Final = 4
"""Rows, of which the first connects ranks."""
EXCHANGED: Final = 1 << 14
"""Bytes for the other rank: little beside what begins an exchange."""
STRETCH: Final = 5e-3
"""Seconds of products between two exchanges, OURS: as a small model's layer takes."""
EXCHANGES: Final = 100
UNHELD: Final = 2e9
"""Bytes per second of links that are not held to a rate, roughly."""


def main() -> None:
    """Both ranks time their own processor; the first one writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--name")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    told = os.environ.get("CLUSTER_RATE", "")
    rate = units.parse(told, "bytes_per_s") if told else UNHELD
    found = [*(_point(size, rate) for size in SIZES), _exchange(rate)]
    if dist.get_rank() == 0:
        machine = inspect(torch.device("cpu"), options.name)
        open_folder(options.output, machine)
        before = [p for p in read_points(options.output) if p.op in (MESSAGE, EXCHANGE)]
        others = [p for p in before if p.shape["rate"] != found[0].shape["rate"]]
        write_group(options.output, "messages", machine, {}, ([*others, *found], ()))
    dist.barrier()
    dist.destroy_process_group()


def _point(size: int, rate: float) -> MeasuredPoint:
    x_X = torch.zeros(size, dtype=torch.uint8)
    a_WW = torch.randn(WIDTH, WIDTH, dtype=torch.bfloat16)
    _multiply(a_WW, 10)
    products = int(_mean(SECONDS * 10 / _ran(lambda: _multiply(a_WW, 10))))
    messages = max(1, int(FILLED * SECONDS * rate / size))

    def row() -> float:
        dist.barrier()
        thread = Thread(target=_pass, args=(x_X, messages))

        def both() -> None:
            thread.start()
            _multiply(a_WW, products)
            thread.join()

        alone = _ran(lambda: _multiply(a_WW, products))
        dist.barrier()
        beside = _ran(both)
        again = _ran(lambda: _multiply(a_WW, products))
        return _mean((beside - (alone + again) / 2) / messages)

    seconds = [row() for _ in range(SAMPLES)][1:]
    shape = {"bytes": size, "ranks": dist.get_world_size(), "rate": round(rate)}
    timing = clock.summary(seconds, messages)
    return MeasuredPoint("messages", MESSAGE, shape, "uint8", 0.0, float(size), 1, timing)


def _exchange(rate: float) -> MeasuredPoint:
    """Seconds from the end of a rank's products until all has come, the mean of both; the bytes'
    own time is left out."""
    parts_2X = torch.zeros(2, EXCHANGED, dtype=torch.uint8)
    into_2X, a_WW = torch.empty_like(parts_2X), torch.randn(WIDTH, WIDTH, dtype=torch.bfloat16)
    products = max(1, int(_mean(STRETCH * 10 / _ran(lambda: _multiply(a_WW, 10)))))
    seconds: list[float] = []
    for _ in range(EXCHANGES):
        _multiply(a_WW, products)
        began = time.perf_counter()
        PostedMessages(into_2X.unbind(), parts_2X.unbind()).wait()
        seconds.append(time.perf_counter() - began - EXCHANGED / rate)
    both = [_mean(one) for one in seconds]
    shape = {"bytes": EXCHANGED, "ranks": dist.get_world_size(), "rate": round(rate)}
    timing = clock.summary(both[EXCHANGES // 10 :], 1)
    return MeasuredPoint("messages", EXCHANGE, shape, "uint8", 0.0, EXCHANGED, 1, timing)


def _multiply(a_WW: torch.Tensor, times: int) -> None:
    for _ in range(times):
        torch.mm(a_WW, a_WW)


def _pass(x_X: torch.Tensor, messages: int) -> None:
    """Messages from the second rank to the first, one after the other."""
    for _ in range(messages):
        if dist.get_rank():
            dist.send(x_X, 0)
        else:
            dist.recv(x_X, 1)


def _ran(call: Callable[[], object]) -> float:
    """Processor seconds of the process meanwhile."""
    began = time.process_time()
    call()
    return time.process_time() - began


def _mean(own: float) -> float:
    """Over ranks."""
    all_1 = torch.tensor([own], dtype=torch.float64)
    dist.all_reduce(all_1)
    return all_1.item() / dist.get_world_size()


if __name__ == "__main__":
    main()
