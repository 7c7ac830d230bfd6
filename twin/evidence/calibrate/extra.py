"""What fits need that the rest does not: scipy, the extra `calibrate`."""

from __future__ import annotations

from importlib.util import find_spec

from twin.errors import Problem, UsageError


def require_scipy() -> None:
    """Raises `UsageError` where the extra that fits is not installed."""
    if find_spec("scipy") is None:
        message = "fits need scipy, which is not installed"
        raise UsageError([Problem("TW031", "", message, "pip install 'twin[calibrate]'")])
