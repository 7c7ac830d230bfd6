"""An inference engine: one copy of a model on some GPUs, and how it works through requests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from twin.spec.base import (
    UNWRITTEN,
    Count,
    Flag,
    Ratio,
    Seconds,
    Share,
    Spec,
    Tokens,
    Whole,
)
from twin.spec.calibration import CalibrationSpec
from twin.spec.serving import ServingSpec


class SpeculationSpec(Spec):
    """Tokens that a module drafts and the next pass verifies all at once: a layer like the model's
    last one, a projection of twice the width before it and the model's head behind it (multi-token
    prediction, EAGLE)."""

    drafts: Annotated[Count, Field(le=16)]
    """tokens drafted for each pass, one after the other"""
    accepted: Share
    """share of drafts that are right where all before them are"""

    @property
    def emitted(self) -> float:
        """Tokens that a pass gives a sequence in the mean: its own, and drafts up to the first
        wrong one (Leviathan et al. 2023, arXiv:2211.17192, equation 1)."""
        return sum(self.accepted**before for before in range(self.drafts + 1))


class EngineSpec(Spec):
    """One instance of an inference engine. Its GPUs form groups that share each sequence's
    attention (`tensor`); every group has requests of its own, and the experts of a model are spread
    over all GPUs."""

    name: str = "engine"
    """what reports call the engine"""
    gpus: Count
    """GPUs of one engine, over which its experts are spread"""
    tensor: Count = 1
    """GPUs that share each matrix outside of experts"""
    experts: Literal["spread", "cut"] = "spread"
    """spread: each GPU has whole experts, and tokens travel; cut: each of the tensor ranks, which
    are all of the engine, has a part of every expert, and their results are summed"""
    redundant_experts: Whole = 0
    """further copies of popular experts in each layer, for balance"""
    expert_load: Annotated[Ratio | None, UNWRITTEN] = None
    """rows of the GPU with the fullest experts over those of the mean; 1: balanced; null: as
    requests usually make it, 2.6 of 32 GPUs with 8 experts each, 1.1 with `redundant_experts`"""
    precision: Literal["bf16", "fp8"] = "fp8"
    """numbers of matrix products and their weights"""
    expert_weights: Annotated[Literal["int4"] | None, UNWRITTEN] = None
    """numbers in which experts' weights are kept: int4 with a 16-bit scale for each 32 of them,
    turned to `precision` inside products; null: as `precision`"""
    speculation: Annotated[SpeculationSpec | None, UNWRITTEN] = None
    """tokens that are drafted and verified together; null: each pass gives one"""
    cache: Literal["bf16", "fp8"] = "bf16"
    """numbers of the cached keys and values, or their latents"""
    two_batches: Flag = True
    """requests are in two halves that take turns, so that the all-to-all of one is beside the
    kernels of the other"""
    batch: Count | None = None
    """most sequences of one group at a time; null: as many as memory has room for"""
    chunk: Annotated[Tokens, Field(le=10**7)] = 16_384
    """tokens of prompts in one pass of one group"""
    memory: Share = 1.0
    """share of each device that the engine takes, for weights, a pass and caches together (vLLM's
    `gpu_memory_utilization`); what the device reserves lies in the rest"""
    calibration: CalibrationSpec | None = None
    """how close its kernels come to the roofline; null: those of `software` on this GPU, else as
    those that train"""
    software: ServingSpec | None = None
    """the framework that serves, and what its host does; null: nothing beside `step_overhead` and
    `sequence_overhead`, and no sampling"""
    eager: Flag = False
    """no CUDA graphs: the host of `software` launches every kernel"""
    prefix_cache: Flag = True
    """of data generation: what requests have in common at their beginning is kept; in rollouts
    `environment.keeps_cache` says what a request keeps between its turns"""
    step_overhead: Seconds = 0.0
    """time of the host between two passes that no kernel hides"""
    sequence_overhead: Seconds = 0.0
    """the same for each sequence of a group's pass: sampling, scheduling, text; for engines whose
    host and device are one core, or whose host is the slower of the two"""
    utilisation: Share = 1.0
    """of data generation: share of these rates that an engine keeps over hours: arrivals, uneven
    lengths, restarts; rollouts simulate these"""
