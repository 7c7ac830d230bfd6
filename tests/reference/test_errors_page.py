"""What the page of the trainer's errors says of exit codes is so."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from reference.ending import Stop
from reference.sandbox.__main__ import NOT_OK
from reference.train import DIVERGED
from twin.errors import ScenarioError, UsageError

PAGE = Path(__file__).parents[2] / "docs" / "trainer-errors.md"


def test_the_exit_codes_of_the_page_are_those_of_the_commands() -> None:
    rows = dict(re.findall(r"^\| ([\d, ]+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    told = {int(code): words for codes, words in rows.items() for code in codes.split(", ")}
    signals = [Stop(one).exit_code for one in (signal.SIGINT, signal.SIGTERM)]
    wrong = UsageError.exit_code, ScenarioError.exit_code
    assert list(told) == [0, 1, *wrong, NOT_OK, DIVERGED, *signals]
    assert "sandbox" in told[NOT_OK]
    assert "diverged" in told[DIVERGED]
    assert "command" in told[UsageError.exit_code]
    assert "configuration" in told[ScenarioError.exit_code]
