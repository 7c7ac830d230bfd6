"""Wrong inputs, each with the exit code, the place, the code and the words that a planner sees.

A case edits one good scenario, runs `twin check` on it, and names what must come back. `under` is the text that the caret
points at. No case may end in a traceback, and the JSON form must tell the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.conftest import Command, Outcome

GOOD = """\
schema: 1
name: wrong
model: kimi-k2
cluster:
  node: h800-8gpu
  nodes: 32
  fabric: rail-fat-tree-400g
parallel:
  pipeline: 16
  virtual: 4
  expert: 16
  tensor: 1
  context: 1
  micro_batch: 1
  schedule: interleaved_1f1b
memory:
  recompute: [full]
train:
  tokens: 15.5T
  global_batch: 67108864tok
  sequence: 4096tok
  optimizer: muonclip
cost:
  gpu_hour: 2.0USD
calibration: h800-hopper-bf16
"""


class Wrong(NamedTuple):
    """One wrong input and what must come of it."""

    edits: dict[str, str]
    """Lines of the good scenario, and what stands there instead."""
    code: str
    at: str
    """`line:column` in the scenario, or `--set:1:column`; empty where there is no place."""
    under: str
    message: str
    hint: str = ""
    sets: tuple[str, ...] = ()
    exit: int = 3


def line(edited: dict[str, str], **expected: Any) -> Wrong:
    """A scenario with edited lines."""
    return Wrong(edited, **expected)


def override(*sets: str, **expected: Any) -> Wrong:
    """The good scenario with overrides."""
    return Wrong({}, sets=sets, **expected)


CASES: dict[str, Wrong] = {
}


def check(case: Wrong, twin_command: Command, tmp_path: Path, *words: str) -> Outcome:
    """`twin check` of a case."""
    text = GOOD
    for old, new in case.edits.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "wrong.yaml").write_text(text)
    overrides = [word for one in case.sets for word in ("--set", one)]
    return twin_command("check", "wrong.yaml", *overrides, *words)
