"""What a rank does when another one is gone: it says so, and ends at once, so that the launcher can
end the rest. Its own threads may hang in transfers that nobody will answer."""

from __future__ import annotations

import os
import sys
from typing import Final

import torch.distributed as dist

from reference.parallel.world import environment

LOST: Final = 6
"""Exit code."""
_SIGNS: Final = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "timed out waiting",
    "application timeout",
    "socket closed",
)
"""What gloo, NCCL and the store say of a peer that is gone."""


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another rank is gone."""
    text = str(error).lower()
    known = isinstance(error, dist.DistError | RuntimeError)
    return environment()[1] > 1 and known and any(sign in text for sign in _SIGNS)


def lost(error: BaseException) -> str:
    """The same for people."""
    rank, ranks = environment()
    first = str(error).strip().splitlines()[0]
    return (
        f"rank {rank} of {ranks}: another rank is gone, so this one ends ({first}); start again "
        "with `--resume` to go on from the last checkpoint"
    )


def left(code: int) -> int:
    """The exit code; of several ranks the process ends here with it."""
    if environment()[1] > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
