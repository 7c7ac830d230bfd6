"""What the cluster is: GPU, node and fabric, each a catalog part or written inline.

All link rates are bytes per second, per GPU, in one direction.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict, ValidationInfo, field_validator

from twin.errors import FieldError
from twin.spec.base import (
    UNWRITTEN,
    Bytes,
    BytesPerSecond,
    Count,
    Flag,
    FlopPerSecond,
    Later,
    Ratio,
    Seconds,
    Share,
    Spec,
    Watts,
    Whole,
)
from twin.spec.power import GpuPowerSpec, NodePowerSpec

MOST_GPUS = 1_000_000
"""GPUs in one cluster; each has its own rank in the mesh."""


class ReserveEntry(Spec):
    """Device memory that the runtime takes before any tensor: context, communication buffers,
    fragmentation."""

    name: str
    """what takes it"""
    bytes: Bytes
    """device memory that it takes"""


class GpuSpec(Spec):
    """One accelerator: what it exposes and what it could do at best."""

    name: str
    """what reports call the GPU"""
    memory: Bytes = Field(gt=0)
    """device memory that the driver exposes"""
    memory_bandwidth: BytesPerSecond
    """device memory, read and written together"""
    bf16_dense: FlopPerSecond
    """dense BF16/FP16 tensor-core peak"""
    fp8_dense: FlopPerSecond | None = None
    """dense FP8 tensor-core peak; null where there is none"""
    fp4_dense: Annotated[FlopPerSecond | None, UNWRITTEN] = None
    """dense FP4 tensor-core peak, of NVFP4 and MXFP4; null where there is none"""
    fp8_any_layout: Flag = False
    """tensor cores read FP8 operands with one scale per tensor in any layout, as from Blackwell on;
    false: along the inner sum only, so that what two products read is kept turned, too"""
    sms: Count
    """streaming multiprocessors"""
    calibration: str
    """the calibration profile used when a scenario names none"""
    reserve: tuple[ReserveEntry, ...] = ()
    """device memory that the runtime takes before any tensor"""
    power: GpuPowerSpec | None = None
    """what it draws; null: unknown"""


class LinkSpec(Spec):
    """One class of link: line rate in one direction, the share of it that large transfers reach,
    and latency."""

    bandwidth: BytesPerSecond
    """line rate of one GPU in one direction"""
    efficiency: Share
    """share of the line rate that large transfers reach"""
    latency: Seconds
    """time of one message of no size"""


class NvlinkSpec(LinkSpec):
    """A GPU's NVLink port, as the kernels of collectives drive it."""

    own_share: Annotated[float, Strict(), Field(ge=0, le=1)] = 0.0
    """what a rank's own share of a collective costs beside the bytes it sends, as a part of the
    time that the port would need for it; 0 with an efficiency that was measured of whole
    collectives"""
    flags: Flag = True
    """small payloads inside a node go with a flag in every word, as NCCL and RCCL send them"""


class NicSpec(LinkSpec):
    """A GPU's NIC, or its NICs taken together, as the kernels of collectives drive it."""

    exchange_start: Seconds = 0.0
    """what a plain all-to-all over nodes takes beside its bytes and `latency`: receivers tell
    senders of their buffers, and the pipeline of chunks fills"""
    exchange_peer: Seconds = 0.0
    """the same per rank on other nodes: the proxy of a NIC serves one connection after another"""


class HostSpec(Spec):
    """Host side of a node: memory, and the PCIe link of each GPU."""

    memory: Bytes = Field(gt=0)
    """host memory of the node"""
    memory_bandwidth_per_socket: BytesPerSecond
    """host memory of one socket, read and written together"""
    memory_efficiency: Share = 1.0
    """share of that bandwidth that long copies reach"""
    sockets: Count
    """CPU sockets"""
    pcie: LinkSpec
    """PCIe link of each GPU to the host"""
    gpus_per_pcie_switch: Count = 1
    """GPUs, each with its NIC, behind one PCIe switch"""
    pcie_uplink: BytesPerSecond | None = None
    """line rate of a PCIe switch to its socket in one direction; null: all its GPUs' links
    together"""
    slowness: Ratio = 1.0
    """time of one thread over that on the CPU of an H100 server of 2023"""


class NodeSpec(Spec):
    """One server: its GPUs, the NVLink port and the NIC of each GPU, and the host."""

    name: str
    """what reports call the node"""
    gpu: GpuSpec
    gpus: Annotated[Count, Field(le=1024)]
    """GPUs per node"""
    nvlink: NvlinkSpec
    """NVLink port of each GPU"""
    nvlink_sharp: Flag = False
    """NVSwitches add up and multicast for collectives (NVLink SHARP)"""
    nic: NicSpec
    """network card of each GPU"""
    host: HostSpec
    power: NodePowerSpec | None = None
    """what the node draws beside its GPUs; null: unknown"""


Oversubscription = Annotated[float, Strict(), Field(ge=1, le=1e6)]
"""Rate down over rate up."""


class FabricSpec(Spec):
    """The network between nodes."""

    name: str
    """what reports call the fabric"""
    kind: str
    """topology kind, a member of twin.network.topology"""
    nodes_per_leaf: Count
    """nodes of one pod, which share its leaf switches"""
    spines: Count
    """spine switches; every leaf switch reaches each of them"""
    oversubscription: Oversubscription = 1.0
    """rate down from a leaf switch over its rate up; of sites the rate of all NICs of a site over
    that of its way to the others"""
    efficiency: Share
    """share of the NIC rate left by hashing, congestion control and headers"""
    hop_latency: Seconds
    """time through one switch"""
    distance: Annotated[Seconds, UNWRITTEN] = 0.0
    """of sites: time from one to another, one way; light in fibre takes 5us per km"""
    reduces: Later = False
    """switches add up what NICs send (InfiniBand SHARP)"""
    gpu_power: Watts | None = None
    """what switches and their transceivers draw for each GPU; null: unknown"""


class DegradedSpec(Spec):
    """GPUs that do less than the rest: a slow GPU, a NIC at half its rate, a hot node. Shares of a
    GPU that is named more than once multiply."""

    gpus: tuple[Whole, ...] = ()
    """their numbers in the cluster, from 0, node after node"""
    nodes: tuple[Whole, ...] = ()
    """numbers of nodes, from 0, all of whose GPUs they are"""
    compute: Share = 1.0
    """share of its speed at which a GPU runs kernels"""
    nvlink: Share = 1.0
    """share of the rate that is left to a GPU's NVLink port"""
    nic: Share = 1.0
    """share of the rate that is left to a GPU's NIC"""
    pcie: Share = 1.0
    """share of the rate that is left to a GPU's PCIe link"""


Spread = Annotated[float, Strict(), Field(ge=0, le=0.5)]
"""Standard deviation of the logarithm of a factor."""


class JitterSpec(Spec):
    """How far GPUs of one kind differ in speed: kernels take a lognormal factor of mean 1 as long,
    drawn once for each GPU, and again for each stretch of its kernels."""

    spread: Spread
    """standard deviation of the logarithm of a GPU's factor; 0.01: a hundredth"""
    kernel_spread: Spread = 0.0
    """the same of the factor of each stretch of kernels between two collectives"""
    seed: Whole = 0
    """of the draws"""


class ClusterSpec(Spec):
    """Nodes of one kind on one fabric."""

    node: NodeSpec
    nodes: Count
    """servers in the cluster"""
    fabric: FabricSpec
    degraded: tuple[DegradedSpec, ...] = ()
    """GPUs that do less than the rest"""
    jitter: JitterSpec | None = None
    """how far GPUs differ in speed; null: not at all"""

    @field_validator("degraded")
    @classmethod
    def _in_the_cluster(
        cls, degraded: tuple[DegradedSpec, ...], info: ValidationInfo
    ) -> tuple[DegradedSpec, ...]:
        node, nodes = info.data.get("node"), info.data.get("nodes", MOST_GPUS)
        for one in degraded:
            if not one.gpus and not one.nodes:
                raise FieldError(
                    "TW015", "names neither `gpus` nor `nodes`", "for example gpus: [0]"
                )
            if max(one.nodes, default=0) >= nodes:
                message = f"there is no node {max(one.nodes):,}: the cluster has {nodes:,} nodes"
                raise FieldError("TW015", message, f"0 to {nodes - 1:,}")
            gpus = nodes * node.gpus if node is not None else MOST_GPUS
            if max(one.gpus, default=0) >= gpus:
                message = f"there is no GPU {max(one.gpus):,}: the cluster has {gpus:,} GPUs"
                raise FieldError("TW015", message, f"0 to {gpus - 1:,}")
        return degraded

    @field_validator("nodes")
    @classmethod
    def _ranks_can_be_told_apart(cls, nodes: int, info: ValidationInfo) -> int:
        node: NodeSpec | None = info.data.get("node")
        if node is not None and nodes * node.gpus > MOST_GPUS:
            message = f"{nodes:,} nodes x {node.gpus} GPUs are more than {MOST_GPUS:,} GPUs"
            raise FieldError("TW015", message, f"at most {MOST_GPUS // node.gpus:,} nodes")
        return nodes

    @property
    def gpus(self) -> int:
        """GPUs in the cluster."""
        return self.nodes * self.node.gpus

    @property
    def uneven(self) -> bool:
        """Whether GPUs differ."""
        drawn = self.jitter is not None and self.jitter.spread > 0
        return bool(self.degraded) or drawn or self.noisy

    @property
    def noisy(self) -> bool:
        """Whether a GPU takes another time for the same kernels again."""
        return self.jitter is not None and self.jitter.kernel_spread > 0
