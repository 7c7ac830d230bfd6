"""Small files that belong to a model beside its weights: the tokenizer's, and the licence."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

NAMES: Final = (
    "LICENSE",
    "chat_template.jinja",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tiktoken.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)
"""What is copied both ways; no code is."""


def copy_companions(source: Path, target: Path) -> None:
    """Copy those that are there."""
    for name in NAMES:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
