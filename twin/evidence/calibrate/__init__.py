"""Calibration: a few numbers of a profile, fitted on rows marked for it, and their errors on rows
that no fit has seen.

`calibrate` is the verb for anybody's measurements. `a100_rows`, `hopper`, `kernels` and
`weight_update` are the fits behind shipped parts; `withheld` measures what ten rows determine. Rows
that judge the twin are never fitted. Fits need the extra `calibrate` (scipy).
"""

from importlib.util import find_spec

from twin.errors import Problem, UsageError


def require_scipy() -> None:
    """Raises `UsageError` where the extra that fits is not installed."""
    if find_spec("scipy") is None:
        message = "fits need scipy, which is not installed"
        raise UsageError([Problem("TW031", "", message, "pip install 'twin[calibrate]'")])
