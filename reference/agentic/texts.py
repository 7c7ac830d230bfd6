"""The word lists and phrases of synthetic dialogues, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reference.yaml_tables import yaml_table

_FOLDER = Path(__file__).parent


def table(name: str) -> Any:
    """The values of `NAME.yaml` in this folder."""
    return yaml_table(_FOLDER / f"{name}.yaml")


def words(name: str) -> tuple[str, ...]:
    """A word list of `words.yaml`."""
    return tuple(table("words")[name])
