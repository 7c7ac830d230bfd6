"""Lists of words by name: `words.yaml`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml


@cache
def words(name: str) -> tuple[str, ...]:
    """One list."""
    text = Path(__file__).with_name("words.yaml").read_text(encoding="utf-8")
    return tuple(map(str, yaml.safe_load(text)[name]))
