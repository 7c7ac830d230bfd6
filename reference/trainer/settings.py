"""What a run sets in torch for as long as it lasts: threads, determinism, and the device.

Bit-equal, with one configuration on one machine with one version of torch: a run and its
repetition, and a run and its continuation from a checkpoint. Not bit-equal: other CPUs (their
matrix kernels sum in another order), other numbers of threads, other devices, other splits of a
batch into micro-batches.

On a CPU freed memory stays with the process. glibc gives large blocks back to the kernel, which
clears every page of them at the next use: a third to a half of a small model's step (a step of
`nano`, 16 x 256 tokens in bf16 on two cores: 0.40 s so, 0.24 s with memory kept; 2026-11-20).
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from reference.config import TrainSpec
from twin.errors import Problem, UsageError

DTYPES: Final = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
"""Of parameters and activations."""


@contextmanager
def settings(train: TrainSpec) -> Iterator[torch.device]:
    """The device, with torch set up for the run; afterwards torch is as before.

    Raises UsageError where CUDA is asked for and there is none.
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
    return torch.device("cuda" if there and train.device != "cpu" else "cpu")


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
