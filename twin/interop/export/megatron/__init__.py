"""A plan as Megatron-LM's arguments: a launch script (`.sh`), a list (`.txt`), or YAML (`.yaml`).

    twin export SCENARIO --format megatron -o args.sh

Comments hold what the arguments do not say, each with what it becomes when they are read back
(`twin import megatron`), and what still has to be added: data, tokenizer, learning rate.
"""

from __future__ import annotations

from twin.answers import Run
from twin.interop.export.base import Stamp
from twin.interop.export.megatron.launch import Launch, launch
from twin.interop.export.megatron.text import script, written

__all__ = ["PARTS", "SUFFIX", "Launch", "files", "launch", "written"]

SUFFIX = ".sh"
PARTS = ("",)


def files(run: Run, stamp: Stamp) -> dict[str, bytes]:
    """The launch script."""
    return {"": script(launch(run.plan), stamp).encode()}
