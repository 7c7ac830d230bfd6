"""The isolations that this machine has. The default run takes the best one; `slow` all others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reference.sandbox.isolation import Isolation, Means, plain
from reference.sandbox.job import RunLimits
from reference.sandbox.run import best

TIGHT = RunLimits.model_validate(
    {
        "cpu": "1s",
        "wall": "3s",
        "memory": "128MiB",
        "processes": 16,
        "scratch": "1MiB",
        "files": 64,
        "file_size": "4MiB",
        "output": "4KiB",
    }
)


@pytest.fixture(
    params=[
        "best",
        pytest.param("plain", marks=pytest.mark.slow),
        pytest.param("bare", marks=pytest.mark.slow),
    ]
)
def isolation(request: pytest.FixtureRequest) -> Isolation:
    """`best`: what a user gets here; `plain`: without bubblewrap; `bare`: a kernel without
    namespaces, Landlock and filters of calls."""
    if request.param == "best":
        return best(TIGHT)
    if request.param == "plain":
        return plain(limits=TIGHT)
    return plain(Means(root=os.geteuid() == 0, namespaces=0, landlock=0, filter=False))


@pytest.fixture
def limits() -> RunLimits:
    return TIGHT


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the host that every user may enter and write."""
    opened = [one for one in [tmp_path, *tmp_path.parents] if one.stat().st_uid == os.geteuid()]
    for one in opened[:4]:
        if one not in (Path("/"), Path("/tmp")):
            one.chmod(one.stat().st_mode | 0o055)
    tmp_path.chmod(0o777)
    return tmp_path
