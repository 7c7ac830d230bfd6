"""Texts and tables that stand beside the code, in YAML."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

_FOLDER = Path(__file__).parent


def read_yaml(path: Path) -> Any:
    """The plain values of a YAML file."""
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


@cache
def table(name: str) -> Any:
    """The values of `NAME.yaml` in this folder."""
    return read_yaml(_FOLDER / f"{name}.yaml")


def words(name: str) -> tuple[str, ...]:
    """A word list of `words.yaml`."""
    return tuple(table("words")[name])
