"""What a scorer of texts is, and all of them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from reference.generate.generator import Generator

Row = Mapping[str, Any]
"""A case as its file has it: what a scorer needs stands there under the names that it says."""


@dataclass(frozen=True, slots=True)
class Judging:
    """Answers that belong to one case each, and who judges where a generator does."""

    rows: Sequence[Row]
    texts: Sequence[str]
    judge: Generator | None


@dataclass(frozen=True, slots=True)
class Scorer:
    """A way to judge texts."""

    about: str
    fields: tuple[str, ...]
    """What a case must hold."""
    judge: Callable[[Judging], list[float]]
    """A score of 0 to 1 for each text; 1 is solved."""
    answer: Callable[[str], str | None]
    """What a text answers, in the form that votes are counted by; None where it answers nothing."""


NAMES: Final = ("exact", "contains", "numeric", "code", "verifier")


def scorer(name: str) -> Scorer:
    """The scorer of this name, one of `NAMES`."""
    return import_module(f"reference.evaluate.scorers.{name}").SCORER
