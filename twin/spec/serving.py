"""The software that serves: framework, version, and what its host does for every pass."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from twin.spec.base import Count, Flag, Ratio, Seconds, Share, Spec, Whole


class ServingSpec(Spec):
    """An inference framework. Seconds are those of the CPU of an H100 server."""

    name: str
    """what reports call the framework"""
    framework: str
    """framework, and how it is called"""
    release: str
    """of the framework, or the years of it"""
    each_pass: Seconds
    """time of the host for each pass: inputs, launch of a graph, tokens back from the device"""
    sequence: Seconds
    """the same for each sequence of a pass: scheduling, blocks of the cache, stop conditions"""
    each_output: Seconds
    """text and log-probability of one token of one sequence"""
    apart: Flag = False
    """outputs are made by a process of their own, beside the next passes"""
    ahead: Flag = False
    """the next pass is scheduled while the kernels of this one run"""
    preempts: Flag = False
    """a sequence gets room in the cache for the tokens that it has; once the cache is full, the one
    that joined last waits again, and its cache is made anew. Otherwise, and where environments
    answer, each has room for its whole length"""
    each_node: Seconds = 0.0
    """time of each pass for each further node of an engine: the pass on its way to workers there,
    and their answers"""
    reduce_start: Seconds = 0.0
    """of an all-reduce by the framework's own kernel, inside of one NVLink domain: GPUs meet once
    where each reads everything of all others, twice where each reduces a part; 0: it has none"""
    reduce_share: Share = 1.0
    """share of NVLink's rate that this kernel reaches"""
    launch: Seconds
    """one kernel that no CUDA graph launches"""
    latent_kernels: Whole = 0
    """further kernels around latent attention in an engine without CUDA graphs, which compiles
    nothing: rotary positions in single operations, and copies"""
    graphs: Whole = 0
    """most sequences of a pass that runs as a CUDA graph; 0: every kernel is launched by itself"""
    sampling_bytes: Ratio
    """bytes of the device's memory for each logit: casts, softmax, noise, log-probabilities"""
    sampling_kernels: Count
    """kernels from logits to tokens"""
    calibrations: Annotated[dict[str, str], Field(default_factory=dict[str, str])]
    """calibrations of its kernels by GPU; of others the GPU's own is taken"""

    def __hash__(self) -> int:
        """Of what tells stacks apart: engines are remembered by it, and a table has no hash."""
        seconds = (self.each_pass, self.sequence, self.each_output, self.each_node)
        return hash((self.name, *seconds, self.reduce_start, self.launch))
