"""Searches of tiny steps run as plain Python, so that nothing has to be compiled; thorough tests
compile (`slow`)."""

from __future__ import annotations

import pytest

from twin.explore.schedules import kernel, search


@pytest.fixture(params=["plain", pytest.param("compiled", marks=pytest.mark.slow)], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setattr(search, "kernel", lambda: kernel)
        monkeypatch.setattr(search, "ROUNDS", 150)
        monkeypatch.setattr(search, "BATCH", 80)
    return request.param
