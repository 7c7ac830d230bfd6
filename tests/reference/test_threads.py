"""Threads of a run sleep while they wait for each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("own", "spins"), [(None, False), ("ACTIVE", True)])
def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(
    own: str | None, spins: bool
) -> None:
    """OpenMP itself says what it found."""
    here = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    here |= {"OMP_DISPLAY_ENV": "VERBOSE"} | ({} if own is None else {"OMP_WAIT_POLICY": own})
    words = [sys.executable, "-c", "import reference, torch"]
    said = subprocess.run(words, env=here, capture_output=True, text=True, check=True).stderr
    count = re.search(r"GOMP_SPINCOUNT = '([^']*)'", said)
    if count is None:
        pytest.skip("torch here has another OpenMP than GNU's")
    assert (count[1] != "0") == spins
