"""What a critic holds answers to: rubrics as data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, Strict

from twin.errors import Problem, UsageError
from twin.loading.config import load_config
from twin.loading.suggest import hint
from twin.spec.base import Flag, Spec

FOLDER: Final = Path(__file__).with_name("rubrics")


class Rubric(Spec):
    """One thing that answers are compared by."""

    name: str = Field(description="of its own among all")
    asks: str = Field(description="what a better answer does, one sentence")
    weight: Annotated[float, Strict(), Field(ge=0, le=100)] = Field(
        default=1.0, description="what it counts beside the others"
    )
    mandatory: Flag = Field(
        default=False,
        description="who loses it for sure, in both orders, loses the pair, whatever else",
    )


class RubricsSpec(Spec):
    """A file of rubrics."""

    rubrics: Annotated[tuple[Rubric, ...], Field(min_length=1)] = Field(description="in order")


def names() -> list[str]:
    """The built-in files."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def rubrics(file: str) -> tuple[Rubric, ...]:
    """The rubrics of a built-in file, by name, or of a file of one's own. Raises UsageError TW652
    where there is none."""
    path = Path(file) if Path(file).is_file() else FOLDER / f"{file}.yaml"
    if not path.is_file():
        fix = hint(file, names(), "or name a YAML file")
        raise UsageError([Problem("TW652", "critique.rubrics", f"no rubrics `{file}`", fix)])
    return load_config(RubricsSpec, path).rubrics
