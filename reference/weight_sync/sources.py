"""A rank's share of the full set in host memory: what it sends from, and what a recovering receiver
reads over a socket, alone, while everyone else goes on. Pinned where the model is on a GPU, so that
copies to it run at the link's rate.

The share is one line of bytes, so that a bucket is one copy however many tensors it holds.

    request  {"secret": "...", "version": 3, "units": ["embedding.weight", ...]}, a line of JSON
    answer   for each a line {"bytes": n} and so many bytes, or {"error": {...}} and no more

The reader has to know the secret, a word that the owner makes; nothing is encrypted.

A start: the owners read a checkpoint of the trainer together, each saved piece once, by one of
them, and have the full set in host memory then.

A piece is what one rank of the trainer saved of a tensor (`reference.checkpoint.piece`): its bytes
are read in one go, checked against the checksum in them, and copied to their place. The SHA-256
sums of a checkpoint are over whole files, which nobody reads here; sizes are checked.
"""

from __future__ import annotations

import hmac
import io
import json
import secrets
import socket
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Lock, Thread
from typing import Any, Final

import torch
from torch import Tensor

from reference import streams
from reference.checkpoint.folder import MANIFEST
from reference.weight_sync.layout import Unit, WeightBucket, padded
from reference.weight_sync.needs import viewed
from twin.errors import Problem, UsageError

_HOST: Final = torch.device("cpu")


class HostCopies:
    """The share of one owner. `version` is None until all of it is of one version."""

    def __init__(self, units: Sequence[Unit], device: torch.device = _HOST) -> None:
        """`device`: what they are copied from, and to."""
        self.units = {unit.name: unit for unit in units}
        self._places: dict[str, int] = {}
        size = 0
        for unit in units:
            self._places[unit.name] = size
            size += padded(unit)
        self._kind = streams.of(device)
        self.memory = self._kind.host(torch.Size([size]), torch.uint8, "cpu").zero_()
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
                self._kind.copy(self.tensor(name), value)
            for device in {values[name].device for name in self.units}:
                streams.current(device).synchronize()
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


_TENSORS: Final = "tensors"
_MODEL: Final = "model/"


@dataclass(frozen=True, slots=True)
class SavedPiece:
    """A piece of a tensor on disk: numbers `first` up to `end` of the whole, flattened."""

    ours: str
    first: int
    end: int
    file: str
    place: int
    bytes: int
    """In the file, with torch's own header."""

    def holds(self, unit: Unit) -> bool:
        """Whether a tensor of the full set lies in it."""
        start = _start(unit)
        size = torch.Size(unit.shape).numel()
        return unit.ours == self.ours and self.first <= start and start + size <= self.end


def saved(checkpoint: Path) -> tuple[SavedPiece, ...]:
    """All pieces of the model in a checkpoint. Raises UsageError TW626 where its files are not as
    its manifest says."""
    _check_sizes(checkpoint)
    from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: PLC0415  a second to load

    metadata = FileSystemReader(checkpoint / _TENSORS).read_metadata()
    places: Mapping[Any, Any] = metadata.storage_data
    found: list[SavedPiece] = []
    for index, place in places.items():
        if index.fqn.startswith(_MODEL):
            stored: Any = metadata.state_dict_metadata[index.fqn]
            (size,) = next(chunk.sizes for chunk in stored.chunks if chunk.offsets == index.offset)
            first = index.offset[0]
            own = index.fqn.removeprefix(_MODEL)
            where = place.relative_path, place.offset, place.length
            found.append(SavedPiece(own, first, first + size, *where))
    return tuple(sorted(found, key=lambda piece: (piece.file, piece.place)))


def dealt(
    pieces: Sequence[SavedPiece], units: Sequence[Unit], owners: int
) -> tuple[tuple[tuple[SavedPiece, ...], ...], dict[str, tuple[int, ...]]]:
    """The pieces that each owner reads, about as many bytes for each, and by tensor of the full set
    its owner: who reads it. Raises UsageError TW626 where a tensor is in no piece."""
    by_name: dict[str, list[tuple[int, SavedPiece]]] = {}
    own: list[list[SavedPiece]] = [[] for _ in range(owners)]
    filled = [0] * owners
    for piece in sorted(pieces, key=lambda each: -each.bytes):
        owner = filled.index(min(filled))
        filled[owner] += piece.bytes
        own[owner].append(piece)
        by_name.setdefault(piece.ours, []).append((owner, piece))
    found: dict[str, tuple[int, ...]] = {}
    for unit in units:
        holding = [owner for owner, piece in by_name.get(unit.ours, ()) if piece.holds(unit)]
        if not holding:
            message = f"`{unit.name}` is in no piece of the checkpoint"
            raise UsageError([Problem("TW626", "", message, "name a checkpoint of this model")])
        found[unit.name] = (holding[0],)
    return tuple(map(tuple, own)), found


def read(checkpoint: Path, pieces: Iterable[SavedPiece], host: HostCopies, version: int) -> int:
    """Read an owner's pieces into its host copies; the bytes read from disk. Raises UsageError
    TW626 for a piece that is damaged."""
    by_name: dict[str, list[Unit]] = {}
    for unit in host.units.values():
        by_name.setdefault(unit.ours, []).append(unit)
    total = 0
    for piece in pieces:
        with (checkpoint / _TENSORS / piece.file).open("rb", buffering=0) as file:
            file.seek(piece.place)
            data = bytearray(piece.bytes)
            view, reached = memoryview(data), 0
            while count := file.readinto(view[reached:]):
                reached += count
        total += reached
        numbers = _numbers(piece, data)
        for unit in by_name.get(piece.ours, ()):
            if piece.holds(unit):
                start = _start(unit) - piece.first
                size = torch.Size(unit.shape).numel()
                host.tensor(unit.name).copy_(numbers[start : start + size].view(unit.shape))
    host.version = version
    return total


def _numbers(piece: SavedPiece, data: bytearray) -> torch.Tensor:
    """The numbers of a piece, flat, its checksums checked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            wrong = archive.testzip()
        if wrong is None:
            return torch.load(io.BytesIO(data), weights_only=True).flatten()
    except (zipfile.BadZipFile, EOFError, RuntimeError):
        pass
    message = f"`{piece.file}` does not hold what was written of `{piece.ours}`"
    raise UsageError([Problem("TW626", "", message, "name another checkpoint")])


def _start(unit: Unit) -> int:
    """The place of its first number in the parameter, flattened."""
    return (unit.expert or 0) * torch.Size(unit.shape).numel()


def _check_sizes(checkpoint: Path) -> None:
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))
        wrong = [
            name
            for name, facts in manifest["files"].items()
            if (checkpoint / name).stat().st_size != facts["bytes"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        wrong = [MANIFEST]
    if wrong:
        message = f"`{wrong[0]}` of `{checkpoint}` is missing, or not what was written"
        raise UsageError([Problem("TW626", "", message, "name another checkpoint")])
