"""How long the reference trainer's ranks compute at least, so that they stand in for the scenario's
GPUs (`train.pace`): seconds of each stretch of a pass between two transfers, by chunk, and of the
optimizer's computing, by stage.

    {"version": 1, "about": {...}, "optimizer": [0.02, 0.03],
     "chunks": {"0": {"F": [0.01, 0.004, 0.003], "B": [...], "I": [...], "W": [...]}, ...}}

The ranks run their real kernels and sleep for the rest; transfers between them are real. Every
transfer of a pass ends a stretch, so kernels that would run beside one count to the stretch behind
it.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from twin.answers import Run
from twin.engine.program import COMPUTE, HOST, Program, Template
from twin.interop.export.base import Stamp
from twin.schedules.base import Pass

SUFFIX = ".pace.json"
PARTS = ("",)
VERSION = 1
"""Of the file, as the trainer knows it."""


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """One JSON document."""
    program: Program = run.program
    chunks: dict[str, dict[Pass, list[float]]] = {}
    for (kind, chunk), template in program.passes.items():
        chunks.setdefault(str(chunk), {})[kind] = [one / 1e9 for one in stretches(template)]
    document = {
        "version": VERSION,
        "about": asdict(stamp),
        "optimizer": [one / 1e9 for one in updates(program)],
        "chunks": chunks,
    }
    return {"": (json.dumps(document, indent=2) + "\n").encode()}


def stretches(template: Template) -> tuple[int, ...]:
    """Nanoseconds of computing before, between and behind the transfers of a pass, in order."""
    found = [0]
    for step in template:
        if step.stream == COMPUTE:
            found[-1] += step.duration_ns
        elif step.stream != HOST:
            found.append(0)
    return tuple(found)


def updates(program: Program) -> tuple[int, ...]:
    """Nanoseconds that the optimizer computes, by stage."""
    return tuple(
        sum(step.duration_ns for step in template if step.stream == COMPUTE)
        for template in program.finish
    )
