"""`twin ui`: open the app. What reads scenarios is loaded where one is given: the app's own process
loads it again."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from twin.cli.output import Output
from twin.errors import Problem, UsageError

VERSION = 1
"""Version of the JSON document."""
LOCAL = "localhost"
"""Where only this machine reaches the app."""


def ui(
    *, scenario: str | None, measured: Path | None, port: int, host: str, output: Output
) -> int | None:
    """Open the app, on a scenario that is checked first. The app takes the place of this process,
    so that what ends the one ends the other."""

    if find_spec("streamlit") is None or find_spec("plotly") is None:
        hint = "pip install 'twin[ui]', or `make app` in a checkout"
        raise UsageError(
            [Problem("TW031", "", "the app needs the extra `ui`, which is not installed", hint)]
        )
    # By its path: a find of the module would import the room, and streamlit with it.
    router = Path(__file__).parents[1] / "ui" / "router.py"
    words = [sys.executable, "-m", "twin.ui", "run", str(router), "--server.port", str(port)]
    words += ["--server.address", host, "--browser.serverAddress", host]
    opened = [_checked(scenario)] if scenario is not None else []
    opened += [_real(measured)] if measured is not None else []
    words += ["--", *opened] if opened else []
    if output.json:
        output.document({"version": VERSION, "command": words, "url": f"http://{host}:{port}"})
        return 0
    output.message(f"The app opens at http://{host}:{port}; Ctrl-C ends it.")
    if host != LOCAL:
        output.message("Whoever reaches this address can use it: the app has no login.")
    sys.stdout.flush()
    return os.execv(words[0], words)


def _real(folder: Path) -> str:
    """The absolute path of a real run's folder. Raises `twin.errors.TwinError` where it is none."""
    from twin.evidence.measured.run_folder import read

    return str(read(folder).folder.absolute())


def _checked(scenario: str) -> str:
    """What the app is to open: the name of a shipped scenario, or the absolute path of a file.

    Raises `twin.errors.TwinError` where no answer could be had from it.
    """
    from twin.kinds.base import kind_of
    from twin.loading import load_any
    from twin.loading.files import find_scenario, shipped_folder

    if scenario == "-":
        hint = "save the scenario to a file, and give that"
        message = "the app cannot read a scenario from standard input"
        raise UsageError([Problem("TW001", "", message, hint)])
    loaded = load_any(scenario)
    kind_of(loaded).plan(loaded)
    file = find_scenario(scenario).absolute()
    return file.stem if file.parent == shipped_folder().absolute() else str(file)
