"""What the commands of the reference share: options, messages, progress bars, files that options
name, exit codes, and signals."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from twin.errors import Problem, TwinError, UsageError
from twin.spec.base import descriptions

INTERRUPTED = 130
"""As a shell tells of SIGINT."""


def exit_code(command: Callable[[], int], stopped: str = "stopped") -> int:
    """What the command returns; the code of an error that a user can mend, which is told on stderr;
    130 after Ctrl-C, with the words `stopped`; 1 with a traceback for what is our bug."""
    try:
        return command()
    except SystemExit as end:  # argparse's, after --help or a wrong option
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        return _told(stopped, INTERRUPTED)
    except Exception as error:  # noqa: BLE001  the last stop: what is left is our bug
        if (refused := refusal_of(error)) is not None:
            return _told(str(refused), refused.exit_code)
        traceback.print_exc()
        return 1


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def refusal_of(error: Exception) -> TwinError | None:
    """What a user can mend: our own errors, and a disk that takes or gives no more. None: a bug."""
    if isinstance(error, TwinError):
        return error
    if not isinstance(error, OSError) or error.errno not in _DISK:
        return None
    where = f"`{error.filename}`" if error.filename else "a file"
    message = f"{where} cannot be read or written: {error.strerror}"
    return UsageError([Problem("TW310", "", message, "make room, then `--resume` where it may")])


def say(text: str) -> None:
    """A message on stderr."""
    sys.stderr.write(f"{text}\n")


def answer(document: Mapping[str, Any], lines: Sequence[str], *, as_json: bool) -> None:
    """The answer on stdout: a document, or what it says to people."""
    text = json.dumps(document, indent=2, ensure_ascii=False) if as_json else "\n".join(lines)
    sys.stdout.write(f"{text}\n")


def _told(message: str, code: int) -> int:
    say(message)
    return code


def run_parser(
    name: str,
    summary: str,
    presets: Sequence[str],
    *,
    epilog: str | None = None,
    optional: bool = False,
) -> argparse.ArgumentParser:
    """The options of a command that runs a configuration: CONFIG (which may be `optional`),
    `--set`, `--resume`, `--fresh`."""
    parser = argparse.ArgumentParser(prog=name, description=summary, epilog=epilog)
    named = f"a file, or one of the presets: {', '.join(presets)}"
    parser.add_argument("config", metavar="CONFIG", nargs="?" if optional else None, help=named)
    parser.add_argument(
        "--set", metavar="A.B=VALUE", action="append", default=[], help="override one field"
    )
    held = parser.add_mutually_exclusive_group()
    held.add_argument("--resume", action="store_true", help="continue what the folder holds")
    held.add_argument("--fresh", action="store_true", help="delete what the folder holds")
    return parser


def existing_of(words: argparse.Namespace) -> Literal["refuse", "resume", "fresh"]:
    """What to do with what a run's folder holds, by `--resume` and `--fresh`."""
    return "resume" if words.resume else "fresh" if words.fresh else "refuse"


M = TypeVar("M", bound=BaseModel)


def section_options(
    parser: argparse.ArgumentParser, section: type[BaseModel], names: Sequence[str]
) -> None:
    """An option for each of these fields of a section."""
    defaults, meanings = section().model_dump(mode="json"), descriptions(section)
    for name in names:
        default = "" if defaults[name] is None else f" [{defaults[name]}]"
        told = f"{meanings[name]}{default}"
        kind = int if type(defaults[name]) is int else str
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, metavar="VALUE", type=kind, help=told)


def section_of(
    section: type[M], fields: Mapping[str, Any], code: str, option: str = "--", fix: str = ""
) -> M:
    """A section by its options, where they are given. Raises UsageError for the wrong ones."""
    try:
        return section.model_validate({k: v for k, v in fields.items() if v is not None})
    except ValidationError as error:
        problems = [
            Problem(code, f"{option}{each['loc'][0]}".replace("_", "-"), each["msg"].lower(), fix)
            for each in error.errors()
        ]
        raise UsageError(problems) from None


def write_file(path: Path, text: str, code: str, option: str) -> None:
    """Write a file that an option names, and its folder. Raises UsageError with this code."""
    make_folder(path, code, option)
    with _writing(path, code, option):
        path.write_text(text, encoding="utf-8")


def make_folder(path: Path, code: str, option: str) -> None:
    """Make the folder of such a file: before the work, so that nothing is worked out in vain."""
    with _writing(path, code, option):
        path.parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def _writing(path: Path, code: str, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"`{path}` cannot be written: {error.strerror}"
        raise UsageError([Problem(code, option, message)]) from None


@contextmanager
def terminal_bar(before: str = "", behind: str = "") -> Iterator[Any]:
    """A `rich.progress.Progress` on stderr, with columns of these formats before and behind the
    bar; None where stderr is no terminal."""
    # Only a command needs rich, and a library's caller brings its own bar.
    from rich import progress  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    bars = (progress.BarColumn(), progress.MofNCompleteColumn())
    first, last = progress.TextColumn(before), progress.TextColumn(behind)
    with progress.Progress(
        first, *bars, last, progress.TimeRemainingColumn(), console=console
    ) as shown:
        yield shown


_ENDING = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class Stop:
    """Whether the run was asked to end, and by which signal."""

    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """As a shell reports a process that the signal ended: 143 for SIGTERM, 130 for SIGINT."""
        return 128 + self.signal if self.signal else 0


@contextmanager
def ending_on_signals() -> Iterator[Stop]:
    """Within, the first signal asks to stop, and a second ends the process at once. What it had
    begun to write has no checkpoint's name, so nothing is lost but the time."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.signal is not None:
            os._exit(128 + number)
        stop.signal = number

    before = {number: signal.signal(number, ask) for number in _ENDING}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
