"""The numbers of calibration profiles that are fitted on published steps (`free_parameters.yaml`).

Hardware determines numbers that all stacks on a GPU share: how far its tensor cores come, and what
they keep of that for hours. Software determines a stack's own: how well its memory-bound kernels
stream, how soon its host launches the next kernel, the cost of sorting tokens by expert. Priors are
measurements of kernels alone, or stated by a source; where there is neither, their spread is wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from twin.loading import load_part


@dataclass(frozen=True, slots=True)
class FreeParameter:
    """A number to fit: its path in some profiles, the prior and its spread (of the logarithm), and
    bounds that physics sets."""

    path: str
    profiles: tuple[str, ...]
    prior: float
    spread: float
    low: float
    high: float
    start: float | None = None
    """Where to start a second time: a floor that does not bind at the prior has no slope there."""


_A100: Final = (
    "a100-megatron",
    "a100-megascale",
    "a100-megatron-2023",
    "a100-megatron-deepspeed",
    "a100-llm-foundry",
)
_DEEPSPEED: Final = ("a100-megatron-deepspeed",)
_H100: Final = ("h100-nemo", "h100-maxtext", "h100-automodel", "h100-llm-foundry")
_HOPPER: Final = (*_H100, "h100-500w-torchtitan", "h200-torchtitan")
_B200: Final = ("b200-nemo", "b300-nemo", "gb200-nemo", "gb300-nemo")

FREE: Final = MappingProxyType(
    {
        "A100": (
            # 0.832 and 112: products alone on H100 (gemm-h100-bf16.yaml); best on A100: 0.87.
            FreeParameter("matmuls.bf16.efficiency", _A100, 0.832, 0.08, 0.30, 0.95),
            FreeParameter("matmuls.bf16.ramp", _A100, 112, 0.6, 10, 2000),
            FreeParameter("bandwidth", ("a100-megatron", "a100-megascale"), 0.80, 0.15, 0.40, 0.95),
            FreeParameter("bandwidth", ("a100-megatron-2023",), 0.75, 0.25, 0.30, 0.95),
            FreeParameter("bandwidth", ("a100-llm-foundry",), 0.70, 0.30, 0.30, 0.95),
            FreeParameter("bandwidth", _DEEPSPEED, 0.70, 0.20, 0.30, 0.95),
            FreeParameter("launch", _DEEPSPEED, 5e-6, 0.5, 1e-6, 3e-5),
            FreeParameter("dispatch", _DEEPSPEED, 60e-6, 0.3, 1e-6, 1e-4),
        ),
        "H100": (
            FreeParameter("sustained", (*_H100, "h200-torchtitan"), 0.88, 0.10, 0.60, 1.0),
            FreeParameter("sustained", ("h100-500w-torchtitan",), 0.75, 0.15, 0.40, 1.0),
            FreeParameter("matmuls.fp8.efficiency", _HOPPER, 0.75, 0.08, 0.50, 0.95),
            FreeParameter("streaming.gather.bandwidth", _H100[:3], 0.60, 0.40, 0.10, 0.90),
            # 63 us: what the host of vTrain's A100 takes for each kernel that the twin counts.
            FreeParameter(
                "dispatch", ("h100-nemo", "h100-automodel"), 63e-6, 0.5, 2e-6, 5e-4, start=120e-6
            ),
            FreeParameter("bandwidth", ("h100-llm-foundry",), 0.70, 0.30, 0.20, 0.95),
        ),
        "B200": (
            FreeParameter("sustained", _B200, 0.85, 0.12, 0.40, 1.0),
            FreeParameter("matmuls.fp8.efficiency", _B200, 0.72, 0.10, 0.40, 0.95),
            FreeParameter("streaming.gather.bandwidth", _B200, 0.60, 0.40, 0.10, 0.90),
        ),
    }
)
"""What is fitted together, by the first GPU of an architecture."""


def profiles(gpu: str) -> tuple[str, ...]:
    """The profiles whose numbers are fitted together with those of a GPU."""
    return tuple(dict.fromkeys(name for one in FREE[gpu] for name in one.profiles))


def shipped(one: FreeParameter) -> float:
    """The number as the catalog has it."""
    found: object = load_part("calibrations", one.profiles[0]).spec
    for name in one.path.split("."):
        found = getattr(found, name)
    assert isinstance(found, int | float)
    return float(found)
