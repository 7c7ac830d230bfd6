"""Starts the reference trainer on the ranks of a local cluster (`python -m reference.cluster`)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from twin import units
from twin.errors import Problem, UsageError
from twin.spec.cluster import ClusterSpec

_ASK: Final = "from reference.cluster.namespaces import obstacle; print(obstacle())"
_LAST: Final = 12
"""Lines of a log that say why it ended."""


def checkout() -> Path:
    """The folder that holds the reference. Raises UsageError where it is not installed."""
    spec = find_spec("reference")
    if spec is None or not spec.submodule_search_locations:
        message = "the reference trainer is not here: it does not come with the package"
        raise UsageError([Problem("TW372", "", message, "run this in a checkout, after `make`")])
    return Path(next(iter(spec.submodule_search_locations))).parent


def obstacle() -> str:
    """Why no link can be held to a rate here; empty where they can be."""
    asked = subprocess.run(
        [sys.executable, "-c", _ASK], cwd=checkout(), capture_output=True, text=True, check=False
    )
    if asked.returncode:
        message = f"the reference does not start: {asked.stderr.strip().splitlines()[-1]}"
        raise UsageError([Problem("TW372", "", message, "pip install -e '.[reference]'")])
    return asked.stdout.strip()


def command(
    cluster: ClusterSpec, configuration: Path, *, shaped: bool, pinned: bool = False
) -> list[str]:
    """The words that start a run on the ranks of a cluster; `pinned`: each on a core of its own."""
    links = ["--loopback"]
    if shaped:
        links = ["--rate", units.format_quantity(cluster.node.nic.bandwidth, "bytes_per_s")]
    nodes, ranks = str(cluster.nodes), str(cluster.node.gpus)
    launcher = [sys.executable, "-m", "reference.cluster"]
    layout = ["--nodes", nodes, "--ranks-per-node", ranks, *links, *["--pin"] * pinned]
    return [*launcher, *layout, "--", "reference.train", str(configuration), "--fresh"]


def start(words: Sequence[str], log: Path) -> None:
    """Run to the end; what it says goes to a file. Raises UsageError (TW373) where it fails."""
    with log.open("wb") as said:
        code = subprocess.run(
            words, cwd=checkout(), stdout=said, stderr=subprocess.STDOUT, check=False
        ).returncode
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST:]
        message = f"the reference ended with exit code {code}:\n" + "\n".join(lines)
        raise UsageError([Problem("TW373", "", message, f"all that it said is in {log}")])
