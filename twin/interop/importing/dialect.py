"""Megatron-LM's arguments where something is known beside them, and what is said in words that mean
such arguments (Megatron-Bridge, its cards, verl's Megatron workers)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

from twin.interop.importing.launch import Launch, Source
from twin.interop.importing.megatron import understood
from twin.interop.importing.megatron.launch_file import Argument, read_arguments_text
from twin.interop.importing.scripts import asked
from twin.interop.model_arguments import model_arguments
from twin.spec.model import ModelSpec


def read(source: Source) -> Launch:
    """The launch that a script, a YAML or a list of arguments describes. What it leaves to its
    tokenizer is of the model that is known beside it."""
    found = read_arguments_text(source.text, source.file, source.defined, source.more)
    launch = launch_of(found.arguments, source, source.model, found.remarks)
    slurm = asked(source.text)
    return replace(
        launch,
        nodes=launch.nodes or slurm.nodes,
        gpus_per_node=launch.gpus_per_node or slurm.gpus_per_node,
    )


def launch_of(
    said: Iterable[Argument],
    source: Source,
    model: ModelSpec | None,
    remarks: Sequence[str] = (),
) -> Launch:
    """The launch of arguments, before which come those of a model that is known."""
    known = model_arguments(model) if model else ()
    launch = understood((*known, *said), source.name, remarks)
    if model is None:
        return launch
    same = launch.model.model_copy(update={"name": model.name}) == model
    own = tuple({one.name for one in known} - {one.name for one in said})
    tally = replace(launch.tally, read=launch.tally.read - len(own))
    return replace(launch, model=model if same else launch.model, tally=tally)


def argument(name: str, value: object) -> Argument | None:
    """An argument of a plain value: switches are on or absent, and null says nothing."""
    if value is None or value is False:
        return None
    if isinstance(value, list | tuple):
        return Argument(name, tuple(str(one) for one in cast("list[object]", value)))
    return Argument(name, () if value is True else (str(value),))
