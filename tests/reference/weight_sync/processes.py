"""Senders and receivers as processes of their own, on a small model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from time import sleep
from typing import Any

import torch
from torch import Tensor

from reference.model.part import ModelPart
from reference.parallel.mesh import Mesh
from reference.weight_sync.controller import Controller, Peer, SyncJob, ask, forked, serve
from reference.weight_sync.layout import SyncSpec, WeightBucket, read_layout, seats
from reference.weight_sync.needs import in_memory
from reference.weight_sync.ranks import Receiver, Sender
from tests.reference.weight_sync.small import Neighbours, fill, model, parts_of, served_part
from twin.errors import UsageError


class Trainer(Sender):
    """A rank whose weights change when it is told."""

    def __init__(self, on: Mesh, rank: int) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.set_num_threads(1)
        self.parts = parts_of(model(), on, rank)
        super().__init__(lambda: self.parts)

    def train(self, seed: int) -> None:
        for part in self.parts:
            fill(part, seed)


class Watched(Receiver):
    """A rank that shows what it holds."""

    def held(self) -> dict[str, Any]:
        return {name: tensor.numpy() for name, tensor in self._tensors.items()}

    def whole(self) -> int | None:
        """The version that all of it has."""
        return self.version

    def spoil(self) -> None:
        """Give one of its tensors a shape that nothing fits."""
        tensors: Any = self._tensors
        tensors["final_norm.gain"] = torch.zeros(3)


def receiving(before_reload: Callable[[WeightBucket], None] | None = None) -> Peer:
    def work(connection: Connection) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.set_num_threads(1)
        hooks = (before_reload,) if before_reload else ()
        serve(Watched(in_memory(), "cpu", *hooks), connection)

    return forked("a receiver", work)


def dying(at: int) -> Callable[[WeightBucket], None]:
    """Ends the process, as kill -9 does, when so many buckets have come before."""
    came = []

    def hook(bucket: WeightBucket) -> None:
        if len(came) == at:
            os._exit(9)
        came.append(bucket)

    return hook


def slowly(bucket: WeightBucket) -> None:
    """A reload that takes longer than the next bucket needs to come."""
    del bucket
    sleep(0.015)


@contextmanager
def running(
    on: Mesh,
    layout: str,
    hooks: dict[int, Callable[[WeightBucket], None]] | None = None,
    **sync: Any,
) -> Iterator[Controller]:
    """A job on processes; a hook for the receiver of a number."""
    spec = SyncSpec.model_validate(
        {"bucket": "4kB", "free_memory": "1MB", "patience": "5s", **sync}
    )
    job = SyncJob(model(), torch.float32, on, read_layout(layout), spec)
    senders = [
        forked(f"sender {rank}", lambda pipe, rank=rank: serve(Trainer(on, rank), pipe))
        for rank in range(on.ranks)
    ]
    receivers = [receiving((hooks or {}).get(rank)) for rank in range(job.layout.ranks)]
    controller = Controller(job, senders, receivers)
    try:
        yield controller
    finally:
        controller.end()


def told(peer: Peer, word: str, *arguments: Any) -> Any:
    answer = ask({peer: (word, arguments)}, 20)[peer]
    assert not isinstance(answer, UsageError)
    return answer


def train(controller: Controller, seed: int) -> None:
    """Other weights, and their copies in host memory."""
    for peer in controller.senders:
        told(peer, "train", seed)
    controller.keep(version=seed)


def wanted(controller: Controller, number: int, seed: int) -> dict[str, Tensor]:
    """What a receiver has to hold."""
    layout = controller.job.layout
    held = seats(layout, model())[number].held
    neighbours: Any = Neighbours(layout.expert) if layout.expert > 1 else None
    place = held.experts.start // len(held.experts)
    part = ModelPart(held.first, held.end, held.embedding, held.head, place, neighbours)
    return served_part(model(), part, seed=seed)


def holds(controller: Controller, number: int, seed: int) -> bool:
    found = told(controller.receivers[number], "held")
    truth = wanted(controller, number, seed)
    return found.keys() == truth.keys() and all(
        torch.equal(torch.from_numpy(found[name]), tensor) for name, tensor in truth.items()
    )
