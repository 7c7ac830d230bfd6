"""Where runs of a study are kept: in folders that are named after what decides their numbers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch

from reference.config import RunSpec


def named(run: RunSpec, home: Path) -> RunSpec:
    """The run with a folder below `home` that is named after all it says, and after torch's
    version; where `home` is does not count."""
    facts = run.model_dump(mode="json")
    facts["train"].pop("output")
    parts = json.dumps([torch.__version__, facts], sort_keys=True).replace(str(home), "")
    output = str(home / "runs" / digest(parts))
    return run.model_copy(update={"train": run.train.model_copy(update={"output": output})})


def digest(text: str) -> str:
    """Sixteen hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
