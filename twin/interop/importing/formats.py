"""What reads a file of another program, by its format."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final

from twin.errors import Problem, UsageError
from twin.interop.importing.launch import Launch, Source
from twin.interop.recognise import read_by, recognised, stranger
from twin.loading.files import display, read_text

MODEL: Final = "hf-config"
"""The format of a model alone; all others are launches."""
CARD: Final = "card"
"""The format that has measured rates."""
FORMATS: Final = read_by("import")
"""What can be imported."""


def source_of(path: Path) -> Source:
    """A file, with nothing known beside it. Raises `UsageError` where it cannot be read."""
    return Source(read_text(path), display(path), folder=path.absolute().parent)


def format_of(source: Source) -> str:
    """The format of a text. Raises `UsageError` where it is none that can be imported."""
    formats = recognised(source.text.encode())
    found = [one.name for one in formats if "import" in one.uses]
    if not found:
        message = f"`{source.file}` is no file of a format that is known here"
        unknown = Problem("TW041", "", message, f"name its format: {', '.join(FORMATS)}")
        raise UsageError([stranger(formats, source.file, "import") or unknown])
    return found[0]


def reader(form: str) -> Callable[[Source], Launch]:
    """What reads a launch of this format: `read` of a module of this package."""
    return import_module(f"{__package__}.{'dialect' if form == 'megatron' else form}").read
