"""What a GPU, a node and a fabric draw from their power supplies, in watts.

A GPU's power is a straight line in what it does: from `idle`, when a process holds it and no kernel
runs, to `max`, its power limit. Kernels, waits for communication and all other waits each lie at
some share of the way (Patterson et al. 2021, arXiv:2104.10350, use one mean power for all three;
here the breakdown of the step weighs them). Where a limit throttles clocks, power is
`max` and kernels are slower (`twin.hardware.roofline.sustained`).
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationInfo, field_validator

from twin.errors import FieldError
from twin.spec.base import Part, Spec, Watts


class GpuPowerSpec(Spec):
    """Power of one GPU: its limit, what it draws when nothing runs, and how far between the two
    each of its occupations lies."""

    max: Watts
    """power limit, which makers also call TDP"""
    idle: Watts
    """a process holds the GPU, clocks are up, no kernel runs"""
    compute: Part
    """share of the way from idle to max while kernels run"""
    communication: Part
    """share of the way while kernels wait for collectives or messages"""
    waiting: Part
    """share of the way in the bubble, behind host copies, and elsewhere"""

    @field_validator("idle")
    @classmethod
    def _below_the_limit(cls, idle: float, info: ValidationInfo) -> float:
        limit: Any = info.data.get("max")
        if limit is not None and idle >= limit:
            message = "an idle GPU draws less than at its limit"
            raise FieldError("TW017", message, f"write less than {limit:g}W, which is `max`")
        return idle


class NodePowerSpec(Spec):
    """Power of a node beside its GPUs, the same whatever they do."""

    cpus: Watts
    """all CPUs of the node"""
    memory: Watts
    """host memory of the node"""
    nics: Watts
    """network cards of the node, with their transceivers"""
    other: Watts
    """fans, NVLink switches, drives, and losses of power supplies"""

    @property
    def total(self) -> float:
        """Watts of all of them."""
        return self.cpus + self.memory + self.nics + self.other
