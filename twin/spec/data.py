"""What training data weighs on disk, and what of it has to be generated before training: texts
said in other words, and trajectories of agents."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, Strict, ValidationInfo, field_validator

from twin.errors import FieldError
from twin.spec.base import Bytes, Count, Duration, Share, Spec, Tokens, Whole
from twin.spec.inference import EngineSpec
from twin.spec.model import ModelSpec

_WIDE_VOCABULARY: Final = 65_500
"""Token ids below this many take two bytes in Megatron-LM's indexed data sets, others four
(NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py, `DType.optimal_dtype`)."""

Fold = Annotated[float, Strict(), Field(ge=0.01, le=100)]
"""How many times as much, a hundredth to a hundred."""


class RephrasingRecipe(Spec):
    """How a text is said in other words: piece by piece, each with what is written so far before
    it (Kimi K2's report, arXiv:2507.20534, section 2.2, figure 4)."""

    name: str
    """what reports call the recipe"""
    excerpt: Tokens
    """tokens of a text that are rephrased one after the other"""
    piece: Tokens
    """tokens of the source in one request"""
    prompt: Whole
    """tokens of the instructions before each piece"""
    written: Fold
    """tokens that are written per token of the source"""
    check: Whole
    """tokens that a judge of fidelity writes per excerpt, having read the excerpt and what became
    of it; 0: nobody judges"""
    acceptance: Share
    """share of rewritten excerpts that are kept; others are made again"""

    @field_validator("piece")
    @classmethod
    def _pieces_fit(cls, piece: int, info: ValidationInfo) -> int:
        excerpt: int | None = info.data.get("excerpt")
        if excerpt is not None and piece > excerpt:
            message = f"a piece of {piece} tokens is longer than an excerpt of {excerpt}"
            raise FieldError("TW017", message, f"write at most {excerpt}tok")
        return piece


class CorpusSpec(Spec):
    """A corpus that is rephrased."""

    name: str
    """what reports call the corpus"""
    tokens: Tokens
    """tokens of the source"""
    rephrasings: Count = 1
    """how often each text is rephrased; Kimi K2: at most twice"""


class RephrasingSpec(Spec):
    """Corpora that are said in other words."""

    recipe: RephrasingRecipe
    """how"""
    corpora: tuple[CorpusSpec, ...] = Field(min_length=1)
    """what"""


class TrajectoryRecipe(Spec):
    """How agents make trajectories: turns of a model and an environment, then a judge (Kimi K2's
    report, section 3.1.1)."""

    name: str
    """what reports call the recipe"""
    prompt: Whole
    """tokens of instructions, tools and task before the first turn"""
    turns: Count
    """turns of a trajectory, mean"""
    written: Tokens
    """tokens that the agent writes in a turn, mean"""
    read: Whole
    """tokens that come back from tools and users in a turn, mean"""
    simulated: Whole
    """tokens that a model writes in a turn in place of tools and users, mean; it reads the
    trajectory so far, too. 0: they are real"""
    latency: Duration
    """time of the environment in a turn, mean"""
    candidates: Count
    """trajectories that are made for each task"""
    check: Whole
    """tokens that a judge writes per trajectory, which it has read; 0: no model judges"""
    acceptance: Share
    """share of trajectories that the judge accepts"""


class TrajectoriesSpec(Spec):
    """Trajectories of agents that are wanted. Of each task the best accepted one is kept."""

    recipe: TrajectoryRecipe
    """how"""
    kept: Count
    """trajectories in the end, one per task"""
    sandboxes: Count = 10_000
    """environments at a time; Kimi K2 has over 10,000"""


class DataSpec(Spec):
    """What the run reads, and what of it is generated before it starts."""

    bytes_per_token: Bytes | None = None
    """bytes of a token on disk; null: 2 where the vocabulary has fewer than 65,500 entries, else 4,
    as in Megatron-LM's indexed data sets"""
    model: ModelSpec | None = None
    """the model that generates; null: as is trained"""
    engine: EngineSpec | None = None
    """one inference engine of those that generate"""
    nodes: Count | None = None
    """nodes of the cluster that generate; null: all"""
    # After `engine`, without which nothing can be generated.
    rephrasing: RephrasingSpec | None = None
    """texts in other words; null: none"""
    trajectories: TrajectoriesSpec | None = None
    """trajectories of agents; null: none"""

    @field_validator("rephrasing", "trajectories")
    @classmethod
    def _somebody_generates(cls, wanted: Spec | None, info: ValidationInfo) -> Spec | None:
        if wanted is not None and info.data.get("engine", ...) is None:
            message = "data is to be generated, and no engine generates it"
            raise FieldError("TW182", message, "add `engine: deepep-32gpu`, or write one")
        return wanted

    @property
    def generates(self) -> bool:
        """Whether anything has to be generated."""
        return self.rephrasing is not None or self.trajectories is not None


def bytes_per_token(data: DataSpec | None, vocabulary: int) -> float:
    """Bytes of a token on disk, as written, or as Megatron-LM stores ids of such a vocabulary.

    >>> bytes_per_token(None, 163_840), bytes_per_token(None, 50_257)
    (4.0, 2.0)
    """
    if data is not None and data.bytes_per_token is not None:
        return data.bytes_per_token
    return 2.0 if vocabulary < _WIDE_VOCABULARY else 4.0
