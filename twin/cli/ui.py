"""`twin ui`: open the app."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from twin.cli.options import JsonOption, QuietOption
from twin.cli.output import Output

VERSION = 1
"""Version of the JSON document."""

_ScenarioOption = Annotated[
    str | None, typer.Argument(metavar="SCENARIO", help="The scenario that the app opens on.")
]
_PortOption = Annotated[
    int, typer.Option("--port", help="The port that the app listens on.", min=1, max=65535)
]


def ui(
    scenario: _ScenarioOption = None,
    port: _PortOption = 8501,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Open the app on a scenario.

    With `--json`, prints the command that would open it, and starts nothing.
    """
    from twin.errors import Problem, UsageError

    app = Path(__file__).parents[2] / "app.py"
    if not app.exists():
        hint = "clone the repository and run `make app` there"
        raise UsageError(
            [Problem("TW030", "", f"the app is part of a checkout, and {app} does not exist", hint)]
        )
    if find_spec("streamlit") is None or find_spec("plotly") is None:
        hint = "pip install 'twin[ui]', or `make app` in a checkout"
        raise UsageError(
            [Problem("TW031", "", "the app needs the extra `ui`, which is not installed", hint)]
        )
    words = [sys.executable, "-m", "streamlit", "run", str(app), "--server.port", str(port)]
    words += ["--", scenario] if scenario else []
    output = Output(as_json, quiet)
    if as_json:
        output.document({"version": VERSION, "command": words, "url": f"http://localhost:{port}"})
        return
    output.message(f"The app opens at http://localhost:{port}; Ctrl-C ends it.")
    raise typer.Exit(subprocess.call(words))
