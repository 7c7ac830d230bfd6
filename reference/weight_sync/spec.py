"""How an update is done; the words are those of a scenario's `weight_update`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from twin.spec.base import Bytes, BytesPerSecond, Duration, Spec


class SyncSpec(Spec):
    """One update's pipeline. Sizes are OURS, for small models on a CPU: checkpoint-engine's buckets
    are 8 GiB."""

    stages: Literal["two", "three"] = "two"
    """two: all owners copy a bucket from the host, then broadcasts run beside reloads; three:
    copies from the host run beside both"""
    wire: Literal["direct", "collective"] = "direct"
    """direct: an owner sends to each receiver; collective: a broadcast of all ranks"""
    bucket: Annotated[Bytes, Field(gt=0)] = 8e6
    """limit the bytes of one bucket, unless a tensor is larger"""
    free_memory: Annotated[Bytes, Field(gt=0)] = 96e6
    """limit the memory for the buffers of an update, on each rank"""
    patience: Annotated[Duration, Field(gt=0)] = 60.0
    """count a rank as gone after this time without a word"""
    rate: BytesPerSecond | None = None
    """run ranks in network namespaces with links of this rate (needs root); null: loopback"""


SYNC_OPTIONS: Final = ("wire", "bucket", "free_memory", "patience", "rate")
"""Fields that are options of the command."""
