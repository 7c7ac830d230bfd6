"""The numbers of calibration profiles and of software that are fitted on published steps
(`free_parameters.yaml`).

Hardware determines numbers that all stacks on a GPU share: how far its tensor cores come, and what
they keep of that for hours. Software determines a stack's own: how well its memory-bound kernels
stream, how soon its host launches the next kernel, the cost of sorting tokens by expert. Priors are
measurements of kernels alone, or stated by a source; where there is neither, their spread is wide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from twin.loading import load_part
from twin.loading.files import read_data


@dataclass(frozen=True, slots=True)
class FreeParameter:
    """A number to fit: its path in some profiles, or in some software, the prior and its spread (of
    the logarithm), and bounds that physics sets."""

    path: str
    prior: float
    spread: float
    low: float
    high: float
    profiles: tuple[str, ...] = ()
    software: tuple[str, ...] = ()
    start: float | None = None
    """Where to start a second time: a floor that does not bind at the prior has no slope there."""


def _read() -> dict[str, tuple[FreeParameter, ...]]:
    data = read_data(Path(__file__).with_name("free_parameters.yaml"))
    return {gpu: tuple(map(_parameter, rows)) for gpu, rows in data.items() if gpu != "groups"}


def _parameter(row: Mapping[str, Any]) -> FreeParameter:
    lists: dict[str, Any] = {name: tuple(row.get(name, ())) for name in ("profiles", "software")}
    return FreeParameter(**{**row, **lists})


FREE: Final = MappingProxyType(_read())
"""Parameters that are fitted together, by the first GPU of an architecture."""


def profiles(gpu: str) -> tuple[str, ...]:
    """The profiles whose numbers are fitted together with those of a GPU."""
    return tuple(dict.fromkeys(name for one in FREE[gpu] for name in one.profiles))


def shipped(one: FreeParameter) -> float:
    """The number as the catalog has it."""
    kind = "calibrations" if one.profiles else "software"
    found: Any = load_part(kind, (one.profiles or one.software)[0]).spec
    for name in one.path.split("."):
        found = found[name] if hasattr(found, "keys") else getattr(found, name)
    assert isinstance(found, int | float)
    return float(found)
