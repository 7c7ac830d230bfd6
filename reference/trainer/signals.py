"""SIGTERM and SIGINT as a request: the run ends after the step that it is in, with a checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class Stop:
    """Whether the run was asked to end, and by which signal."""

    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """As a shell reports a process that the signal ended: 143 for SIGTERM, 130 for SIGINT."""
        return 128 + self.signal if self.signal else 0


@contextmanager
def ending_on_signals() -> Iterator[Stop]:
    """Within, the first signal asks to stop, and a second ends the process at once. What it had
    begun to write has no checkpoint's name, so nothing is lost but the time."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.signal is not None:
            os._exit(128 + number)
        stop.signal = number

    before = {number: signal.signal(number, ask) for number in _ENDING}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
