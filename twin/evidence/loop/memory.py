"""What ranks kept for backwards that were to come, as their timelines say: a line
`{"kind": "memory", "step": 1, "name": "activations", "bytes": 4440064}` of the first step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from twin.evidence.measured.folder import TIMELINE

_KEPT: Final = '"name": "activations"'
"""In the line, which is looked for among many others."""


def kept_bytes(run: Path) -> int | None:
    """The most bytes of layers that waited for backwards at once on any rank, on its device and
    host; None where no rank says."""
    found = [
        int(json.loads(line)["bytes"])
        for path in sorted((run / TIMELINE).glob("rank-*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith('{"kind": "memory"') and _KEPT in line
    ]
    return max(found, default=None)
