"""A rank's share of the full set in host memory: what it sends from, and what a recovering receiver
reads over a socket, alone, while everyone else goes on. Pinned where the model is on a GPU, so that
copies to it run at the link's rate.

The share is one line of bytes, so that a bucket is one copy however many tensors it holds.

    request  {"secret": "...", "version": 3, "units": ["embedding.weight", ...]}, a line of JSON
    answer   for each a line {"bytes": n} and so many bytes, or {"error": {...}} and no more

The reader has to know the secret, a word that the owner makes; nothing is encrypted.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Lock, Thread
from typing import Any, Final

import torch
from torch import Tensor

from reference.weight_sync.buckets import WeightBucket, padded
from reference.weight_sync.needs import viewed
from reference.weight_sync.units import Unit
from twin.errors import Problem, UsageError


class HostCopies:
    """The share of one owner. `version` is None until all of it is of one version."""

    def __init__(self, units: Sequence[Unit], *, pinned: bool = False) -> None:
        self.units = {unit.name: unit for unit in units}
        self._places: dict[str, int] = {}
        size = 0
        for unit in units:
            self._places[unit.name] = size
            size += padded(unit)
        self.memory = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
        self.version: int | None = None
        self._held = Lock()

    @property
    def bytes(self) -> int:
        """Of its tensors, without gaps."""
        return sum(unit.bytes for unit in self.units.values())

    def gather(self, values: Mapping[str, Tensor], version: int) -> int:
        """Copy the owner's tensors out of the model; the bytes copied."""
        with self._held, torch.no_grad():
            self.version = None
            for name, unit in self.units.items():
                value = values[name]
                assert value.dtype == unit.dtype, f"{name} is {value.dtype}, not {unit.dtype}"
                self.tensor(name).copy_(value, non_blocking=True)
            if self.memory.is_pinned():
                torch.cuda.synchronize()
            self.version = version
        return self.bytes

    def tensor(self, name: str) -> Tensor:
        """One of its tensors, as a view."""
        return viewed(self.memory, self.units[name], self._places[name])

    def part(self, bucket: WeightBucket) -> Tensor:
        """The bytes of a bucket, as a view."""
        return self.memory[bucket.start : bucket.start + bucket.bytes]

    @contextmanager
    def reading(self, name: str, version: int) -> Iterator[Tensor]:
        """The bytes of a tensor, which stay as they are meanwhile. Raises UsageError TW625 where
        they are of another version by now."""
        with self._held:
            if name not in self.units or self.version != version:
                message = f"version {version} of `{name}` is not held here"
                fix = f"ask for version {self.version}"
                raise UsageError([Problem("TW625", "version", message, fix)])
            start = self._places[name]
            yield self.memory[start : start + self.units[name].bytes]


_LONGEST: Final = 1 << 26
"""Bytes of a line that is read: the names of Kimi K2's 139,644 tensors take a tenth."""
_STALLED: Final = 10.0
"""Seconds until a reader that takes nothing is left alone: new weights wait for what it reads."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an owner's host copies are read."""

    host: str
    port: int
    secret: str


class Library:
    """An owner's host copies, open to readers until the process ends."""

    def __init__(self, copies: HostCopies, host: str) -> None:
        secret = secrets.token_hex(16)

        class Reader(StreamRequestHandler):
            timeout = _STALLED

            def handle(self) -> None:
                line = self.rfile.readline(_LONGEST)
                try:
                    wanted = json.loads(line)
                    if not hmac.compare_digest(str(wanted["secret"]), secret):
                        return
                    for name in wanted["units"]:
                        self._tell(str(name), int(wanted["version"]))
                except UsageError as error:
                    self._line({"error": error.problems[0].as_dict()})
                except (ValueError, TypeError, KeyError, OSError):
                    return  # it asks nonsense, or reads no more

            def _tell(self, name: str, version: int) -> None:
                with copies.reading(name, version) as data:
                    self._line({"bytes": data.numel()})
                    self.connection.sendall(data.numpy().data)

            def _line(self, facts: dict[str, Any]) -> None:
                self.connection.sendall(json.dumps(facts).encode() + b"\n")

        self._server = ThreadingTCPServer((host, 0), Reader)
        self._server.daemon_threads = True
        self.address = Address(host, self._server.server_address[1], secret)
        serving = Thread(target=self._server.serve_forever, args=(0.05,), name="host copies")
        serving.daemon = True
        serving.start()

    def close(self) -> None:
        """Tell nobody any more."""
        self._server.shutdown()
        self._server.server_close()


def fetched(
    address: Address, units: Sequence[Unit], version: int, patience: float
) -> Iterator[tuple[Unit, Tensor]]:
    """Tensors of the full set out of an owner's host memory, one at a time, each valid until the
    next. Raises UsageError: TW625 where they are of another version, TW623 where nobody answers."""
    wanted = {"secret": address.secret, "version": version, "units": [unit.name for unit in units]}
    memory = torch.empty(max((unit.bytes for unit in units), default=0), dtype=torch.uint8)
    try:
        with socket.create_connection((address.host, address.port), patience) as link:
            link.sendall(json.dumps(wanted).encode() + b"\n")
            with link.makefile("rb") as came:
                for unit in units:
                    _read(came, memory[: unit.bytes])
                    yield unit, viewed(memory, unit, 0)
    except OSError as error:
        message = f"the host copies at {address.host}:{address.port} cannot be read: {error}"
        fix = "start anew from a checkpoint"
        raise UsageError([Problem("TW623", "", message, fix)]) from None


def _read(came: Any, into: Tensor) -> None:
    line = came.readline(_LONGEST)
    if not line:
        raise ConnectionError("it closed the connection")
    facts = json.loads(line)
    if "error" in facts:
        told = facts["error"]
        raise UsageError([Problem(told["code"], told["path"], told["message"], told["hint"])])
    assert facts["bytes"] == into.numel(), "both sides mean the same tensor"
    view, reached = into.numpy().data, 0
    while reached < len(view):
        count = came.readinto(view[reached:])
        if not count:
            raise ConnectionError("it closed the connection")
        reached += count
