"""How an update is done; the words are those of a scenario's `weight_update`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from twin.spec.base import Bytes, BytesPerSecond, Duration, Spec


class SyncSpec(Spec):
    """One update's pipeline. Sizes are OURS, for small models on a CPU: checkpoint-engine's buckets
    are 8 GiB."""

    stages: Literal["two", "three"] = Field(
        default="two",
        description="two: all owners copy a bucket from the host, then broadcasts run beside "
        "reloads; three: copies from the host run beside both",
    )
    wire: Literal["direct", "collective"] = Field(
        default="direct",
        description="direct: an owner sends to each receiver; collective: a broadcast of all ranks",
    )
    bucket: Annotated[Bytes, Field(gt=0)] = Field(
        default=8e6, description="most bytes of one bucket, unless a tensor is larger"
    )
    free_memory: Annotated[Bytes, Field(gt=0)] = Field(
        default=96e6, description="memory for the buffers of an update, on each rank"
    )
    patience: Annotated[Duration, Field(gt=0)] = Field(
        default=60.0, description="until a rank that says nothing is taken to be gone"
    )
    rate: BytesPerSecond | None = Field(
        default=None,
        description="of each rank's link, where ranks are network namespaces of one machine; null: "
        "loopback",
    )
