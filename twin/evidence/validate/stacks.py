"""Software of published rows: stacks of training rows and recipes of reinforcement learning rows.

A stack is a YAML in scenarios/published/stacks: the titles of the sources that ran it, words that
tell it from other stacks of the same source, its calibration profile per GPU, and its habits as a
piece of a scenario. A recipe is a YAML in scenarios/published/recipes: lengths, batches and habits
of a framework, from its public recipes, or assumed once for all rows of a source. Nothing in either
was chosen by what a row measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict

from twin.arch.ops import Dispatcher
from twin.evidence.validate.suite import PublishedRow, degree
from twin.loading import load_part
from twin.loading.files import read_data, shipped_folder

Tree = dict[str, Any]

_STACKS = "stacks"
"""Of the shipped stacks, beside the suites."""

Statistic = Literal["allocated", "reserved", "in use"]
"""What a peak of memory counts: tensors that are alive (`max_memory_allocated`), all that torch's
allocator holds (`max_memory_reserved`), or all of the device (`nvidia-smi`)."""
STATISTICS: Final[tuple[Statistic, ...]] = ("allocated", "reserved", "in use")
Convention = Literal["causal", "full", "hardware"]
"""What a source counts as the FLOP of attention: the half that causality leaves, all of it, or all
of it and everything that is computed again."""


class Script(BaseModel):
    """What a public launch script of a source says, for rows that leave it out. A script that names
    its sources holds for all their rows of its model and GPU, and of what else it says; another
    only where they are of its GPUs, precision and sequence, and say no batch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    script: str
    """Where it is."""
    model: str
    gpu: str
    sources: tuple[str, ...] = ()
    """How titles of the releases begin whose script it is."""
    gpus: int | None = None
    precision: str = ""
    seq: int | None = None
    says: dict[str, Any] = {}
    """Fields of a row; those that the row has stay, and so do entries of its layout."""
    corrects: dict[str, Any] = {}
    """Fields, and entries of the layout, that the row states otherwise than the script ran."""
    part: str = ""
    """Software of the catalog that it runs, where not its stack's."""
    over: dict[str, Any] = {}
    """What it changes in parts of the catalog."""

    def ran(self, row: PublishedRow) -> bool:
        """Whether it launched what a row measured."""
        if (self.model, self.gpu) != (row.model, row.gpu):
            return False
        if self.sources:
            named = any(begins(row.source, title) for title in self.sources)
            sized = self.gpus in (None, row.gpus) and self.seq in (None, row.sequence)
            return named and sized and self.precision in ("", row.precision)
        mine = (self.gpus, self.precision, self.seq)
        return row.batch is None and mine == (row.gpus, row.precision, row.sequence)

    def completed(self, row: PublishedRow) -> PublishedRow:
        """The row, and what it leaves out or has wrong."""
        layout = {**self._layout(self.says), **row.layout, **self._layout(self.corrects)}
        fields = {**self.says, **row.fields, **self.corrects, "parallelism": layout}
        return PublishedRow(fields, row.models)

    @staticmethod
    def _layout(fields: dict[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = fields.get("parallelism", {})
        return own


class Stack(BaseModel):
    """A software stack."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    software: str
    """Frameworks and kernels, with their years."""
    sources: tuple[str, ...]
    """How titles of its sources begin."""
    words: tuple[str, ...] = ()
    """What a row must say, of a source with several stacks."""
    models: tuple[str, ...] = ()
    """How names of models begin that its source runs so; all, if none."""
    convention: Convention
    """What its TFLOP/s count."""
    part: str = ""
    """Its software in the catalog; none: a host that is always ahead."""
    sharded: str = ""
    """Its software where parameters are sharded (zero 3), where that is another."""
    frameworks: tuple[str, ...] = ()
    """Words by which a source that no stack names is one of its own."""
    until: int | None = None
    """The last year in which those words mean it."""
    kernels: tuple[str, ...] = ()
    """Words that tell how PyTorch runs its layers: of stacks that have such words, they choose,
    whatever framework is named."""
    profiles: dict[str, str] = {}
    """The calibration of each GPU, where not that of its software."""
    flash2: dict[str, str] = {}
    """The calibration of each GPU, for rows that ran FlashAttention 2."""
    recompute: tuple[tuple[str, ...], ...] = ((), ("full",))
    """What is computed again where a row says nothing: the first that fits."""
    zero: Literal[0, 1, 2, 3] = 1
    """What is sharded over data ranks where a row says nothing."""
    reduces_once: bool = False
    """Gradients that are sharded (zero 2) are reduced once a step under a pipeline, not once
    per micro-batch."""
    sequence_parallel: bool = True
    """Where there are tensor ranks."""
    expert_tensor: Literal["one", "tensor"] = "one"
    """Ranks that share an expert where a row says nothing."""
    dispatcher: Dispatcher = "alltoall"
    """Of tokens to experts, where a row says nothing."""
    virtual: int | None = None
    """Chunks per stage, where a row says nothing."""
    layers_per_chunk: int | None = None
    """Of interleaved stages, where a row does not say how many chunks."""
    even_layers: bool = False
    """Every chunk has as many layers, where no recipe says otherwise and they divide (Megatron-LM
    asserts that they do, unless a flag says otherwise)."""
    interleaves_above: float | None = None
    """Bubble over work of plain 1F1B above which a row that says no schedule ran an interleaved
    one: nobody lets a cluster wait for longer."""
    delays_weight_gradients: bool = False
    """With an overlapped all-to-all, gradients of weights come after that of the input."""
    splits: tuple[str, ...] = ()
    """Layers per chunk as its recipes write them, such as `4*15 1`; each is used for as many
    chunks and layers."""
    overlap_tensor: Literal["none", "bulk", "pieces"] = "none"
    """Collectives of tensor ranks beside products."""
    memory: Statistic = "allocated"
    """What its logs print as the peak, of rows that do not say."""
    micro_batches: int = 1
    """Of a step, for rows that time a micro-batch."""
    scripts: tuple[Script, ...] = ()
    """Launch scripts of rows that say less than ran, or other than ran."""
    over: dict[str, Any] = {}
    """What is changed in parts of the catalog."""
    scenario: dict[str, Any] = {}
    """Its other habits, as sections of a scenario."""

    def split(self, chunks: int, layers: int) -> tuple[int, ...] | None:
        """Layers of every chunk: its recipe's, or as many on each; None where the twin balances."""
        own = (_spelled(one) for one in self.splits)
        even = self.even_layers and layers % chunks == 0
        usual = (layers // chunks,) * chunks if even else None
        return next((one for one in own if (len(one), sum(one)) == (chunks, layers)), usual)

    def under(self, script: Script | None) -> Stack:
        """The stack as a launch script runs it."""
        if script is None:
            return self
        own = {"part": script.part or self.part, "over": {**self.over, **script.over}}
        return self.model_copy(update=own)

    def script(self, row: PublishedRow) -> Script | None:
        """The launch script of a row of its own."""
        return next((one for one in self.scripts if one.ran(row)), None)

    def ran(self, row: PublishedRow) -> bool:
        """Whether a row is one of its own."""
        own = any(begins(row.source, title) for title in self.sources)
        named = not self.models or any(row.model.startswith(name) for name in self.models)
        return own and named and all(word in row.words for word in self.words)


def begins(source: str, title: str) -> bool:
    """Whether a source's title begins so: `NeMo 26.02` is not the beginning of `NeMo 26.02.01`."""
    return re.match(re.escape(title) + r"(?!\.?\d)", source) is not None


def _spelled(split: str) -> tuple[int, ...]:
    """The counts behind `4*15 1`: fifteen fours and a one."""
    parts = [part.partition("*") for part in split.split()]
    return tuple(int(own) for own, _, times in parts for _ in range(int(times or 1)))


@cache
def stacks() -> tuple[Stack, ...]:
    """All stacks, those that need more first."""
    folder = shipped_folder() / "published" / _STACKS
    found = [Stack.model_validate(read_data(file)) for file in sorted(folder.glob("*.yaml"))]
    return tuple(sorted(found, key=lambda stack: -len(stack.words) - len(stack.models)))


NO_STACK: Final = Stack(
    name="unknown software", software="", sources=(), convention="causal", profiles={}
)
"""Of rows whose software is a recipe's: nothing but defaults."""


def stack_of(row: PublishedRow, gpu: str) -> Stack:
    """The stack that a row ran, on a GPU of the catalog: of its source, or of the framework that it
    names, or the typical one of its layout."""
    own = [stack for stack in stacks() if stack.ran(row)]
    nearest = (
        *(one for one in own if gpu in one.profiles),
        *(one for one in own if knows(one, gpu)),
    )
    return next(iter((*nearest, *own)), None) or typical_stack(row, gpu)


def typical_stack(row: PublishedRow, gpu: str) -> Stack:
    """The stack of the first framework that a row names, in its layout before its title, and both
    before all else; of several names the longest, and one that knows the GPU. Where it names none,
    that of its layout: FSDP where parameters are sharded, else Megatron-LM."""
    chosen = _of_framework(row, gpu)
    told = " ".join((*_texts(row.layout), row.words)).lower()
    places = [(_first(one.kernels, told), one) for one in stacks()] if chosen.kernels else []
    said = [(place, one) for place, one in places if place is not None]
    return min(said, key=lambda one: one[0])[1] if said else chosen


def _of_framework(row: PublishedRow, gpu: str) -> Stack:
    texts = (_texts(row.layout), (row.source, row.told), _texts(row.fields))
    for text in texts:
        named = _named(" ".join(text).lower(), _year(row))
        if named:
            return min(named, key=lambda one: (*one[0], not knows(one[1], gpu)))[1]
    sharded = degree(row.layout, "fsdp") > 1 or row.layout.get("zero") == 3
    chosen = "typical-fsdp" if sharded else "typical-megatron"
    return next(one for one in stacks() if one.name == chosen)


def _texts(fields: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(value for value in fields.values() if isinstance(value, str))


def _year(row: PublishedRow) -> int | None:
    """The last year that the title of a source names."""
    return max(map(int, _YEAR.findall(row.source)), default=None)


def _named(words: str, year: int | None) -> list[tuple[tuple[int, ...], Stack]]:
    """The stacks that words name, each with its rank: place, length, and whether of its time."""
    found: list[tuple[tuple[int, ...], Stack]] = []
    for stack in stacks():
        place = _first(stack.frameworks, words)
        if place and (stack.until is None or (year is not None and year <= stack.until)):
            found.append(((*place, stack.until is None), stack))
    return found


_YEAR: Final = re.compile(r"\b20\d\d\b")


def _first(names: tuple[str, ...], words: str) -> tuple[int, int] | None:
    """Where the first of these words stands, and its length, negative."""
    longest = sorted(names, key=len, reverse=True)
    found = re.search(rf"\b({'|'.join(map(re.escape, longest))})\b", words) if names else None
    return None if found is None else (found.start(), found.start() - found.end())


def knows(stack: Stack, gpu: str) -> bool:
    """Whether a stack has a calibration for a GPU of the catalog."""
    return gpu in stack.profiles or bool(_of_software(stack, gpu))


def _of_software(stack: Stack, gpu: str) -> str | None:
    if not stack.part:
        return None
    return load_part("software", stack.part).spec.calibrations.get(gpu)


def profile_of(stack: Stack, row: PublishedRow, gpu: str) -> str:
    """The calibration of a GPU of the catalog under the stack of a row; the GPU's own where neither
    the stack nor its software has one for it."""
    flash2 = stack.flash2.get(gpu) if _FLASH2.search(row.words) else None
    own = flash2 or stack.profiles.get(gpu) or _of_software(stack, gpu)
    return own or load_part("gpus", gpu).spec.calibration


_FLASH2: Final = re.compile(r"\bfa2\b|\bflash[- ]?attention[- ]?v?2")


_RECIPES: Final = "recipes"


class Recipe(BaseModel):
    """A framework's recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    software: str
    """Frameworks, of trainer and engines."""
    sources: tuple[str, ...]
    """How titles of its sources begin."""
    part: str = ""
    """The trainer's software in the catalog."""
    serving: str
    """The engines' software in the catalog."""
    eager: bool = False
    """Engines without CUDA graphs."""
    profiles: dict[str, str]
    """The calibration of each GPU, where not that of the trainer's software."""
    assumed: tuple[str, ...]
    """What no recipe says, in words."""
    prompt: int
    """Tokens of a prompt."""
    sigma: float
    """Of the logarithm of the tokens that are written."""
    mean: int | None = None
    """Tokens written, where a row says none."""
    batch: int
    """Sequences of an engine at a time."""
    memory: float
    """Share of a device that engines take."""
    scores: int
    """Passes forward before training."""
    swap_reference: bool = False
    """The reference model waits in host memory."""
    balance: Literal["steps", "iteration"] = "steps"
    """Over what sequences are dealt evenly to replicas."""
    unload: str | None = None
    """What one GPU copies to the host per second when trainers make room."""
    backup: bool = False
    """Engines that sleep keep their weights in the host."""
    update: Tree = {"updater": "checkpoint-engine-vllm"}
    """How new weights come to engines."""
    stream: int = 1
    """Parts in which what engines write goes to the trainer."""
    prepare: str = "0s"
    """Of the host for each sequence between rollouts and training."""
    kept: float = 1.0
    """Share of what is written that is trained on."""
    requests: int | None = None
    """Of an iteration, as `mean`."""
    train_batch: int | None = None
    """Sequences of an optimizer step."""
    longest: int | None = None
    """Tokens written at most, as `mean`."""
    generation: int | None = None
    """Tensor ranks of an engine."""
    micro_tokens: int | None = None
    """Tokens of a micro-batch; none: those of the longest sequence."""
    scenario: Tree = {}
    """Habits, as sections of a scenario."""
    models: dict[str, Tree] = {}
    """What is else of a model."""
    words: dict[str, Tree] = {}
    """What is else by a word."""
    layers: dict[str, tuple[int, int, int, int]] = {}
    """By layers/stages: layers of the first stage, how many follow, layers of each of these,
    layers of the last."""

    def of(self, row: PublishedRow) -> Recipe:
        """The recipe of a row's own model and words."""
        mine = [self.models.get(row.model, {})]
        told = f"{row.words} {row.metrics.get('algorithm', '')}".lower()
        mine += [more for word, more in self.words.items() if word in told]
        found = self.model_dump()
        for more in mine:
            found = over(found, more)
        return Recipe.model_validate(found)

    def split(self, layers: int, stages: int) -> list[int] | None:
        """Layers of each stage; None where the recipe has no split for so many."""
        found = self.layers.get(f"{layers}/{stages}")
        if found is None:
            return None
        first, count, each, last = found
        return [first, *[each] * count, last]


def over(tree: Tree, more: Tree) -> Tree:
    """A tree with another on top of it, section by section."""
    found = dict(tree)
    for key, value in more.items():
        own = found.get(key)
        both = isinstance(own, dict) and isinstance(value, dict)
        found[key] = over(cast("Tree", own), cast("Tree", value)) if both else value
    return found


@cache
def recipes() -> tuple[Recipe, ...]:
    """All that ship."""
    folder = shipped_folder() / "published" / _RECIPES
    return tuple(Recipe.model_validate(read_data(file)) for file in sorted(folder.glob("*.yaml")))


def recipe_of(row: PublishedRow) -> Recipe | None:
    """The recipe of a row; None where its source has none."""
    found = (one for one in recipes() if any(row.source.startswith(name) for name in one.sources))
    mine = next(found, None)
    return mine.of(row) if mine else None
