"""A generator by its name: `rules`, the address of a server, the folder of a training run, or
`MODULE:FUNCTION` of an engine."""

from __future__ import annotations

from pathlib import Path

from reference.generate import engine
from reference.generate.engine import Engine
from reference.generate.rules import Rules
from reference.generate.server import Server, ServerSpec

RUNS = "reference.inference.local:open_run"
"""What makes an engine of a run's folder; by name, since it needs torch."""


def choose(name: str, spec: ServerSpec | None = None) -> Rules | Server | Engine:
    """The generator. `spec` says more about a server. Raises UsageError (TW491,
    TW556, TW558)."""
    if name == "rules":
        return Rules()
    if name.startswith(("http://", "https://")):
        return Server(spec or ServerSpec(url=name))
    if Path(name).is_dir():
        return engine.load(RUNS, name)
    return engine.load(name)
