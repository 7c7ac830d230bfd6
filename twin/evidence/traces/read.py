"""Traces of ranks, of GPUs or of hosts alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from twin.errors import Problem, UsageError
from twin.evidence.traces.chakra import read_chakra
from twin.evidence.traces.host import read_host
from twin.evidence.traces.rank import RankTrace, read_gpus
from twin.interop.recognise import recognise, stranger
from twin.loading.files import display


def read_rank(path: Path) -> Sequence[RankTrace]:
    """What each GPU of a trace did, or its host where there is none. Raises `UsageError` where
    nothing ran."""
    formats = recognise(path)
    if (problem := stranger(formats, display(path), "measured")) is not None:
        raise UsageError([problem])
    if any(one.name == "chakra" for one in formats):
        return read_chakra(path)
    found = read_gpus(path) or read_host(path)
    if not found:
        message = f"`{display(path)}` holds no kernel of a GPU, and no operator or named pass"
        fix = "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        raise UsageError([Problem("TW358", "", message, fix)])
    return found


def together(ranks: Iterable[RankTrace]) -> list[RankTrace]:
    """By rank, as far as they say which they are."""
    return sorted(ranks, key=lambda one: (one.rank is None, one.rank or 0, one.device))
