"""The document of an evaluation: JSON, version 1.

    version, seed, model, judge
    tasks.NAME    about, source, ask, scorer, digest, settings, cases, better, counts, and
      metrics.M     value, low, high (95 %, null where one group tells nothing), cases, how
      matrix        rows, columns, cells: of needle and attack
      skipped       in place of these: why the model could not be asked

It holds no time and no machine: the same model, tasks and seed give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def text_of(document: Mapping[str, Any]) -> str:
    """The document as the file has it."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
