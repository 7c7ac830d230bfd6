"""A cluster that nobody knows: the twin under secret numbers, whose times are written with noise in
the formats of the tools that would measure them. Writers are of their own: no reader is used."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from twin.arch.ops import OpClass, Product, Work
from twin.collectives.traffic import alone, chosen
from twin.engine import lower, plan, simulate
from twin.hardware.roofline import seconds
from twin.loading import load, load_part
from twin.network.links import capacity, latency
from twin.network.placement import Placement
from twin.scenario import Scenario
from twin.spec.calibration import CalibrationSpec
from twin.spec.cluster import ClusterSpec, FabricSpec, NodeSpec

NODE: Final[NodeSpec] = load_part("nodes", "h100-8gpu").spec
FABRIC: Final[FabricSpec] = load_part("fabrics", "rail-fat-tree-400g").spec
PROFILE: Final[CalibrationSpec] = load_part("calibrations", "h100-hopper-bf16").spec
PROGRAMS: Final = {
    "all_reduce": ("all_reduce_perf", "sum", 2.0),
    "all_gather": ("all_gather_perf", "none", 1.0),
    "reduce_scatter": ("reduce_scatter_perf", "sum", 1.0),
    "all_to_all": ("alltoall_perf", "none", 1.0),
}
"""Program, operation, and how often bus bandwidth counts a byte."""


def drawn(base: float, spread: float, random: np.random.Generator, most: float = 1.0) -> float:
    """A number around the base, by a lognormal factor."""
    return min(most, base * float(np.exp(random.normal(0.0, spread))))


def put(spec: Any, path: str, number: float) -> Any:
    """The section with a number at a dotted path."""
    name, _, rest = path.partition(".")
    return spec.model_copy(
        update={name: put(getattr(spec, name), rest, number) if rest else number}
    )


def get(spec: Any, path: str) -> float:
    """The number at a dotted path."""
    for name in path.split("."):
        spec = getattr(spec, name)
    return float(spec)


SECRETS: Final[Mapping[str, float]] = {
    "node.nvlink.efficiency": 0.12,
    "node.nvlink.latency": 0.3,
    "node.nvlink.own_share": 0.2,
    "node.nic.efficiency": 0.02,
    "node.nic.latency": 0.3,
    "node.nic.exchange_peer": 0.4,
    "node.host.pcie.efficiency": 0.06,
    "fabric.efficiency": 0.12,
    "profile.matmuls.bf16.efficiency": 0.15,
    "profile.bandwidth": 0.12,
    "profile.attention_forward": 0.15,
    "profile.attention_backward": 0.15,
}
"""Numbers that are secret, and how far they lie from the catalog's (logarithms)."""


@dataclass
class SecretCluster:
    """The numbers, the noise of a measurement, and the source of both."""

    seed: int
    noise: float = 0.02
    node: NodeSpec = NODE
    fabric: FabricSpec = FABRIC
    profile: CalibrationSpec = PROFILE
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        """Draw the secrets."""
        self.random = np.random.default_rng(self.seed)
        parts: dict[str, Any] = {
            "node": self.node,
            "fabric": self.fabric,
            "profile": self.profile,
        }
        for path, spread in SECRETS.items():
            root, _, rest = path.partition(".")
            number = drawn(get(parts[root], rest), spread, self.random)
            parts[root] = put(parts[root], rest, number)
        self.node, self.fabric, self.profile = parts["node"], parts["fabric"], parts["profile"]

    def secret(self, path: str) -> float:
        """A number by its path below `node`, `fabric` or `profile`."""
        root, _, rest = path.partition(".")
        return get(getattr(self, root), rest)

    def noisy(self, value: float) -> float:
        """A measurement of a value."""
        return value * float(np.exp(self.random.normal(0.0, self.noise)))

    def cluster(self, nodes: int) -> ClusterSpec:
        """So many of its nodes."""
        return ClusterSpec(node=self.node, nodes=nodes, fabric=self.fabric)

    def collective(self, kind: str, size: float, ranks: int, nodes: int) -> float:
        """Seconds of a collective."""
        where = self.cluster(nodes)
        group = Placement(ranks, ranks // nodes, ranks)
        return alone(chosen(where, "auto", kind, size, group), where, group)  # pyright: ignore[reportArgumentType]


HEADER: Final = """\
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""  # noqa: E501  as the program prints it


def nccl_tests(
    own: SecretCluster, kind: str, ranks: int, nodes: int, *, sizes: Sequence[int], prefix: str = ""
) -> str:
    """One run of nccl-tests."""
    program, redop, passes = PROGRAMS[kind]
    lines = [
        f"# Collective test starting: {program}",
        "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1073741824 step: 2(factor) warmup iters: 5",
        "#",
        "# Using devices",
    ]
    per_node = ranks // nodes
    lines += [
        f"#  Rank {rank:2d} Group  0 Pid {9000 + rank:6d} on     node-{rank // per_node:02d}"
        f" device {rank % per_node:2d} [0000:{rank:02x}:00] NVIDIA H100 80GB HBM3"
        for rank in range(ranks)
    ]
    lines += HEADER.splitlines()
    slow = own.noisy(1.0)  # what all times of one run have in common
    for size in sizes:
        cells: list[str] = []
        usual = own.noisy(slow * own.collective(kind, size, ranks, nodes))
        for slower in (1.004, 1.0):
            us = usual * slower * 1e6
            rate = size / us * 1e-3
            bus = passes * rate * (ranks - 1) / ranks
            cells.append(f"{us:8.5g} {rate:7.2f} {bus:7.2f} {'N/A':>6}")
        lines.append(
            f"{size:12d} {size // 4:13d} {'float':>9} {redop:>7} {-1:7d} {' '.join(cells)}"
        )
    lines += [
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 91.2553 ",
        "#",
        f"# Collective test concluded: {program}",
    ]
    return "".join(f"{prefix}{line}\n" for line in lines)


RULE: Final = "-" * 87


def write_bw(own: SecretCluster, device: str) -> str:
    """`ib_write_bw -a --report_gbits` between two nodes, as the client prints it."""
    rate = own.node.nic.bandwidth * own.node.nic.efficiency * 8e-9
    rows = [
        f" {size:<10d} 5000             {rate * 1.002:.2f}              {own.noisy(rate):.2f}"
        f"              {rate * 0.125e3 / size:.6f}"
        for size in (65536, 1048576, 8388608)
    ]
    head = [
        RULE,
        "                    RDMA_Write BW Test",
        f" Dual-port       : OFF          Device         : {device}",
        " Number of qps   : 1            Transport type : IB",
        " Mtu             : 4096[B]",
        RULE,
        " local address: LID 0x40 QPN 0x038e PSN 0x85d384 RKey 0x1812d1 VAddr 0x007a176aa8c000",
        RULE,
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
        "Conflicting CPU frequency values detected: 800.140000 != 2105.420000.",
    ]
    return "\n".join([*head, *rows, RULE, ""])


def write_lat(own: SecretCluster) -> str:
    """`ib_write_lat` between two nodes under one switch."""
    us = own.noisy(latency(own.cluster(2), "nic")) * 1e6
    return LATENCY.format(us=us, least=us * 0.97, most=us * 2)


LATENCY: Final = """\
---------------------------------------------------------------------------------------
                    RDMA_Write Latency Test
 Dual-port       : OFF          Device         : mlx5_0
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 2       1000          {least:.2f}           {most:.2f}         {us:.3f}              {us:.3f}           0.02                2.75              5.50
---------------------------------------------------------------------------------------
"""  # noqa: E501  as the program prints it


def topology(own: SecretCluster) -> str:
    """`nvidia-smi topo -m` of 8 GPUs with a card each."""
    del own
    names = [f"GPU{i}" for i in range(8)] + [f"NIC{i}" for i in range(8)]
    text = "\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    for row, name in enumerate(names):
        cells = [_cell(row, column) for column in range(16)]
        tail = f"\t{'0-47' if row < 4 else '48-95'}\t{row // 4}\t\tN/A" if row < 8 else ""
        text += f"{name}\t" + "\t".join(cells) + tail + "\n"
    return (
        text
        + "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    )


def _cell(row: int, column: int) -> str:
    if row == column:
        return " X "
    if row < 8 and column < 8:
        return "NV18"
    if row % 8 == column % 8:
        return "PIX"
    return "NODE" if (row % 8) // 4 == (column % 8) // 4 else "SYS"


MATMULS: Final = tuple(
    (m, n, k)
    for m in (1024, 4096, 16384)
    for n, k in ((1024, 4096), (4096, 4096), (4096, 14336), (28672, 4096))
)


def trace(own: SecretCluster) -> str:
    """A trace of `torch.profiler` with shapes: products, attention and additions."""
    call = {"ph": "X", "pid": 1, "tid": 1}
    events: list[dict[str, Any]] = []

    def launch(name: str, dims: Any, types: Any, s: float, kernel: str) -> None:
        number, at = len(events), 1e5 * len(events)
        args = {"External id": number, "Input Dims": dims, "Input type": types}
        events.append(call | {"cat": "cpu_op", "name": name, "ts": at, "dur": 9.0, "args": args})
        events.append(
            call
            | {"cat": "kernel", "name": kernel, "ts": at, "dur": own.noisy(s) * 1e6}
            | {"args": {"External id": number, "device": 0, "stream": 7}}
        )

    half = "c10::BFloat16"
    for m, n, k in MATMULS:
        work = Work(2.0 * m * n * k, 2.0 * (m * k + k * n + m * n), 1, Product(m, n, k))
        s = _seconds(own, "gemm", work)
        launch("aten::mm", [[m, k], [k, n]], [half, half], s, "nvjet_tst_128x256_64x4_bz")
    for count in (1, 2, 4, 8, 16, 32):
        size = count * 2**22
        s = _seconds(own, "bandwidth", Work(0.0, 2.0 * 3 * size, 1))
        launch("aten::add", [[size], [size], []], [half, half, "Scalar"], s, "vectorized_add")
    for tokens in (1024, 2048, 4096, 8192, 16384):
        heads, width = 32, 128
        shape = [1, heads, tokens, width]
        kept = 2.0 * heads * 2 * width * 2 * tokens
        for backward in (False, True):
            flop = 2.0 * heads * tokens * tokens / 2 * (5 if backward else 2) * width
            moved = kept * (2 if backward else 1) + 4.0 * tokens * heads
            s = _seconds(
                own, "attention", Work(flop, moved, 3 if backward else 1, width=width), backward
            )
            name = "aten::_scaled_dot_product_flash_attention" + "_backward" * backward
            dims = [shape] * (4 if backward else 3)
            launch(name, dims, [half] * len(dims), s, "flash_fwd" if not backward else "flash_bwd")
    events.append(call | {"cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 0, "dur": 50.0})
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
    return json.dumps({**head, "traceEvents": events})


def _seconds(own: SecretCluster, kind: OpClass, work: Work, backward: bool = False) -> float:
    return seconds(kind, work, own.node.gpu, own.profile, backward)


def scenario(own: SecretCluster, path: Path, *sets: str) -> Scenario:
    """A scenario under the secret numbers."""
    found = load(path, sets)
    assert isinstance(found, Scenario)
    cluster = found.cluster.model_copy(update={"node": own.node, "fabric": own.fabric})
    return found.model_copy(update={"cluster": cluster, "calibration": own.profile})


def step(own: SecretCluster, path: Path, *sets: str) -> float:
    """Seconds of a step under the secret numbers."""
    return simulate(lower(plan(scenario(own, path, *sets)))).step_ns / 1e9


def megatron_log(own: SecretCluster, seconds: float, steps: int = 40) -> str:
    """What Megatron-LM prints, with warm-ups that take longer."""
    text = "using world size: 32, data-parallel size: 4\n"
    for number in range(1, steps + 1):
        ms = own.noisy(seconds * (3.0 if number == 1 else 1.0)) * 1e3
        text += (
            f" [2026-11-20 10:{number // 60:02d}:{number % 60:02d}.000]"
            f" iteration {number:8d}/    1000 | consumed samples: {number * 64:12d} |"
            f" elapsed time per iteration (ms): {ms:.1f} |"
            " learning rate: 3.0E-04 | global batch size:    64 | lm loss: 9.1E+00 |\n"
        )
    return text


def host_copies(own: SecretCluster) -> list[tuple[int, int, float]]:
    """Copies from (1) and to (2) pinned memory: direction, bytes and seconds."""
    where = own.cluster(1)
    rate, start = capacity(where, "pcie"), latency(where, "pcie")
    return [
        (way, size, own.noisy(size / rate + start))
        for way in (1, 2)
        for size in (2**22, 2**24, 2**26, 2**28)
        for _ in range(3)
    ]
