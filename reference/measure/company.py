"""Other cores at work: ranks of one machine share its memory, its last cache and its clock.

A process on each other core repeats the functions of a layer (`reference.measure.host.items`), as
the other ranks of a run do meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any, Final

import torch

from reference.config import load_run
from reference.measure.host.functions import Layers
from reference.measure.host.items import in_place
from reference.trainer.settings import settings

PLACE: Final = (4, 256)
"""Sequences and tokens of the preset's layers: tens of megabytes in a round."""


@contextmanager
def company() -> Iterator[None]:
    """Keep this process on one core, and the others at work."""
    before = os.sched_getaffinity(0)
    own, *others = sorted(before)
    start: Any = get_context("fork").Process
    processes: list[BaseProcess] = [
        start(target=_work, args=(core, os.getpid()), daemon=True) for core in others
    ]
    os.sched_setaffinity(0, {own})
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()
        os.sched_setaffinity(0, before)


def _work(core: int, parent: int) -> None:
    """The life of another core; it ends with its parent."""
    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    run = load_run("nano", ["model.layers=2", "train.threads=1", "train.precision=bf16"])
    with settings(run.train):
        layers = Layers(run, *PLACE)
        while os.getppid() == parent:
            in_place(layers, rounds=1, warm=0)
