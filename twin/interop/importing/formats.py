"""Files of other programs: which format a file is, by its content, and what reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from twin.errors import Problem, UsageError
from twin.interop.importing.launch import Launch, Source
from twin.loading.files import display, read_data, read_text

MODEL: Final = "hf-config"
"""The format of a model alone; all others are launches."""
CARD: Final = "card"
"""The format that has measured rates."""
MODULES: Final[Mapping[str, str]] = {
    "megatron": "dialect",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "bridge": "bridge",
    "card": "card",
    "verl": "verl",
}
"""Launches by name: the module of this package, whose `read` takes a `Source`."""
FORMATS: Final = (MODEL, *MODULES)
"""What can be read."""
_LOOKED: Final = 250_000
"""Characters of a file that are looked at."""


def source_of(path: Path) -> Source:
    """A file, with nothing known beside it. Raises `UsageError` where it cannot be read."""
    return Source(read_text(path), display(path), folder=path.absolute().parent)


def recognised(source: Source) -> str:
    """The format of a file. Raises `UsageError` where it is none that is known."""
    ending = Path(source.file).suffix.lower().lstrip(".")
    text = source.text[:_LOOKED]
    for form, endings, sign in read_data(Path(__file__).with_name("formats.yaml")):
        if (not endings or ending in endings) and re.search(sign, text, re.MULTILINE):
            return form
    message = f"`{source.file}` is no file of a format that is known here"
    raise UsageError([Problem("TW041", "", message, f"name its format: {', '.join(FORMATS)}")])


def reader(form: str) -> Callable[[Source], Launch]:
    """What reads a launch of this format."""
    return import_module(f"{__package__}.{MODULES[form]}").read
