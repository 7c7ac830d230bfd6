"""Plan to program of an update: its operations, in the order in which ranks do them.

Two stages, as checkpoint-engine runs: in every round all ranks copy their next bucket from the
host, together; then one bucket after another goes from its owner to all. Engines reload a bucket
while the next one is broadcast, from the other half of their buffer; before it is handed over, all
ranks meet. Three stages: a rank copies its next bucket as soon as its copy buffer is free again,
which is when its bucket has left it, whatever else is on the way. Without a copy buffer every owner
copies in its own turn.

Sent point to point, the ranks of a round send at once; there is no reload. In three stages the next
buckets are copied meanwhile, into another buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Final

from twin.engine.cost_model import nanoseconds
from twin.kinds.weight_update.buckets import Bucket
from twin.kinds.weight_update.link_map import Wires
from twin.kinds.weight_update.types import Flow, Link, Operation, Stage, UpdatePlan, UpdateProgram
from twin.network.links import latency

ALL: Final = -1
"""Stands for all ranks."""
NOTHING: Mapping[Link, float] = MappingProxyType({})


def lower(plan: UpdatePlan) -> UpdateProgram:
    """The operations of an update and the links that they share."""
    made = _Program(plan, Wires(plan))
    first = made.prepare()
    if plan.scenario.weight_update.method == "p2p":
        made.send_all(first)
    else:
        made.broadcast_all(first)
    return UpdateProgram(tuple(made.operations), tuple(made.wires.rates), made.wires.classes())


@dataclass(slots=True)
class _Program:
    """The operations so far."""

    plan: UpdatePlan
    wires: Wires
    operations: list[Operation] = field(default_factory=list[Operation])

    def prepare(self) -> tuple[int, ...]:
        """What happens before the first bucket: reading a checkpoint, or joining."""
        update = self.plan.scenario.weight_update
        if update.event == "recover":
            return (self.add("regroup", seconds=update.updater.regroup),)
        if update.event == "update":
            return ()
        own = [0] * self.plan.nodes
        for bucket in self.plan.buckets:
            own[bucket.owner // self.plan.scenario.cluster.node.gpus] += bucket.bytes
        reads = [
            self.add(
                "read", bytes=size, flows=self.wires.read(node, size), carried={"storage": size}
            )
            for node, size in enumerate(own)
            if size
        ]
        return (self.meet(reads),)

    def broadcast_all(self, first: tuple[int, ...]) -> None:
        """Every bucket to every taker. Ranks of a round copy from the host together, or each of
        them ahead, or, without a buffer for it, in its own turn."""
        together = self.plan.buffers.count == 3
        ahead = together and self.plan.scenario.weight_update.stages == "three"
        rounds = self._rounds()
        handed, reloaded = first, ()
        copied: dict[int, int] = {}
        for turn, buckets in enumerate(rounds):
            if together and (turn == 0 or not ahead):
                copied = self.copy_together(buckets, handed)
            coming = {one.owner: one for one in rounds[turn + 1]} if turn + 1 < len(rounds) else {}
            for bucket in buckets:
                ready = copied.pop(bucket.owner) if together else self.copy(bucket, handed)
                moved = self.move(bucket, (ready, *handed))
                if ahead and bucket.owner in coming:
                    copied[bucket.owner] = self.copy(coming[bucket.owner], (moved,))
                cast = self.broadcast(bucket, (moved,))
                handed = (self.hand_over(bucket, (cast, *reloaded)),)
                reloaded = (self.reload(bucket, handed),)

    def copy_together(self, buckets: Iterable[Bucket], after: Iterable[int]) -> dict[int, int]:
        """Copies of a round; by owner, what to wait for: all of them."""
        copies = {one.owner: self.copy(one, after) for one in buckets}
        return dict.fromkeys(copies, self.meet(copies.values()))

    def send_all(self, first: tuple[int, ...]) -> None:
        """To every rank what it needs of every bucket. With a second buffer, a copy waits for what
        was sent two rounds ago, and for the copy before it."""
        ahead = self.plan.buffers.count == 2
        sent = [first]
        copied = first
        for buckets in self._rounds():
            free = (*copied, *sent[max(0, len(sent) - 2)]) if ahead else sent[-1]
            copied = (self.meet(self.copy(one, free) for one in buckets),)
            sends = self.send(buckets, (*copied, *sent[-1]))
            sent.append((self.hand_over(buckets[0], sends),))

    def _rounds(self) -> list[tuple[Bucket, ...]]:
        by_round = groupby(self.plan.buckets, key=lambda one: one.round)
        return [tuple(group) for _, group in by_round]

    def copy(self, bucket: Bucket, after: Iterable[int]) -> int:
        """A bucket into its owner's buffer: from its host, or from another one for a recovery."""
        size, rank = bucket.bytes, bucket.owner
        cluster = self.plan.scenario.cluster
        if self.plan.scenario.weight_update.event == "recover":
            carried: dict[Link, float] = {"nic": size, "pcie": size}
            return self.add(
                "fetch",
                bucket,
                seconds=latency(cluster, "nic"),
                after=after,
                flows=self.wires.fetch(rank, size),
                carried=carried,
            )
        return self.add(
            "host_copy",
            bucket,
            seconds=latency(cluster, "pcie"),
            after=after,
            flows=self.wires.host_copy(rank, size),
            carried={"pcie": size, "dram": size},
        )

    def move(self, bucket: Bucket, after: Iterable[int]) -> int:
        """A bucket from its owner's copy buffer into the half that is sent; nothing without one."""
        seconds = self._device_seconds(bucket.bytes) if self.plan.buffers.count == 3 else 0.0
        return self.add("broadcast", bucket, seconds=seconds, after=after)

    def broadcast(self, bucket: Bucket, after: Iterable[int]) -> int:
        """A bucket from its owner to all takers: into every node by NICs, and on over NVLink."""
        size, takers = bucket.bytes, self.plan.takers
        entered = float(size * self.plan.nodes) if self.plan.nodes > 1 else 0.0
        return self.add(
            "broadcast",
            bucket,
            after=after,
            flows=self.wires.broadcast(size),
            carried={"nvlink": size * (takers - 1) - entered, "nic": entered, "pcie": entered},
        )

    def send(self, buckets: tuple[Bucket, ...], after: Iterable[int]) -> list[int]:
        """All sends of a round. Every rank receives alike."""
        takers, replica = self.plan.takers, self.plan.scenario.weight_update.replica
        near = min(self.plan.scenario.cluster.node.gpus, takers) / takers
        instances, after = self.plan.instances, tuple(after)
        sizes = {
            one.owner: instances
            * (
                one.replicated * replica.gpus
                + one.shared * replica.gpus / replica.tensor_ranks
                + (one.bytes - one.replicated - one.shared)
            )
            for one in buckets
        }
        into = sum(sizes.values()) / takers
        return [
            self.add(
                "send",
                turn=buckets[0].round,
                rank=rank,
                bytes=into,
                after=after,
                flows=self.wires.send(rank, sizes.get(rank, 0.0), into),
                carried={
                    "nvlink": into * near,
                    "nic": into * (1 - near),
                    "pcie": into * (1 - near),
                },
            )
            for rank in range(takers)
        ]

    def hand_over(self, bucket: Bucket, after: Iterable[int]) -> int:
        """All ranks have the bucket, and engines hear of it."""
        hop = self.plan.scenario.weight_update.updater.hop
        return self.add("handover", bucket, seconds=hop * (self.plan.takers - 1), after=after)

    def reload(self, bucket: Bucket, after: Iterable[int]) -> int:
        """An engine looks at every tensor of a bucket, and copies what it keeps of it."""
        replica = self.plan.scenario.weight_update.replica
        rest = bucket.bytes - bucket.replicated - bucket.shared
        kept = bucket.replicated + bucket.shared / replica.tensor_ranks + rest / replica.gpus
        per_tensor = self.plan.scenario.weight_update.updater.per_tensor
        seconds = per_tensor * bucket.tensors + self._device_seconds(kept)
        return self.add("reload", bucket, seconds=seconds, after=after)

    def meet(self, after: Iterable[int]) -> int:
        """One operation to wait for instead of many."""
        return self.add(None, after=after)

    def add(  # noqa: PLR0913  one parameter per field of an operation
        self,
        stage: Stage | None,
        bucket: Bucket | None = None,
        *,
        turn: int = 0,
        rank: int = ALL,
        bytes: float = 0.0,
        seconds: float = 0.0,
        after: Iterable[int] = (),
        flows: tuple[Flow, ...] = (),
        carried: Mapping[Link, float] = NOTHING,
    ) -> int:
        """One more operation; its number. Of a bucket's, it has round, owner and bytes."""
        if bucket is not None:
            turn, rank, bytes = bucket.round, bucket.owner, bucket.bytes
        self.operations.append(
            Operation(stage, turn, rank, bytes, nanoseconds(seconds), tuple(after), flows, carried)
        )
        return len(self.operations) - 1

    def _device_seconds(self, size: float) -> float:
        """Reading and writing so many bytes of device memory."""
        scenario = self.plan.scenario
        memory = scenario.cluster.node.gpu.memory_bandwidth * scenario.calibration.bandwidth
        return 2 * size / memory
