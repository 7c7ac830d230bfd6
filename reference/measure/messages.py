"""What a message costs the processor: `python -m reference.cluster --nodes 2 --rate 500Mbps --pin
-- reference.measure.messages --output FOLDER`, then `python -m reference.measure --output FOLDER`.

gloo's threads have the core of the rank that computes. They wake for every few frames that arrive,
so a slow link costs more of it than a fast one: 256 KiB cost a receiver 1.9 ms over 100 Mbps, and
0.5 ms over 1 Gbps (AMD EPYC family 26, 2026-11-29). A point is the mean of both sides at one rate.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from reference.machine import inspect
from reference.measure import clock
from reference.measure.points import MESSAGE, MeasuredPoint, open_folder, write_group

SIZE: Final = 1 << 18
"""Bytes between two stages of a small model."""
ROW: Final = 20
SAMPLES: Final = 7
"""Rows, of which the first connects ranks."""


def main() -> None:
    """Both ranks time their own processor; the first one writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--name")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    seconds = [_row() for _ in range(SAMPLES)][1:]
    if dist.get_rank() == 0:
        machine = inspect(torch.device("cpu"), options.name)
        open_folder(options.output, machine)
        shape = {"bytes": SIZE, "ranks": dist.get_world_size()}
        timing = clock.summary(seconds, ROW)
        point = MeasuredPoint("messages", MESSAGE, shape, "uint8", 0.0, float(SIZE), 1, timing)
        facts = {"rate": {"link": os.environ.get("CLUSTER_RATE", "")}}
        write_group(options.output, "messages", machine, facts, ([point], []))
    dist.barrier()
    dist.destroy_process_group()


def _row() -> float:
    """Processor time of a message, the mean of sender and receiver."""
    x_X = torch.zeros(SIZE, dtype=torch.uint8)
    dist.barrier()
    began = time.process_time()
    for _ in range(ROW):
        if dist.get_rank():
            dist.send(x_X, 0)
        else:
            dist.recv(x_X, 1)
    own = torch.tensor([time.process_time() - began], dtype=torch.float64)
    dist.all_reduce(own)
    return own.item() / 2 / ROW


if __name__ == "__main__":
    main()
