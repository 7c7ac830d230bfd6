"""Where runs of a study are kept: in folders that are named after what decides their numbers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch

from reference.config import RunSpec


def named(run: RunSpec, home: Path, *also: str) -> RunSpec:
    """The run with a folder below `home` that is named after all it says, after torch's version,
    and after what else decides its numbers; where `home` is does not count."""
    facts = run.model_dump(mode="json")
    facts["train"].pop("output")
    parts = json.dumps([*also, torch.__version__, facts], sort_keys=True)
    output = str(home / "runs" / digest(parts.replace(str(home), "")))
    return run.model_copy(update={"train": run.train.model_copy(update={"output": output})})


def digest(text: str) -> str:
    """Sixteen hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
