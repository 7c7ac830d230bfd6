"""Which library computes an operation on a GPU: tried once, told in one line.

Candidates are asked in order. The first one that is installed, runs on this GPU, and agrees with a
plain computation on a small trial is taken. The order is fixed and never a matter of timing, so
that a run and its continuation compute alike. The trial draws nothing from torch's generators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
AGREES: Final = 0.02
"""Largest distance of a trial in bf16, as a share of the result's norm: rounding alone is below
0.006."""


class UnfitError(Exception):
    """Why a candidate is not taken."""


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """What computes an operation, and why the candidates before it do not."""

    operation: str
    name: str
    compute: T
    refused: tuple[str, ...]

    def __str__(self) -> str:
        why = f" ({'; '.join(self.refused)})" if self.refused else ""
        return f"{self.operation}: {self.name}{why}"


def choose(
    operation: str,
    candidates: Mapping[str, Callable[[], T]],
    trial: Callable[[T], None],
) -> Choice[T]:
    """The first candidate that can be made and passes the trial; the last one is taken as it is,
    and must always work."""
    refused: list[str] = []
    *tried, last = candidates.items()
    for name, make in tried:
        try:
            compute = make()
            trial(compute)
        except UnfitError as error:
            refused.append(f"{name} {error}")
        except Exception as error:  # noqa: BLE001 (an unknown release may fail in any way)
            first = next(iter(str(error).splitlines()), "")
            refused.append(f"{name} fails: {type(error).__name__}: {first}"[:200])
        else:
            return Choice(operation, name, compute, tuple(refused))
    name, make = last
    return Choice(operation, name, make(), tuple(refused))


def installed(module: str) -> None:
    """Raises `UnfitError` where there is no such module."""
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise UnfitError("is not installed")


def agree(got: Sequence[Tensor], want: Sequence[Tensor]) -> None:
    """Raises `UnfitError` where results of a trial are apart."""
    for one, other in zip(got, want, strict=True):
        if one.shape != other.shape:
            raise UnfitError(f"gives {list(one.shape)} for {list(other.shape)}")
        apart = float((one.float() - other.float()).norm() / other.float().norm())
        if not apart <= AGREES:
            raise UnfitError(f"differs from PyTorch by {apart:.1%}")


def drawn(*shape: int, device: torch.device, seed: int) -> Tensor:
    """Normal numbers in bf16, the same on every device."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=source).to(device, torch.bfloat16)
