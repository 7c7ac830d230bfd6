"""The command in a process of its own that begins in milliseconds: a fork, in which torch is
imported already."""

from __future__ import annotations

import os
from collections.abc import Sequence

from reference.train import main


def in_a_child(arguments: Sequence[str], said: str = os.devnull) -> int:
    """The id of a process that runs the command and ends with its exit code; what it says goes into
    a file."""
    child = os.fork()
    if child:
        return child
    try:
        quiet = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os._exit(main(arguments))
    finally:
        os._exit(99)  # the test suite must not go on here, whatever happened
