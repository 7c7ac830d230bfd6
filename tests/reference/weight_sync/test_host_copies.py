"""Host copies over a socket: to those who know the secret, and without harm to their owner."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from reference.weight_sync import sources
from reference.weight_sync.layout import Unit
from reference.weight_sync.sources import Address, HostCopies, Library, fetched
from twin.errors import UsageError

LARGE = Unit("large", "large", None, (4_000_000,), torch.float32, ())
SMALL = Unit("small", "small", None, (3, 2), torch.bfloat16, ())


@pytest.fixture
def copies() -> HostCopies:
    made = HostCopies([LARGE, SMALL])
    made.gather({"large": torch.arange(4e6), "small": torch.ones(3, 2, dtype=torch.bfloat16)}, 1)
    return made


@pytest.fixture
def address(copies: HostCopies, monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    monkeypatch.setattr(sources, "_STALLED", 0.3)
    library = Library(copies, "127.0.0.1")
    yield library.address
    library.close()


def test_what_is_fetched_is_what_is_held(copies: HostCopies, address: Address) -> None:
    found = {unit.name: tensor.clone() for unit, tensor in fetched(address, [SMALL, LARGE], 1, 5)}
    assert all(torch.equal(tensor, copies.tensor(name)) for name, tensor in found.items())
    assert len(found) == 2


def test_nothing_is_told_without_the_secret(address: Address) -> None:
    with pytest.raises(UsageError, match="TW623"):
        list(fetched(replace(address, secret="guessed"), [SMALL], 1, 5))


def test_a_version_that_is_gone_is_refused_by_its_number(address: Address) -> None:
    with pytest.raises(UsageError, match="ask for version 1"):
        list(fetched(address, [SMALL], 2, 5))


def test_a_reader_that_stalls_does_not_hold_new_weights_up(
    copies: HostCopies, address: Address
) -> None:
    with socket.create_connection((address.host, address.port)) as link:
        asked = {"secret": address.secret, "version": 1, "units": ["large"] * 3}
        link.sendall(json.dumps(asked).encode() + b"\n")
        assert link.recv(10)  # it has begun
        began = time.monotonic()
        copies.gather({"large": torch.zeros(4_000_000), "small": copies.tensor("small")}, 2)
        assert time.monotonic() - began < 5
    assert copies.version == 2
