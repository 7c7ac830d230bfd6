"""Torch, folder and first weights of a run.

What a run sets in torch for as long as it lasts: threads, determinism, and the device.

Bit-equal, with one configuration on one machine with one version of torch: a run and its
repetition, and a run and its continuation from a checkpoint. Not bit-equal: other CPUs (their
matrix kernels sum in another order), other numbers of threads, other devices, other splits of a
batch into micro-batches.

On a CPU freed memory stays with the process. glibc gives large blocks back to the kernel, which
clears every page of them at the next use: a third to a half of a small model's step (a step of
`nano`, 16 x 256 tokens in bf16 on two cores: 0.40 s so, 0.24 s with memory kept; 2026-11-20).

The folder that a run writes into, and whose it is.

    run.json          the resolved configuration; a run configuration itself
    metrics.jsonl     steps and events
    checkpoints/      the newest few

One process at a time: the lock is the system's, so that a killed process leaves none behind.

The weights that a run begins with, where they are another run's.

Parameters and router biases are taken, bit for bit where both runs have one precision; the
optimizer begins anew, its fp32 masters from these weights, as with any released model.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import torch
from torch import Tensor

from reference import metrics
from reference.checkpoint.folder import (
    MANIFEST,
    DamagedError,
    IntactCheckpoint,
    load_tensors,
    newest,
    read,
)
from reference.checkpoint.piece import Piece, piece_of
from reference.config import TrainSpec
from reference.files import replace_synced
from reference.model import Transformer
from reference.model.part import ModelPart
from reference.optim.blocks import is_expert
from reference.text.prepare import Prepared
from twin.errors import Problem, UsageError
from twin.spec.model import ModelSpec

DTYPES: Final = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
"""Of parameters and activations."""


@contextmanager
def settings(train: TrainSpec) -> Iterator[torch.device]:
    """The device, with torch set up for the run; afterwards torch is as before. Each rank of a
    machine has a GPU of its own, by LOCAL_RANK.

    Raises UsageError where CUDA is asked for and there is none, or too few for the ranks.
    """
    device = _device(train)
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    filling: Any = torch.utils.deterministic  # its stub lacks the setting
    filled = filling.fill_uninitialized_memory
    if device.type == "cpu":
        keep_freed_memory()
    if train.deterministic:
        # cuBLAS repeats its sums only with a workspace of fixed size (CUDA's documentation).
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(_threads(train))
    torch.use_deterministic_algorithms(train.deterministic)
    # Nothing here reads memory that it did not write, and filling costs bandwidth.
    filling.fill_uninitialized_memory = False
    torch.manual_seed(train.seed)
    try:
        yield device
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        filling.fill_uninitialized_memory = filled


def _threads(train: TrainSpec) -> int:
    """Those of one rank: ranks of one machine do not take each other's cores."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if ranks == 1:
        return train.threads
    return max(1, min(train.threads, (os.cpu_count() or 1) // ranks))


def _device(train: TrainSpec) -> torch.device:
    there = torch.cuda.is_available()
    if train.device == "cuda" and not there:
        message = "`train.device` is `cuda`, and torch finds no CUDA device"
        raise UsageError([Problem("TW237", "train.device", message, "write `auto` or `cpu`")])
    if not there or train.device == "cpu":
        return torch.device("cpu")
    # Before anything else touches CUDA, which would take the first GPU on every rank.
    place, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if place >= count:
        message = f"rank {place} of this machine has no GPU: torch finds {count}"
        fix = f"start at most {count} ranks per machine, or write `cpu`"
        raise UsageError([Problem("TW237", "train.device", message, fix)])
    torch.cuda.set_device(place)
    return torch.device("cuda", place)


_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_MAX: Final = -4
"""Parameters of mallopt(3), numbered as in malloc.h."""


def keep_freed_memory() -> None:
    """Let freed memory stay with this process, for as long as it lasts. Results do not change; the
    process stays as large as it once was."""
    if platform.libc_ver()[0] != "glibc":
        return
    library = ctypes.CDLL(None)
    for parameter, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 1 << 28)):
        library.mallopt(parameter, value)


CONFIG: Final = "run.json"
CHECKPOINTS: Final = "checkpoints"
_LOCK: Final = ".lock"
_BOARD: Final = "tensorboard"

Existing = Literal["refuse", "resume", "fresh"]
"""What to do with a run that the folder holds already: refuse to touch it, go on with it (or begin,
where there is none), or delete it and begin."""


@contextmanager
def opened(folder: Path, existing: Existing) -> Iterator[None]:
    """The folder, made if need be, held against other processes.

    Raises UsageError where it holds a run and nobody said what to do with it, where it holds
    anything else, or where another process trains in it.
    """
    _refuse_foreign(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("w")
    except OSError as error:
        message = f"`{folder}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW231", "train.output", message)]) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another process trains in `{folder}`"
            raise UsageError([Problem("TW232", "train.output", message, "wait for it")]) from None
        if existing == "refuse" and (folder / CONFIG).exists():
            message = f"`{folder}` holds a run already"
            fix = (
                "`--resume` goes on with it, `--fresh` deletes it; `--set train.output=...` names "
            )
            raise UsageError([Problem("TW231", "train.output", message, fix + "another folder")])
        if existing == "fresh":
            _clear(folder)
        (folder / CHECKPOINTS).mkdir(exist_ok=True)
        yield


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write the configuration of the run in the folder."""
    replace_synced(folder / CONFIG, json.dumps(config, indent=2) + "\n")


def checkpoint_of(folder: Path, code: str, field: str = "", fix: str = "") -> IntactCheckpoint:
    """The checkpoint at `folder`, or the newest intact one of the run there. Raises UsageError
    `code` at `field` where there is none."""
    if (folder / MANIFEST).is_file():
        try:
            return read(folder)
        except DamagedError as damage:
            message = f"`{folder}` is refused: {damage}"
            raise UsageError([Problem(code, field, message)]) from None
    found, refused = newest(folder / CHECKPOINTS)
    if found is None:
        message = f"`{folder}` holds no intact checkpoint"
        raise UsageError([*refused, Problem(code, field, message, fix)])
    return found


def _refuse_foreign(folder: Path) -> None:
    """A folder that is not empty and no run's is somebody's; nothing there is ours to delete."""
    if not folder.exists():
        return
    ours = (folder / CONFIG).is_file() or (folder / _LOCK).is_file()
    if not folder.is_dir() or (not ours and any(folder.iterdir())):
        message = f"`{folder}` exists and holds no run"
        fix = "name an empty or a new folder with `--set train.output=...`"
        raise UsageError([Problem("TW231", "train.output", message, fix)])


def _clear(folder: Path) -> None:
    """Delete what a run has written, and nothing else."""
    # First what says that there is a run: a half-deleted one must not be resumed.
    for name in (CONFIG, metrics.NAME):
        (folder / name).unlink(missing_ok=True)
    for name in (CHECKPOINTS, _BOARD):
        shutil.rmtree(folder / name, ignore_errors=True)


T = TypeVar("T")
PREFIX = "model/"
"""Of the names of weights in a checkpoint."""


def weights_of(model: Transformer) -> dict[str, Piece]:
    """Parameters and router biases of a model, or of a part of one, as pieces of the whole model's
    tensors."""
    return {
        PREFIX + name: _placed(model.part, name, tensor)
        for name, tensor in model.state_dict().items()
    }


def _placed(part: ModelPart, name: str, tensor: Tensor) -> Piece:
    """A parameter, or a state of one, in the whole model's: of experts [E, ...] a rank has some, in
    a row."""
    if not is_expert(name) or tensor.dim() == 0:
        return piece_of(tensor)
    here, *rest = tensor.shape
    offset = part.expert_rank * tensor.numel()
    return piece_of(tensor, offset, (here * part.expert_ranks, *rest))


def read_start(folder: Path, model: ModelSpec) -> IntactCheckpoint:
    """The newest intact checkpoint of a run's folder, or the checkpoint at the folder.

    Raises UsageError: TW602 where there is none, TW603 where its weights are not those of `model`.
    """
    fix = "name the folder of a run, `train.output`, that has written one"
    checkpoint = checkpoint_of(folder, "TW602", "start", fix)
    whole = Transformer(model, device="meta").state_dict()
    here = {name: tuple(tensor.shape) for name, tensor in whole.items()}
    there = {
        name.removeprefix(PREFIX): shape
        for name, (_, shape) in checkpoint.shapes.items()
        if name.startswith(PREFIX)
    }
    if wrong := differences(there, here, _size, 4):
        message = f"`{folder}` holds the weights of another model: {wrong}"
        raise UsageError([Problem("TW603", "start", message, "give `model` as that run had it")])
    return checkpoint


@torch.no_grad()
def copy_weights(checkpoint: IntactCheckpoint, parts: Mapping[int, Transformer]) -> None:
    """The checkpoint's numbers into the parameters and router biases that are here."""
    wanted = {name: piece for part in parts.values() for name, piece in weights_of(part).items()}
    kinds = {name: getattr(torch, checkpoint.shapes[name][0]) for name in wanted}
    read = {
        name: Piece(torch.empty_like(piece.tensor, dtype=kinds[name]), piece.offset, piece.shape)
        for name, piece in wanted.items()
    }
    load_tensors(checkpoint, read)
    for name, piece in wanted.items():
        piece.tensor.copy_(read[name].tensor)


def refuse_other_text(checkpoint: IntactCheckpoint, text: Prepared) -> None:
    """Raises UsageError TW604 where the tokens were made of another text or by another tokenizer:
    ids would mean something else."""
    loader = checkpoint.facts["loader"]
    before, now = loader.get("text", loader["tokens"]), text.training.digest
    if now != before:
        message = (
            f"the run read other tokens (`{before}`, of `data` now `{now}`), so that ids may mean "
            "something else"
        )
        raise UsageError([Problem("TW604", "data", message, "give `data` as that run had it")])


def differences(
    there: Mapping[str, T], here: Mapping[str, T], show: Callable[[T | None], str], most: int
) -> str:
    """The first `most` names whose values differ, with both values; empty where all are equal."""
    wrong = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    shown = [f"`{name}` {show(there.get(name))} -> {show(here.get(name))}" for name in wrong[:most]]
    more = f", and {len(wrong) - most} more" if len(wrong) > most else ""
    return ", ".join(shown) + more


def _size(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else "x".join(map(str, shape)) or "scalar"
