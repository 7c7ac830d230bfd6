"""Runs: a scenario answered once, and kept in `runs/<hash>/` so that nobody waits for it twice.

`run(scenario)` looks there first; command line and app both go through it. `TWIN_RUNS` names
another folder.
"""

from __future__ import annotations

from twin.answers.answer import Run, run
from twin.answers.key import Fidelity
from twin.answers.run_store import StoredRun, find, older, recall, stored
from twin.answers.store import remove, runs_folder

__all__ = [
    "Fidelity",
    "Run",
    "StoredRun",
    "find",
    "older",
    "recall",
    "remove",
    "run",
    "runs_folder",
    "stored",
]
