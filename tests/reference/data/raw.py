"""A small corpus of four domains with everything that a build must find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reference.data.spec import BuildSpec
from reference.text.toy import write_raw


def small_build(folder: Path, **changed: Any) -> BuildSpec:
    """A build of 24 documents per domain, or so, in `folder`."""
    raw = folder / "raw"
    if not raw.exists():
        write_raw(raw, seed=0, documents=24)
    plain: dict[str, Any] = {
        "output": str(folder / "build"),
        "sources": [
            {"name": "towns", "domain": "knowledge", "path": [str(raw / "knowledge.jsonl")]},
            {"name": "sums", "domain": "maths", "path": [str(raw / "maths.jsonl")]},
            {
                "name": "abroad",
                "domain": "maths",
                "path": [str(raw / "abroad.jsonl")],
                "rules": [],
            },
            {"name": "programs", "domain": "code", "path": [str(raw / "code")]},
            {"name": "prose", "domain": "web", "path": [str(raw / "web")], "rules": []},
        ],
        "rephrase": [
            {"source": "towns", "style": "lecture", "piece": 40},
            {"source": "sums", "style": "learning-note"},
            {"source": "abroad", "style": "to-english"},
        ],
        "near": {"threshold": 0.7},
        "tokenizer": {"vocab": 400},
        "held_out": 0.1,
        "shard": 4096,
        "mixture": {"tokens": 30_000},
    }
    return BuildSpec.model_validate({**plain, **changed})


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder but its lock."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
