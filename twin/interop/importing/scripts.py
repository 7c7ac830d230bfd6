"""Launch scripts of any program: the words of the command that trains, and what the scheduler is
asked for (Slurm's `#SBATCH` lines, which also set its variables)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from twin.errors import Origin
from twin.interop.importing.launch import Source
from twin.interop.importing.shell import Command, Script, follow
from twin.loading.yaml_text import split_lines

_SBATCH: Final = re.compile(
    r"^[ \t]*#SBATCH[ \t]+--?([\w-]+)[= ][ \t]*(\S+)[ \t]*(?:#.*)?$", re.MULTILINE
)
_LAUNCHERS: Final = re.compile(
    r"(^|/)(torchrun|torch\.distributed\.(run|launch)|python[\d.]*|deepspeed|accelerate|ray)$"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a script asks of Slurm; None where it does not say."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    tasks_per_node: int | None = None

    @property
    def variables(self) -> dict[str, str]:
        """What Slurm sets from it."""
        tasks = None
        if self.nodes and self.tasks_per_node:
            tasks = self.nodes * self.tasks_per_node
        known = {
            "SLURM_NNODES": self.nodes,
            "SLURM_JOB_NUM_NODES": self.nodes,
            "SLURM_GPUS_ON_NODE": self.gpus_per_node,
            "SLURM_GPUS_PER_NODE": self.gpus_per_node,
            "SLURM_NTASKS_PER_NODE": self.tasks_per_node,
            "SLURM_NTASKS": tasks,
            "SLURM_NPROCS": tasks,
        }
        return {name: str(value) for name, value in known.items() if value}


def asked(text: str) -> Asked:
    """What a script asks of Slurm.

    >>> asked("#SBATCH -N 4\\n#SBATCH --gres=gpu:h100:8\\n")
    Asked(nodes=4, gpus_per_node=8, tasks_per_node=None)
    """
    said = dict(_SBATCH.findall(text))
    gpus = said.get("gpus-per-node") or said.get("gres", "")
    number = re.search(r"(?:^|:)(\d+)(?:\(|$)", gpus.removeprefix("gpu"))
    return Asked(
        _count(said.get("nodes") or said.get("N")),
        int(number[1]) if number else None,
        _count(said.get("ntasks-per-node")),
    )


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Words:
    """The words of the command that trains, each with its place; what was left out; and the values
    of the script's variables."""

    words: tuple[tuple[str, Origin], ...]
    remarks: tuple[str, ...]
    values: Mapping[str, str]

    @property
    def texts(self) -> tuple[str, ...]:
        """The words alone."""
        return tuple(text for text, _ in self.words)

    def option(self, *names: str) -> str | None:
        """The value of an option of the launcher, `--name value` or `--name=value`; None where it
        has none."""
        texts = self.texts
        for place, text in enumerate(texts):
            name, equals, value = text.partition("=")
            if name.lstrip("-").replace("_", "-") in names and name.startswith("-"):
                return value if equals else next(iter(texts[place + 1 : place + 2]), None)
        return None


def words_of(source: Source, program: str) -> Words:
    """The words of the last command that runs a program whose name fits, or else of the last that
    a launcher runs."""
    script = follow(source.text, {**asked(source.text).variables, **source.defined})
    lines = split_lines(source.text)

    def place(line: int) -> Origin:
        shown = lines[line - 1] if 0 < line <= len(lines) else ""
        return Origin(source.file, line, 1, shown, max(1, len(shown)))

    chosen = _chosen(script, program)
    words = tuple((word, place(line)) for word, line in chosen.words) if chosen else ()
    values = {name: held for name, held in script.values.items() if isinstance(held, str)}
    return Words(words, tuple(dict.fromkeys(script.remarks)), values)


def _chosen(script: Script, program: str) -> Command | None:
    fitting = [one for one in script.commands if _runs(one.texts, program)]
    launched = [one for one in script.commands if any(map(_LAUNCHERS.search, one.texts))]
    return next(iter((fitting or launched)[-1:]), None)


def _runs(texts: Sequence[str], program: str) -> bool:
    return any(re.search(program, text) for text in texts)
