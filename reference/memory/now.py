"""What this thread does at the moment: whose forward it runs, and whether it runs one again.

Autograd runs the backward of a CUDA device in a thread of its own, so each thread has its own
answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reference.memory.stash import Stash


class Now(local):
    """The state of one thread."""

    stash: Stash | None = None
    """Whose policy holds for what runs."""
    again: bool = False
    """Whether a backward pass runs a forward again."""

    @contextmanager
    def running_again(self) -> Iterator[None]:
        """While a forward runs again."""
        before, self.again = self.again, True
        try:
            yield
        finally:
            self.again = before


now = Now()
