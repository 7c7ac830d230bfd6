"""Software stacks of published rows: what a framework does where a row does not say.

A stack is a YAML in scenarios/published/stacks: the titles of the sources that ran it, words that
tell it from others of the same source, its calibration profile per GPU, and its habits as a piece
of a scenario. What is in a stack is a property of software, the same for every row that ran it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from ruamel.yaml import YAML

from twin.evidence.validate.row import Row
from twin.loading import load_part
from twin.loading.files import shipped_folder

FOLDER = "stacks"
"""Of the shipped stacks, beside the suites."""

Convention = Literal["causal", "full", "hardware"]
"""What a source counts as the FLOP of attention: the half that causality leaves, all of it, or all
of it and everything that is computed again."""


class Stack(BaseModel):
    """A software stack."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    software: str = Field(description="frameworks and kernels, with their years")
    sources: tuple[str, ...] = Field(description="how titles of its sources begin")
    words: tuple[str, ...] = Field(
        default=(), description="what a row must say, of a source with several stacks"
    )
    models: tuple[str, ...] = Field(
        default=(), description="how names of models begin that its source runs so; all, if none"
    )
    convention: Convention = Field(description="what its TFLOP/s count")
    profiles: dict[str, str] = Field(description="the calibration of each GPU")
    recompute: tuple[tuple[str, ...], ...] = Field(
        default=((), ("full",)),
        description="what is computed again where a row says nothing: the first that fits",
    )
    zero: Literal[0, 1, 2, 3] = Field(
        default=1, description="what is sharded over data ranks where a row says nothing"
    )
    reduces_once: bool = Field(
        default=False,
        description="gradients that are sharded (zero 2) are reduced once a step under a pipeline, "
        "not once per micro-batch",
    )
    sequence_parallel: bool = Field(default=True, description="where there are tensor ranks")
    expert_tensor: Literal["one", "tensor"] = Field(
        default="one", description="ranks that share an expert where a row says nothing"
    )
    dispatcher: Literal["alltoall", "deepep"] = Field(
        default="alltoall", description="of tokens to experts, where a row says nothing"
    )
    layers_per_chunk: int | None = Field(
        default=None, description="of interleaved stages, where a row does not say how many chunks"
    )
    splits: tuple[str, ...] = Field(
        default=(),
        description="layers per chunk as its recipes write them, such as `4*15 1`; each is used "
        "for as many chunks and layers",
    )
    overlap_tensor: Literal["none", "bulk", "pieces"] = Field(
        default="none", description="collectives of tensor ranks beside products"
    )
    memory: Literal["allocated", "reserved"] = Field(
        default="allocated",
        description="what its peaks are: tensors at the fullest moment, or all that torch's "
        "allocator took for them",
    )
    over: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="what is changed in parts of the catalog"
    )
    scenario: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="its other habits, as sections of a scenario"
    )

    def split(self, chunks: int, layers: int) -> tuple[int, ...] | None:
        """Its recipe's layers of every chunk; None where it has none for so many."""
        own = (_spelled(one) for one in self.splits)
        return next((one for one in own if (len(one), sum(one)) == (chunks, layers)), None)

    def ran(self, row: Row) -> bool:
        """Whether a row is one of its own."""
        own = any(row.source.startswith(title) for title in self.sources)
        named = not self.models or any(row.model.startswith(name) for name in self.models)
        return own and named and all(word in row.words for word in self.words)


def _spelled(split: str) -> tuple[int, ...]:
    """The counts behind `4*15 1`: fifteen fours and a one."""
    parts = [part.partition("*") for part in split.split()]
    return tuple(int(own) for own, _, times in parts for _ in range(int(times or 1)))


@cache
def stacks() -> tuple[Stack, ...]:
    """All stacks, those that need more first."""
    folder = shipped_folder() / "published" / FOLDER
    found = [_read(file) for file in sorted(folder.glob("*.yaml"))]
    return tuple(sorted(found, key=lambda one: -len(one.words) - len(one.models)))


def _read(file: Path) -> Stack:
    # ruamel leaves the type of its streams open.
    return Stack.model_validate(YAML(typ="safe").load(file))  # pyright: ignore[reportUnknownMemberType]


UNKNOWN: Final = Stack(
    name="unknown software", software="", sources=(), convention="causal", profiles={}
)
"""Of rows whose source no stack names: nothing but defaults."""


def stack_of(row: Row, gpu: str) -> Stack:
    """The stack that a row ran, on a GPU of the catalog."""
    own = [stack for stack in stacks() if stack.ran(row)]
    for stack in own:
        if gpu in stack.profiles:
            return stack
    return own[0] if own else UNKNOWN


def profile_of(stack: Stack, gpu: str) -> str:
    """The calibration of a GPU of the catalog under a stack; the GPU's own where the stack has
    none for it."""
    return stack.profiles.get(gpu) or load_part("gpus", gpu).spec.calibration
