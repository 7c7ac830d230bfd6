"""Tables and texts that stand beside the code, in YAML."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


@cache
def yaml_table(path: Path) -> Any:
    """The plain values of a YAML file; it is read once, so do not change them."""
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
