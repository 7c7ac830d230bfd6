"""The programs under test, as a user starts them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def program() -> Path:
    """The `twin` command of this environment."""
    return Path(sys.executable).with_name("twin")
