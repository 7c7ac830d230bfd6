"""What a GPU's kernels do, by their names, and for what a step waits while only they run."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from twin.evidence.traces.chrome import Arguments

UNKNOWN: Final = "unknown"
"""The kind of a kernel that no pattern names."""
EXCHANGE: Final = "exchange"
"""The kind of an all-to-all between experts' ranks by a library of its own."""
COLLECTIVE: Final = "collective"
HOST_COPY: Final = "host_copy"

_TOLD: Final[Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("kernel_names.toml").read_text(encoding="utf-8")
)
_PATTERNS: Final = tuple(
    (kind, re.compile("|".join(patterns), re.IGNORECASE))
    for kind, patterns in _TOLD["kinds"].items()
)
_PURPOSES: Final = tuple(
    (re.compile(text, re.IGNORECASE), cause) for text, cause in _TOLD["purposes"]
)
"""What groups of ranks are for, by what trainers call them."""


@cache
def kind_of(name: str) -> str:
    """The kind of a kernel by its name."""
    return next((kind for kind, pattern in _PATTERNS if pattern.search(name)), UNKNOWN)


def cause_of(kind: str, name: str, told: Arguments, sizes: Sequence[tuple[int, str]] = ()) -> str:
    """For what a step waits while a kernel runs alone. A collective's group is told by the purpose
    that its trainer writes down, by what is sent, or by its number of ranks (`sizes`)."""
    if kind == COLLECTIVE:
        return _of_group(name, told, sizes)
    return {
        EXCHANGE: "exposed_expert",
        HOST_COPY: "exposed_offload",
        "optimizer": "optimizer",
        UNKNOWN: "other",
    }.get(kind, "compute")


def _of_group(name: str, told: Arguments, sizes: Sequence[tuple[int, str]]) -> str:
    """The cause that a collective counts for."""
    for pattern, cause in _PURPOSES:
        if pattern.search(told.purpose):
            return cause
    what = f"{name} {told.collective}".lower()
    if "send" in what or "recv" in what or "all_to_all" in what:
        # NCCL has one kernel for messages between two and for an all-to-all of more.
        many = "all_to_all" in what or told.members > _PAIR
        return "exposed_expert" if many else "exposed_pipeline"
    by_size = next((cause for size, cause in sizes if size == told.members > 1), None)
    return by_size or "exposed_data"


_PAIR: Final = 2
