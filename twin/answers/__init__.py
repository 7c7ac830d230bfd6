"""Answers: the one way from a scenario to its report (`ask`), kept in `runs/<hash>/` so that nobody
waits for it twice. Command line and app both go through it. `TWIN_RUNS` names another folder."""

from twin.answers.answer import ask, check
from twin.answers.run_store import StoredRun, find, older, recall, remove, runs_folder, stored
from twin.kinds.base import Fidelity, Run

__all__ = [
    "Fidelity",
    "Run",
    "StoredRun",
    "ask",
    "check",
    "find",
    "older",
    "recall",
    "remove",
    "runs_folder",
    "stored",
]
