"""A plan as Megatron-LM's arguments: a launch script (`.sh`), a list (`.txt`), or YAML (`.yaml`).

    twin export SCENARIO --format megatron -o args.sh

Comments hold what the arguments do not say, each with what it becomes when they are read back
(`twin import megatron`), and what still has to be added: data, tokenizer, learning rate.
"""

from __future__ import annotations

from twin.export.base import Stamp
from twin.export.megatron.launch import Launch, launch
from twin.export.megatron.text import script, written
from twin.runs import Run

__all__ = ["PARTS", "SUFFIX", "Launch", "files", "launch", "written"]

SUFFIX = ".sh"
PARTS = ("",)


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """The launch script."""
    return {"": script(launch(run.plan), stamp).encode()}
