"""The options that every verb shares, declared once so that they read the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

ScenarioArgument = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=VALUE", help="Override one field; repeat for more."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout instead of tables.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No tables and no progress: the verdict only.")
]
