"""Pieces of tensors to files and back, by `torch.distributed.checkpoint`: every rank writes a file
of its own, and an index says which numbers are where.

torch's planners take tensors whole, or cut along their dimensions; ours let a tensor be a line of
numbers that is cut anywhere. Reading takes whole saved pieces into memory, one at a time, and those
numbers of them that are wanted.

To import this takes a second, which only those who save or load should wait.
"""

from __future__ import annotations

import io
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from reference.checkpoint.piece import Piece, Pieces, listed, refusal


def write(folder: Path, tensors: Mapping[str, Pieces], group: ProcessGroup | None) -> None:
    """Write what each rank passes, synced to disk. Together they pass every number once."""
    # The writer syncs each file before it returns.
    writer = FileSystemWriter(folder)
    alone = group is None
    with _one_process(), _own_errors(folder):
        save(
            dict(tensors),
            storage_writer=writer,
            planner=_SavePlanner(),
            process_group=group,
            no_dist=alone,
        )


def read(folder: Path, tensors: Mapping[str, Pieces]) -> None:
    """Fill the pieces in place, whoever wrote their numbers. Needs no other rank."""
    reader = FileSystemReader(folder)
    with _one_process(), _own_errors():
        load(dict(tensors), storage_reader=reader, planner=_LoadPlanner(), no_dist=True)


class _SavePlanner(DefaultSavePlanner):
    """What a rank writes."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def set_up_planner(
        self,
        state_dict: Mapping[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        del storage_meta
        self.pieces = {
            MetadataIndex(name, chunk.offsets): (piece, chunk)
            for name, piece, chunk in _chunks(state_dict)
        }
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        items = [
            WriteItem(index, WriteItemType.SHARD, tensor_data=_data(piece, chunk))
            for index, (piece, chunk) in self.pieces.items()
        ]
        self.plan = SavePlan(items)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Tensor:
        return self.pieces[index][0].tensor


class _LoadPlanner(LoadPlanner):
    """What a rank reads."""

    def set_up_planner(
        self,
        state_dict: Mapping[str, Any],
        metadata: Metadata | None = None,
        is_coordinator: bool = False,
    ) -> None:
        del is_coordinator
        assert metadata is not None
        self.wanted: dict[str, list[tuple[Piece, ChunkStorageMetadata]]] = {}
        for name, piece, chunk in _chunks(state_dict):
            self.wanted.setdefault(name, []).append((piece, chunk))
        self.stored = metadata.state_dict_metadata

    def create_local_plan(self) -> LoadPlan:
        items: list[ReadItem] = []
        for name, wanted in self.wanted.items():
            stored = self.stored[name]
            assert isinstance(stored, TensorStorageMetadata)
            chunks = [chunk for _, chunk in wanted]
            items += create_read_items_for_chunk_list(name, stored, chunks)
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        index = read_item.dest_index
        assert index.index is not None
        piece, _ = self.wanted[index.fqn][index.index]
        return piece.tensor.narrow(0, read_item.dest_offsets[0], read_item.lengths[0])

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Nothing is left to do: the tensor is the piece's."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        del value
        raise TypeError(f"`{read_item.dest_index.fqn}` is no tensor")


def _chunks(
    tensors: Mapping[str, Pieces],
) -> Iterator[tuple[str, Piece, ChunkStorageMetadata]]:
    """Every piece that has numbers, as torch says where it lies."""
    for name, pieces in tensors.items():
        for piece in listed(pieces):
            if count := piece.tensor.numel():
                place = torch.Size([piece.offset]), torch.Size([count])
                yield name, piece, ChunkStorageMetadata(*place)


def _data(piece: Piece, chunk: ChunkStorageMetadata) -> TensorWriteData:
    properties = TensorProperties.create_from_tensor(piece.tensor)
    return TensorWriteData(chunk, properties, torch.Size([prod(piece.shape)]))


@contextmanager
def _one_process() -> Iterator[None]:
    """Without the warning that there is no process group, which is meant here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


@contextmanager
def _own_errors(written: Path | None = None) -> Iterator[None]:
    """What went wrong, and where, instead of torch's wrapping, which is no Exception. A disk that
    is full in the middle of a tensor is a RuntimeError of torch's zip files, so the folder that is
    `written` is tried."""
    try:
        yield
    except CheckpointException as failed:
        rank, (error, trace) = next(iter(failed.failures.items()))
        if isinstance(error, OSError):
            raise refusal(error, rank) from None
        if written is not None:
            _try_to_write(written)
        error.add_note(f"On rank {rank}:\n{''.join(trace.format())}")
        raise error from None


def _try_to_write(folder: Path) -> None:
    """Raises UsageError TW310 where a file of a megabyte does not fit."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            for _ in range(16):
                file.write(bytes(1 << 16))
            os.fsync(file.fileno())
    except OSError as error:
        raise refusal(error, dist.get_rank() if dist.is_initialized() else 0) from None
