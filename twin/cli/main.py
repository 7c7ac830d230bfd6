"""The command `twin`: one verb per question, one exit code per outcome.

Nothing heavy is imported here, so `twin --help` answers at once: `verbs.toml` describes the verbs,
and the module of a verb is imported when it runs. Exit codes: 0 ok, 1 a bug of ours, 2 usage, 3
invalid scenario or impossible layout, 4 valid but does not fit, 5 not as expected or beyond a
limit, 6 outside the calibrated range under `--strict`, 130 interrupted, 143 terminated. Of
several the lowest counts."""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twin.cli.output import complain, dumps
from twin.cli.verbs import register, verbs

if TYPE_CHECKING:
    from twin.errors import Problem

BUG, USAGE, INTERRUPTED = 1, 2, 130
LOOKS_FOR_GARBAGE = 50_000
"""New objects after which a command looks for garbage: Python's 700 are a fortieth of its time."""
TERMINATED = 128
"""Of a command that a signal ends: and the signal's number."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says of a disk without room."""
_NO_FILE = (errno.ENAMETOOLONG, errno.ELOOP)
"""What it says of names that no file has."""
PROBLEMS_VERSION = 1
"""Version of the JSON document that names what is wrong with the input."""
MOVED = {"schedule": "twin improve SCENARIO --passes 1min"}
"""Verbs of before, and what does the same now."""
_SHOWN = 80
"""Characters of a name that a message repeats."""

EPILOG = (
    "Exit codes: 0 ok, 1 bug, 2 usage, 3 invalid scenario or impossible layout, "
    "4 valid but does not fit, 5 not as expected, 6 outside the calibrated range (--strict), "
    "130, 143 interrupted, terminated."
)


def application(only: str = "") -> typer.Typer:
    """The command `twin` with all its verbs, or with one, which is quicker to make."""
    app = _app(completion=True)
    app.callback()(_twin)
    for name in [only] if only else verbs():
        register(app, name)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` default to those of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        _behave_in_pipes()
        gc.set_threshold(LOOKS_FOR_GARBAGE)
    try:
        code = _perform(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  the last stop: what is left is our bug
        return _explain(error, words)
    return code


def _behave_in_pipes() -> None:
    """End quietly where nobody reads on, as other commands do, and never fail at a character that
    the stream cannot carry, or at a stream that is closed."""
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    if sys.platform != "win32":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, _end)
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(errors="replace")


def _end(number: int, _: object) -> None:
    """End as if the command had ended by itself: its workers end, too, and leave nothing behind."""
    sys.exit(TERMINATED + number)


def _perform(words: list[str]) -> int:
    """Run one command and return its exit code."""
    if (odd := next(filter(_unspeakable, words), None)) is not None:
        complain(f"`{ascii(odd)[1:-1][:_SHOWN]}` holds a character that no argument can hold.")
        return USAGE
    if words and words[0] in MOVED:
        complain(f"`twin {words[0]}` is now `{MOVED[words[0]]}`.")
        return USAGE
    try:
        if "--help" in words[1:] and words[0] in verbs():
            # The help of one verb. Asked through the whole command, typer would first read the
            # options of the group, and import pydantic for that.
            verb = words[0]
            alone = _app(completion=False)
            register(alone, verb)
            alone(["--help"], prog_name=f"twin {verb}")
        else:
            only = words[0] if words and words[0] in verbs() else ""
            application(only)(words, prog_name="twin")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else BUG
    return 0


def _unspeakable(word: str) -> bool:
    """Whether no system could pass a word on, so that no file has its name either."""
    try:
        return b"\0" in os.fsencode(word)
    except UnicodeEncodeError:
        return True


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"twin {version('twin')}\n")
        raise typer.Exit


def _twin(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Declares the options of the command itself."""
    del version


def _app(*, completion: bool) -> typer.Typer:
    return typer.Typer(
        name="twin",
        help="The digital twin of large-model training clusters: does it fit, how long, how much, "
        "why.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=completion,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


def _explain(error: Exception, words: Sequence[str]) -> int:
    """Say what went wrong: the problems of an input as they are, anything else as a bug of ours."""
    from twin.errors import TwinError

    if isinstance(error, TwinError):
        problems = dict.fromkeys((*error.problems, *_strangers(words[0], words[1:])))
        error = type(error)(problems)
        if "--json" in words:
            problems = [problem.as_dict() for problem in error.problems]
            sys.stdout.write(dumps({"version": PROBLEMS_VERSION, "problems": problems}))
        complain(str(error))
        return error.exit_code
    if isinstance(error, OSError) and error.errno in _FULL:
        # What is left in the buffer cannot be written at exit either.
        sys.stdout = io.StringIO()
        complain(f"The answer cannot be written: {error.strerror}.")
        return USAGE
    if isinstance(error, OSError) and (error.errno in _NO_FILE or error.filename in words):
        complain(f"`{str(error.filename)[:_SHOWN]}` cannot be used: {error.strerror}.")
        return USAGE
    if os.environ.get("TWIN_DEBUG") == "1":
        complain("".join(traceback.format_exception(error)))
    complain(
        f"This is a bug in twin, not in your scenario: {type(error).__name__}: {error}\n"
        "Please report it with the command and the scenario; TWIN_DEBUG=1 shows the traceback."
    )
    return BUG


def _strangers(verb: str, words: Sequence[str]) -> Sequence[Problem]:
    """Which files of a command that failed are for other verbs."""
    from twin.interop.recognise import recognise, stranger

    found: list[Problem] = []
    for word in words:
        formats = recognise(Path(word))
        if not any("run" in one.uses for one in formats):
            found += filter(None, [stranger(formats, word, verb)])
    return found
