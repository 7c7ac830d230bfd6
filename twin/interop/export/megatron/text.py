"""A launch as text: a shell script, a list of arguments, or YAML as Megatron-LM's own tests have
it. All begin with comments that say where the file came from and what it leaves out."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict

from twin.errors import printable
from twin.interop.export.base import Stamp
from twin.interop.export.megatron.launch import Launch
from twin.interop.importing.megatron import Argument

_PLAIN = re.compile(r"[A-Za-z][\w./-]*")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off")
_ADD = (
    "Yours to add: data, tokenizer, learning rate, losses of the router, checkpoints, logs.",
    "Names: NVIDIA/Megatron-LM, megatron/training/arguments.py at 000c4ac2 (late 2025), and the",
    "options made of megatron/core/transformer/transformer_config.py at 002526d8 (2026).",
)


def written(launch: Launch, stamp: Stamp, suffix: str) -> str:
    """The text for a file that ends in this; a script for any ending that says nothing."""
    return _FORMS.get(suffix.lower(), script)(launch, stamp)


def script(launch: Launch, stamp: Stamp) -> str:
    """A shell script that runs it under torchrun."""
    lines = ["#!/bin/bash", *_head(launch, stamp), ""]
    lines += [f"export {name}={value}" for name, value in launch.environment.items()]
    lines += ["", "MEGATRON_ARGS=("]
    for heading, group in launch.groups.items():
        lines.append(f"    # {heading}")
        lines += [f"    {shlex.join(one.words)}" for one in group]
    lines += [")", ""]
    lines.append(f"torchrun --nnodes {launch.nodes} --nproc-per-node {launch.gpus_per_node} \\")
    lines.append('    pretrain_gpt.py "${MEGATRON_ARGS[@]}" "$@"')
    return "\n".join(lines) + "\n"


def listed(launch: Launch, stamp: Stamp) -> str:
    """One argument per line."""
    lines = [*_head(launch, stamp)]
    for heading, group in launch.groups.items():
        lines += ["", f"# {heading}", *(shlex.join(one.words) for one in group)]
    return "\n".join(lines) + "\n"


def yaml(launch: Launch, stamp: Stamp) -> str:
    """`ENV_VARS` and `MODEL_ARGS`."""
    lines = [*_head(launch, stamp)]
    if launch.environment:
        lines += ["", "ENV_VARS:"]
        lines += [f"  {name}: {value}" for name, value in launch.environment.items()]
    lines += ["", "MODEL_ARGS:"]
    for heading, group in launch.groups.items():
        lines += [f"  # {heading}", *(f"  --{one.name}: {_value(one)}" for one in group)]
    return "\n".join(lines) + "\n"


def _value(argument: Argument) -> str:
    """A switch is true; words are quoted for the shell that launchers pass them through."""
    return _scalar(shlex.join(argument.values)) if argument.values else "true"


def _scalar(text: str) -> str:
    """Text that YAML reads as it stands, or in quotes."""
    number = re.fullmatch(r"\d+(\.\d+)?(e-?\d+)?", text)
    plain = number or (_PLAIN.fullmatch(text) and text.lower() not in _WORDS)
    return text if plain else json.dumps(text)


def _head(launch: Launch, stamp: Stamp) -> Iterator[str]:
    """Where the file came from, and what it leaves out."""
    yield f"# {printable(stamp.scenario)}, as arguments of Megatron-LM"
    yield from (f"# {name}: {printable(text)}" for name, text in asdict(stamp).items())
    yield "#"
    yield from (f"# {line}" for line in _ADD)
    where = f"--node {launch.node} --nodes {launch.nodes} --fabric {launch.fabric}"
    yield f"# Back: twin import megatron FILE {printable(where)}"
    for title, lines in (
        ("Not said by these arguments", [str(loss) for loss in launch.losses]),
        ("Said, and different in Megatron-LM", launch.caveats),
    ):
        if lines:
            yield "#"
            yield f"# {title}:"
            yield from (f"# - {printable(line)}" for line in lines)


_FORMS: Mapping[str, Callable[[Launch, Stamp], str]] = {
    ".txt": listed,
    ".args": listed,
    ".yaml": yaml,
    ".yml": yaml,
}
