"""Worlds that fail, in a file that loads fast: workers load it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reference.agentic.environment import Verdict
from reference.dialog import Call, Dialog, Message
from reference.rl.tasks import RlTask


@dataclass(frozen=True)
class Deadly:
    """A world whose process dies: once, where a file says that it has not yet, or always."""

    mark: str

    @property
    def opening(self) -> Dialog:
        return Dialog((Message("user", "go"),))

    def start(self) -> None:
        """Nothing."""

    def call(self, state: None, call: Call) -> tuple[None, str]:
        del call
        return state, ""

    def reply(self, state: None, dialog: Dialog) -> None:
        del state, dialog

    def judge(self, state: None, dialog: Dialog) -> Verdict:
        del state, dialog
        if self.mark == "never":
            raise ValueError("no such file")
        if self.mark and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if not self.mark:
            os.kill(os.getpid(), signal.SIGKILL)
        return Verdict({"done": True})


def deadly(count: int, seed: int) -> Sequence[RlTask]:
    """Tasks for workers, which make them by name."""
    del seed
    marks = ["", "never", os.environ.get("DEADLY_MARK", "")]
    return [RlTask(f"deadly-{at}", "deadly", Deadly(marks[at])) for at in range(count)]
