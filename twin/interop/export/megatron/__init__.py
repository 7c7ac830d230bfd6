"""A plan as Megatron-LM's arguments: a launch script (`.sh`), a list (`.txt`), or YAML (`.yaml`).

    twin export SCENARIO --format megatron -o args.sh

Comments list fields that the arguments do not express, each with its value when they are read back
(`twin import megatron`), and what has to be added: data, tokenizer, learning rate.
"""

from __future__ import annotations

from twin.answers import Run
from twin.interop.export.base import Stamp
from twin.interop.export.megatron.launch import launch, script, written

exported = launch
SUFFIX = ".sh"
PARTS = ("",)


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """The launch script."""
    return {"": script(launch(run.plan), stamp).encode()}


__all__ = ["PARTS", "SUFFIX", "exported", "files", "written"]
