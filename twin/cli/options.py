"""The options that every verb shares, declared once so that they read the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Fidelity(StrEnum):
    """How a step is simulated or estimated."""

    EVENTS = "events"
    FAST = "fast"
    GROUP = "group"


ScenarioArgument = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="Scenario file, or the name of a shipped one.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=VALUE", help="Override one field; repeat for more."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of tables.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict only.")]
FidelityOption = Annotated[
    Fidelity,
    typer.Option(
        "--fidelity",
        help="Simulate events of one rank per stage (events) or of every rank of one "
        "model-parallel group (group), or estimate by the longest path (fast).",
    ),
]
NoCacheOption = Annotated[
    bool, typer.Option("--no-cache", help="Simulate again, and store nothing in runs/.")
]
