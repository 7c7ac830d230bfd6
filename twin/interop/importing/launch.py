"""What every importer gives: a launch, as the sections of a scenario that its file can say; and
what every importer gets: the file, and what is known beside it. The cluster, what it costs, its
calibration, and what is expected of the run are in no such file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from twin.errors import Problem, UsageError
from twin.interop.importing.keys import Tally
from twin.interop.recognise import Language, language
from twin.scenario import ParallelSpec, TrainSpec
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec

Fields = dict[str, Any]

SECTIONS: Final[Mapping[str, type[Any]]] = {
    "model": ModelSpec,
    "parallel": ParallelSpec,
    "memory": MemorySpec,
    "train": TrainSpec,
}
"""Sections of a scenario that a launch can say."""
MEGATRON: Final = "megatron-core"
"""Software of the catalog that runs Megatron-LM's arguments."""


def stem_of(file: str) -> str:
    """The name of a file without its ends, `.gz` among them."""
    path = Path(file.removesuffix(".gz"))
    return path.name.removesuffix(path.suffix).encode(errors="replace").decode()


@dataclass(frozen=True, slots=True)
class Source:
    """A file of another program: its text and name, and what whoever asks knows beside it."""

    text: str
    file: str
    defined: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of the file that are known."""
    more: Sequence[str] = ()
    """Further arguments or keys, which win."""
    model: ModelSpec | None = None
    """The model, where it is known apart from the file."""
    gpus: int | None = None
    """Of the cluster."""
    folder: Path | None = None
    """Where files lie that this one names; None where it comes alone."""

    @property
    def name(self) -> str:
        """What the run is called, if nothing in the file names it."""
        return stem_of(self.file)

    @property
    def language(self) -> Language:
        """What it is written in."""
        return language(self.text)

    def beside(self, named: str | None, ending: str) -> Path:
        """The file that this one names. Raises `UsageError` where it names none, or comes alone."""
        if self.folder is not None and named and named.endswith(ending) and "$" not in named:
            return self.folder / named
        alone = named if named and "$" not in named else None
        message = f"`{self.file}` names {f'`{alone}`' if alone else f'no {ending[1:].upper()}'}"
        raise UsageError([Problem("TW041", "", message, f"import the {ending[1:].upper()} itself")])


@dataclass(frozen=True, slots=True)
class Measured:
    """A rate that a file holds beside its recipe."""

    gpu: str
    step_seconds: float
    model_tflops_per_gpu: float | None = None
    node: str | None = None
    """The usual node of that GPU."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a file says of a run, and what a reader must know about that, as sentences; `nodes` and
    `gpus_per_node` where it says them."""

    name: str
    model: ModelSpec
    parallel: ParallelSpec
    memory: MemorySpec
    train: TrainSpec
    nodes: int | None = None
    gpus_per_node: int | None = None
    remarks: tuple[str, ...] = ()
    software: str = MEGATRON
    """Of the catalog."""
    tally: Tally = field(default_factory=Tally)
    rl: Fields | None = None
    """The section of that name, where the file is about reinforcement learning."""
    measured: Measured | None = None

    @property
    def summary(self) -> str:
        """How it is laid out, in a few words."""
        parallel = self.parallel
        degrees = {
            "tensor": parallel.tensor,
            "context": parallel.context,
            "pipeline": parallel.pipeline,
            "virtual": parallel.virtual,
            "expert": parallel.expert,
        }
        shown = (f"{axis} {degree}" for axis, degree in degrees.items() if degree > 1)
        return ", ".join(shown) or f"zero {parallel.zero}, no other axis"


def sections_of(fields: Mapping[str, Fields]) -> dict[str, Any]:
    """The sections of these fields. Raises `UsageError` with every field that cannot be so."""
    return {key: _validated(SECTIONS[key], own) for key, own in fields.items()}


def _validated(spec: type[Any], fields: Fields) -> Any:
    try:
        return TypeAdapter(spec).validate_python(fields)
    except ValidationError as error:
        raise UsageError(
            Problem(
                "TW015",
                ".".join(map(str, entry["loc"])),
                f"the file gives {entry['input']!r}: {entry['msg']}",
            )
            for entry in error.errors(include_url=False)
        ) from None
