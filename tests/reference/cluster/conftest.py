"""What tests of the local cluster share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from reference.cluster.launch import RankProgram
from reference.cluster.namespaces import obstacle


@pytest.fixture(scope="session")
def links() -> None:
    """Skips where there can be no links of a declared rate."""
    missing = obstacle()
    if missing:
        pytest.skip(missing)


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., RankProgram]:
    """Writes a program of ranks: `rank`, `dist` (joined over gloo) and `torch` are there."""

    def write(text: str, *arguments: str) -> RankProgram:
        path = tmp_path / "ranks.py"
        start = """
            import os, signal, sys, time
            from pathlib import Path
            import torch
            import torch.distributed as dist
            dist.init_process_group("gloo")
            dist.barrier()  # who ends early must not be missed while others still meet
            rank, size = dist.get_rank(), dist.get_world_size()
        """
        path.write_text(dedent(start) + dedent(text))
        return RankProgram(str(path), arguments)

    return write
