"""The nouns of inference: an engine that can be built, and what one pass of it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from twin.arch.kernels import ELEMENT, FP8
from twin.network.placement import Placement
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import ClusterSpec
from twin.spec.inference import EngineSpec
from twin.spec.model import ModelSpec

Cause = Literal["arithmetic", "memory", "launches", "tensor", "expert", "host"]

CAUSES: Final[dict[Cause, str]] = {
    "arithmetic": "FLOP of the tensor cores",
    "memory": "bandwidth of the device memory",
    "launches": "launches of kernels",
    "tensor": "collectives of tensor ranks",
    "expert": "expert all-to-all that nothing hides",
    "host": "the host, between passes and for each sequence",
}
"""What takes the time of a pass, in words."""


@dataclass(frozen=True)
class Engine:
    """One copy of a model on `spec.gpus` GPUs of a cluster, its parts checked (`build.engine`).

    `model` has the redundant experts among its experts, and no modules that predict further tokens.
    """

    spec: EngineSpec
    model: ModelSpec
    cluster: ClusterSpec
    calibration: CalibrationSpec

    @property
    def groups(self) -> int:
        """Groups of tensor ranks, each with requests of its own."""
        return self.spec.gpus // self.spec.tensor

    @property
    def cache_element(self) -> float:
        """Bytes of a cached number, its part of a scale included."""
        return FP8 if self.spec.cache == "fp8" else ELEMENT

    @cached_property
    def everyone(self) -> Placement:
        """The GPUs of the engine, which share the experts."""
        return self._placed(self.spec.gpus)

    @cached_property
    def sharers(self) -> Placement:
        """The GPUs of one group of tensor ranks."""
        return self._placed(self.spec.tensor)

    def _placed(self, size: int) -> Placement:
        inside = min(size, self.cluster.node.gpus)
        pod = min(size, self.cluster.fabric.nodes_per_leaf * self.cluster.node.gpus)
        return Placement(size, inside, pod)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass of one group takes: seconds by cause, which sum to `seconds`; `hidden` are
    those of the all-to-all that run beside kernels."""

    causes: Mapping[Cause, float]
    hidden: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds from the begin of the pass to its end."""
        return sum(self.causes.values())

    @property
    def bound(self) -> Cause:
        """What takes most of it."""
        return max(self.causes, key=lambda cause: self.causes[cause])
