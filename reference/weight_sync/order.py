"""What a controller asks of the ranks of an update, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from reference.weight_sync.buckets import Bucket, Buffers
from reference.weight_sync.record import Span
from reference.weight_sync.stages import Stages
from reference.weight_sync.wires import WIRES, Meeting, Wire


@dataclass(frozen=True, slots=True)
class Order:
    """An update, the same for all but the rank in the meeting."""

    meeting: Meeting
    wire: str
    stages: Stages
    buckets: tuple[Bucket, ...]
    buffers: Buffers
    version: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a rank did."""

    spans: tuple[Span, ...]
    bytes: int
    """A sender's: sent, once for all receivers; a receiver's: kept."""
    lost: tuple[int, ...] = ()
    """Receivers that were gone, by their rank in the meeting."""


class Joined:
    """The wire of a rank, made anew when others meet."""

    def __init__(self, device: torch.device) -> None:
        """`device` is where the rank's buffers are."""
        self._device = device
        self._key: tuple[str, int, str] | None = None
        self._wire: Wire | None = None

    def wire(self, order: Order) -> Wire:
        """That of an order's meeting. Raises RuntimeError where not all come."""
        meeting = order.meeting
        key = meeting.host, meeting.epoch, order.wire
        if self._wire is None or self._key != key:
            self._wire = None
            self._wire, self._key = WIRES[order.wire](meeting, self._device), key
        return self._wire

    def leave(self) -> None:
        """Close its connections, so that nobody waits for this rank."""
        self._wire = self._key = None
