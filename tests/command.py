"""The command in this process: its exit code, its data and its messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from twin.cli.main import main


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def command_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs `twin WORDS` in a folder, without colour."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("TWIN_DEBUG", raising=False)

    def run(*words: str) -> Outcome:
        code = main(words)
        seen = capsys.readouterr()
        return Outcome(code, seen.out, seen.err)

    return run
