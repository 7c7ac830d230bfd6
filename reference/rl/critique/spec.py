"""Self-critique in a run's configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict

from twin.spec.base import Count, Spec, Whole


class CritiqueSpec(Spec):
    """Who ranks the responses to prompts that cannot be verified, and how it is learned."""

    critic: str = Field(
        default="self",
        description="self: the policy's own engine; else a generator: the address of a server, or "
        "the folder of a run",
    )
    rubrics: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        default=("core", "prescriptive"),
        description="built-in files of rubrics, or files of one's own",
    )
    kinds: tuple[str, ...] = Field(
        default=(),
        description="kinds of tasks that are ranked, none of which may be verifiable; empty: all "
        "that are not",
    )
    weight: Annotated[float, Strict(), Field(ge=0, le=1e3)] = Field(
        default=0.0,
        description="closed loop, of critic `self`: of the mean cross-entropy on comparisons whose "
        "outcome the iteration's verifiable responses tell, beside the objective; 0: none. OURS",
    )
    pairs: Count = Field(default=8, description="such comparisons of a step, at most")
    check: Whole = Field(
        default=0,
        description="such comparisons of an iteration that the critic is asked about before it "
        "learns from them: the metric `agreement`; 0: none",
    )
