"""A folder with a toy catalog and one scenario, `toy.yaml`, in which each test may write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

WORKSHOP = Path(__file__).with_name("workshop")


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the toy folder, entered, so that messages name files as a user in it would."""
    folder = tmp_path / "workshop"
    shutil.copytree(WORKSHOP, folder)
    monkeypatch.chdir(folder)
    return folder
