"""A checkpoint is read by all owners together, each byte of it by one."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import reference.checkpoint.tensors  # noqa: F401  a second to load, not in a test's time
from reference.checkpoint.folder import Snapshot, save
from reference.checkpoint.piece import Pieces, piece_of
from reference.model.part import whole
from reference.optim.blocks import is_expert
from reference.weight_sync.layout import full_set, shares
from reference.weight_sync.sources import HostCopies, dealt, read, saved
from tests.reference.weight_sync.small import model, served_part
from twin.errors import UsageError

OWNERS = 3


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """One whose stacks of experts were saved by two ranks."""
    pieces: dict[str, Pieces] = {}
    for name, tensor in served_part(model(), whole(model())).items():
        key = f"model/{name}"
        pieces[key] = piece_of(tensor)
        if is_expert(name):
            shape, half = tuple(tensor.shape), tensor.shape[0] // 2
            second = piece_of(tensor[half:], tensor.numel() // 2, shape)
            pieces[key] = piece_of(tensor[:half], 0, shape), second
    other = {"optimizer/momentum": piece_of(torch.ones(10_000))}
    return save(tmp_path, Snapshot(1, {**pieces, **other}, {}, {}), 1)


def started(checkpoint: Path) -> tuple[list[HostCopies], list[int]]:
    units = full_set(model(), torch.float32)
    pieces, owners = dealt(saved(checkpoint), units, OWNERS)
    copies = [HostCopies(own) for own in shares(units, owners, OWNERS)]
    return copies, [
        read(checkpoint, own, host, 4) for own, host in zip(pieces, copies, strict=True)
    ]


def test_owners_hold_the_model_and_have_read_each_piece_once(checkpoint: Path) -> None:
    copies, sizes = started(checkpoint)
    truth = served_part(model(), whole(model()))
    units = full_set(model(), torch.float32)
    assert sum(len(host.units) for host in copies) == len(units)
    for host in copies:
        assert host.version == 4
        for name, unit in host.units.items():
            wanted = truth[unit.ours]
            wanted = wanted if unit.expert is None else wanted[unit.expert]
            assert torch.equal(host.tensor(name), wanted), name
    pieces = saved(checkpoint)
    assert len(pieces) == len(truth) + 6  # two stacks of three layers, in two pieces each
    places = sorted((one.place, one.place + one.bytes) for one in pieces)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    assert sum(sizes) == sum(one.bytes for one in pieces)
    assert max(sizes) - min(sizes) <= max(one.bytes for one in pieces)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_system_counts_as_many_bytes_read(checkpoint: Path) -> None:
    def counted() -> int:
        lines = dict(
            line.split(": ") for line in Path("/proc/self/io").read_text("ascii").splitlines()
        )
        return int(lines["rchar"])

    started(checkpoint)
    units = full_set(model(), torch.float32)
    pieces, owners = dealt(saved(checkpoint), units, OWNERS)
    copies = [HostCopies(own) for own in shares(units, owners, OWNERS)]
    before = counted()
    sizes = [read(checkpoint, own, host, 4) for own, host in zip(pieces, copies, strict=True)]
    looked = counted() - before
    assert sum(sizes) <= looked <= sum(sizes) + 4096


def test_a_damaged_piece_is_named(checkpoint: Path) -> None:
    piece = saved(checkpoint)[3]
    file = checkpoint / "tensors" / piece.file
    data = bytearray(file.read_bytes())
    tensor = served_part(model(), whole(model()))[piece.ours]
    numbers = tensor.flatten()[piece.first : piece.end].numpy().tobytes()
    at = data.index(numbers, piece.place)
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        started(checkpoint)
    (problem,) = refused.value.problems
    assert problem.code == "TW626"
    assert piece.ours in problem.message


def test_a_file_cut_short_is_refused_before_anything_is_read(checkpoint: Path) -> None:
    file = checkpoint / "tensors" / saved(checkpoint)[0].file
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UsageError, match="TW626"):
        started(checkpoint)


def test_a_checkpoint_of_another_model_is_refused(checkpoint: Path) -> None:
    units = full_set(model("grouped"), torch.float32)
    with pytest.raises(UsageError, match="attention"):
        dealt(saved(checkpoint), units, OWNERS)
