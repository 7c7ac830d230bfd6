"""Megatron-LM's arguments to the sections of a scenario that they can say: model, parallel, memory
and train. The cluster, what it costs, its calibration, and what is expected of the run are not
among them.

Nothing is passed over: an argument is read, known to change nothing that is counted, named in a
remark with what is counted instead, or refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from twin.errors import UsageError
from twin.interop.importing.launch import Launch, sections_of, stem_of
from twin.interop.importing.megatron.launch_file import (
    Argument,
    Arguments,
    Written,
    read_arguments,
    read_arguments_text,
)
from twin.interop.importing.megatron.model import model_fields
from twin.interop.importing.megatron.run import memory_fields, parallel_fields, train_fields


def read_megatron(
    path: Path, defined: Mapping[str, str] | None = None, more: Sequence[str] = ()
) -> Launch:
    """The launch that a file describes: a script, a YAML file or plain text. `defined` are
    variables of it that are known, `more` further arguments, which win.

    Raises `UsageError` with everything that is wrong: no such file, no arguments in it, values that
    it does not say, architectures that cannot be expressed.
    """
    return _launch_of(read_arguments(path, defined or {}, more), path.name)


def read_megatron_text(
    text: str, name: str, defined: Mapping[str, str], more: Sequence[str] = ()
) -> Launch:
    """The launch that the text of a file describes."""
    return _launch_of(read_arguments_text(text, name, defined, more), name)


def _launch_of(written: Written, file: str) -> Launch:
    return understood(written.arguments, stem_of(file), written.remarks)


def understood(written: Iterable[Argument], name: str, remarks: Sequence[str] = ()) -> Launch:
    """What arguments say. Raises `UsageError` as above."""
    args = Arguments.of(written)
    args.remarks += remarks
    called = args.text("wandb-exp-name", name) if _says(args, "wandb-exp-name") else name
    fields = {
        "model": model_fields(args, called),
        "parallel": parallel_fields(args),
        "memory": memory_fields(args),
        "train": train_fields(args),
    }
    nodes, gpus = _launcher(args, "nnodes"), _launcher(args, "nproc-per-node")
    tally = args.finish()
    if args.problems:
        raise UsageError(args.problems)
    return Launch(
        name=called,
        **sections_of(fields),
        nodes=nodes,
        gpus_per_node=gpus,
        remarks=tuple(args.remarks),
        tally=tally,
    )


def _says(args: Arguments, name: str) -> bool:
    """Whether an option is there, with a value that is known."""
    args.taken.add(name)
    found = args.given.get(name)
    return found is not None and len(found.values) == 1 and "$" not in found.values[0]


def _launcher(args: Arguments, name: str) -> int | None:
    """A number of torchrun's; None where it is none that is known (`1:4`, `gpu`)."""
    args.taken.add(name)
    values = args.given[name].values if name in args else ()
    return int(values[0]) if values and re.fullmatch(r"\d+", values[0]) else None


__all__ = ["Launch", "read_megatron", "read_megatron_text", "understood"]
