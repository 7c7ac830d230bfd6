"""A wrong input, with the exact text that a planner must see.

Each starts from a copy of `workshop`, writes `files` into it, and loads `scenario` under
`overrides`. The cases lie by subject: `wrong_keys` (what is written where) and `wrong_values`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from twin.loading import catalog_parts

FABRICS = sorted([*catalog_parts("fabrics"), "toy-fabric"])
"""Those shipped, and the toy folder's."""

TOY = Path(__file__).with_name("workshop").joinpath("toy.yaml").read_text(encoding="utf-8")


def toy(old: str, new: str) -> dict[str, str]:
    """The toy scenario with one passage changed."""
    assert TOY.count(old) == 1
    return {"toy.yaml": TOY.replace(old, new)}


@dataclass(frozen=True)
class WrongInput:
    """What is wrong, and the whole message with the exit code."""

    name: str
    text: str
    files: dict[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    scenario: str = "toy.yaml"
    exit_code: int = 3
