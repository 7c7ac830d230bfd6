"""Which dialogues a run learns from, and how they share sequences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from twin.spec.base import Spec


def _listed(value: object) -> object:
    """One file may be written without a list."""
    return (value,) if isinstance(value, str | Path) else value


class DialogsSpec(Spec):
    """Dialogues that a run learns from instead of its text, which still gives the tokenizer. Only
    what the assistant says has targets. `data.seed` orders them in each epoch."""

    source: Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)] = Field(
        description="JSONL files, a dialogue per line, as `python -m reference.agentic` writes them"
    )
    packing: Literal["shared", "alone"] = Field(
        default="shared",
        description="shared: whole dialogues follow each other in a sequence, and later ones see "
        "the earlier; alone: each begins a sequence of its own, and sees no other",
    )
    too_long: Literal["leave_out", "cut"] = Field(
        default="leave_out",
        description="what is done with a dialogue longer than a sequence; both are counted",
    )
