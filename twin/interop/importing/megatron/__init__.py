"""Megatron-LM's arguments to the sections of a scenario that they can say: model, parallel, memory
and train. The cluster, what it costs, its calibration, and what is expected of the run are not
among them.

Nothing is passed over: an argument is read, known to change nothing that is counted, named in a
remark with what is counted instead, or refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from twin.errors import Problem, UsageError
from twin.interop.importing.megatron.launch_file import (
    Argument,
    Arguments,
    Written,
    read_arguments,
    read_arguments_text,
)
from twin.interop.importing.megatron.model import model_fields
from twin.interop.importing.megatron.run import memory_fields, parallel_fields, train_fields
from twin.scenario import ParallelSpec, TrainSpec
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class Launch:
    """What the arguments of a launch say of a run, and what a reader must know about that, as
    sentences; `nodes` and `gpus_per_node` where the launcher's say them."""

    name: str
    model: ModelSpec
    parallel: ParallelSpec
    memory: MemorySpec
    train: TrainSpec
    nodes: int | None = None
    gpus_per_node: int | None = None
    remarks: tuple[str, ...] = ()


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
    stem = file.removesuffix(Path(file).suffix).encode(errors="replace").decode()
    return understood(written.arguments, stem, written.remarks)


def understood(written: Iterable[Argument], name: str, remarks: Sequence[str] = ()) -> Launch:
    """What arguments say. Raises `UsageError` as above."""
    args = Arguments.of(written)
    args.remarks += remarks
    called = args.text("wandb-exp-name", name) if _says(args, "wandb-exp-name") else name
    sections: dict[type[Any], dict[str, Any]] = {
        ModelSpec: model_fields(args, called),
        ParallelSpec: parallel_fields(args),
        MemorySpec: memory_fields(args),
        TrainSpec: train_fields(args),
    }
    nodes, gpus = _launcher(args, "nnodes"), _launcher(args, "nproc-per-node")
    args.finish()
    if args.problems:
        raise UsageError(args.problems)
    model, parallel, memory, train = (_validated(spec, fields) for spec, fields in sections.items())
    return Launch(called, model, parallel, memory, train, nodes, gpus, tuple(args.remarks))


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


def _validated(spec: type[Any], fields: dict[str, Any]) -> Any:
    try:
        return TypeAdapter(spec).validate_python(fields)
    except ValidationError as error:
        raise UsageError(
            Problem(
                "TW015",
                ".".join(map(str, entry["loc"])),
                f"the arguments give {entry['input']!r}: {entry['msg']}",
            )
            for entry in error.errors(include_url=False)
        ) from None
