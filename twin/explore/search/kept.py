"""Decisions that were found, kept beside the stored runs, so that a link to one opens it later.

A decision is found again for the same question and the same code of the twin; it says its day."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twin.answers.run_store import runs_folder, source_digest, write_file
from twin.explore.search.decision_page import Decision
from twin.explore.search.new_plan import PlanQuestion


def keep(asked: PlanQuestion, found: Decision) -> None:
    """Keep a decision. A folder that cannot be written keeps nothing."""
    with suppress(OSError):
        write_file(_place(asked), json.dumps(asdict(found)).encode())


def kept(asked: PlanQuestion) -> Decision | None:
    """The decision for a question; None where nobody found it, or other code did."""
    try:
        return Decision.read(json.loads(_place(asked).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place(asked: PlanQuestion) -> Path:
    return place_of("decisions", asdict(asked))


def place_of(folder: str, asked: Any) -> Path:
    """The file for what this very code finds for a question, plain data."""
    text = json.dumps([asked, source_digest()])
    return runs_folder() / folder / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
