"""What a command of the reference says, and how it ends: its exit code, whatever happens inside."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twin.errors import TwinError

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
    except TwinError as error:
        return _told(str(error), error.exit_code)
    except Exception:  # noqa: BLE001  the last stop: what is left is our bug
        traceback.print_exc()
        return 1


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
