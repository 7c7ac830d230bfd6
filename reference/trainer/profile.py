"""A trace of a few steps by torch's profiler, one file per rank, for `twin measured TRACE...`.

The first steps of a run are unlike the others (caches, compiled kernels, lazy set-up), so the trace
begins after `SKIPPED` of them. Every thread is traced: messages between stages have their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from reference.parallel.timeline import Tape

FOLDER: Final = "profile"
SKIPPED: Final = 2
T = TypeVar("T")


class Profiler:
    """Traces the steps of one rank once."""

    def __init__(self, folder: Path | None, steps: int, rank: int, tape: Tape) -> None:
        """Nothing is traced without a folder, or of 0 steps."""
        self._path = folder and folder / FOLDER / f"rank-{rank:05d}.json.gz"
        self._left = steps if folder else 0
        self._skipped = 0
        self._tape = tape
        self._trace: profile | None = None

    def step(self, run: Callable[[], T]) -> T:
        """Run one step, and trace it if it is its turn."""
        if self._left and self._skipped == SKIPPED and self._trace is None:
            self._begin()
        self._skipped = min(SKIPPED, self._skipped + 1)
        made = run()
        if self._trace is not None:
            self._left -= 1
            if not self._left:
                self.end()
        return made

    def _begin(self) -> None:
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        all_threads = _ExperimentalConfig(profile_all_threads=True)
        self._trace = profile(activities=activities, experimental_config=all_threads)
        self._trace.start()
        self._tape.profiled = True

    def end(self) -> None:
        """Write what has been traced, if anything."""
        if self._trace is None or self._path is None:
            return
        self._tape.profiled = False
        self._trace.stop()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._trace.export_chrome_trace(str(self._path))
        self._trace = None
