"""A faster link can make a step slower, where flows meet: three examples, kept with their size.

Max-min sharing gives two flows on a link half of it each, whichever of them the rest waits for. A
link that becomes faster elsewhere lets one of them start earlier; if it then meets the other, the
one that matters arrives later. Real networks do the same; no schedule here is tuned to avoid it.
They are anomalies of scheduling (Graham 1969, "Bounds on multiprocessing timing anomalies"), not of
the arithmetic: where no flows meet, `test_laws` holds that they cannot be.

Each was found among some ten thousand random programs of its kind, of which 0.01 % (1F1B, or a
faster NIC) to 3 % (Kimi K2's schedule) have one, and simplified for as long as it stayed one. The
worst found lengthens its step by 8.2 %; of 157 small layouts with real sizes none was slower on a
faster link.

A faster kernel does the same: of some 950 in random layouts one by 0.013 %. Three layouts whose
steps faster memory lengthened by 3 to 11 % were no anomalies. Passes in which nothing waits for the
host took it no time, so slower kernels, which hide more of it, gave it a lead. They stand below,
too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.programs import by_hand, with_exchange
from twin.collectives.traffic import Traffic
from twin.engine import lower, plan, simulate
from twin.engine.program import COMPUTE, EXPERT, TENSOR, Program, StageMessage, Step, Template
from twin.loading import load
from twin.schedules.base import Schedule
from twin.schedules.interleaved import Interleaved
from twin.schedules.one_f_one_b import OneForwardOneBackward

pytestmark = pytest.mark.usefixtures("each_player")

K2 = Interleaved(extra_warmup=1, overlap_all_to_all=True, defer_weight_grad=True)


@dataclass(frozen=True)
class Example:
    """A program whose step takes longer on faster links. A pass of a chunk is kernels, an exchange
    over the NIC, kernels; where there are gathers also a gather on NVLink and kernels before that.
    Per chunk, forwards first: nanoseconds of kernels (in all; each, where there are gathers), and
    bytes (links carry 1 byte/ns)."""

    schedule: Schedule
    shape: tuple[int, int, int]
    kernels: tuple[int, ...]
    exchanges: tuple[int, ...]
    message: int
    gathers: tuple[int, ...] = ()

    def program(self, nvlink: float = 1.0, nic: float = 1.0) -> Program:
        """The program on links that are so many times as fast."""
        half = len(self.kernels) // 2

        def a_pass(place: int, name: str) -> Template:
            if not self.gathers:
                return with_exchange(self.kernels[place], self.exchanges[place] / nic, name)
            gather = Traffic(nvlink_bytes=self.gathers[place] / nvlink)
            exchange = Traffic(nic_bytes=self.exchanges[place] / nic)
            time = self.kernels[place]
            return (
                Step(name, COMPUTE, time, ()),
                Step("gather", TENSOR, 0, (0,), gather, "tensor"),
                Step(name, COMPUTE, time, (1,)),
                Step("dispatch", EXPERT, 0, (2,), exchange, "expert"),
                Step(name, COMPUTE, time, (3,)),
            )

        return by_hand(
            self.schedule,
            self.shape,
            lambda chunk: a_pass(chunk, "forward"),
            lambda chunk: a_pass(half + chunk, "backward"),
            StageMessage(self.message / nic, "nic", 0),
        )


OVERTAKEN = Example(
    OneForwardOneBackward(),
    (2, 1, 3),
    (50, 50, 200, 200),
    (100, 200, 200, 100),
    200,
    (0, 100, 0, 0),
)
"""The overtaken gradient. Stage 1 sends a gradient back while the next forward runs. With NVLink
twice as fast that forward's exchange starts 50 ns earlier, meets the gradient on the NIC, and both
get half: the gradient, for which stage 0 waits, arrives 50 ns later, the exchange no earlier."""
CROWDED = Example(
    K2,
    (2, 2, 4),
    kernels=(50, 100, 100, 50, 100, 100, 50, 10),
    exchanges=(0, 0, 0, 0, 0, 0, 100, 100),
    message=230,
    gathers=(0, 100, 0, 0, 0, 0, 0, 200),
)
"""The crowded pair. Under Kimi K2's schedule a backward's exchange hides under the kernels of the
forward that it is paired with. With NVLink twice as fast the exchanges of the last two chunks start
while messages in both directions are on the same NICs, each of which holds up a stage."""
NARROW = Example(
    K2,
    (2, 2, 4),
    kernels=(50, 150, 100, 140, 100, 100, 150, 130),
    exchanges=(0, 0, 0, 70, 100, 100, 100, 40),
    message=280,
)
"""The narrow miss. The NIC itself is 3 % faster, and for half of the step everything is earlier.
Then exchanges that used to start when messages were nearly through start just early enough to meet
them, and from there on each stage waits longer for the other."""


@pytest.mark.parametrize(
    ("example", "nvlink", "nic", "longer"),
    [(OVERTAKEN, 2.0, 1.0, 0.0093), (CROWDED, 2.0, 1.0, 0.051), (NARROW, 1.0, 1.03, 0.0091)],
    ids=["the overtaken gradient", "the crowded pair", "the narrow miss"],
)
def test_a_faster_link_may_make_a_step_slower_by_less_than_a_tenth(
    example: Example, nvlink: float, nic: float, longer: float
) -> None:
    usual = simulate(example.program()).step_ns
    faster = simulate(example.program(nvlink, nic)).step_ns
    assert faster / usual - 1 == pytest.approx(longer, abs=0.0005)
    assert faster < 1.1 * usual


def test_a_gradient_that_is_overtaken_arrives_later() -> None:
    """Worked out on paper: 200 bytes from 1,750 on. Alone they arrive at 1,950; from 1,900 on they
    share the NIC with the exchange, so the last 50 bytes take 100 ns."""
    for nvlink, arrives in ((1.0, 1950), (2.0, 2000)):
        trace = simulate(OVERTAKEN.program(nvlink), extrapolate=False)
        spans, name = trace.spans, trace.names.index("send_backward")
        sent = spans.end[(spans.name == name) & (spans.microbatch == 0)]
        assert sent.tolist() == [arrives]


LATE_HOSTS = {
    "zb_h2": """\
model: {name: m, layers: 5, hidden: 4096, vocab: 32000, ffn: {kind: swiglu, width: 12288},
  attention: {kind: mla, heads: 16, q_lora_rank: 128, kv_lora_rank: 64, qk_nope_head_dim: 64,
    qk_rope_head_dim: 32, v_head_dim: 64}}
cluster: {node: b200-8gpu, nodes: 2, fabric: rail-fat-tree-400g}
parallel: {tensor: 4, pipeline: 4, sequence_parallel: true, overlap_tensor: none,
  layers: [1, 1, 2, 1], schedule: {kind: zb_h2}}
memory: {recompute: [swiglu]}
train: {tokens: 10B, global_batch: 20seq, sequence: 512tok, optimizer: muon, precision: fp8}
""",
    "zb_h1": """\
model: {name: m, layers: 5, hidden: 4096, vocab: 32000, ffn: {kind: swiglu, width: 12288},
  attention: {kind: gqa, heads: 8, kv_heads: 8, head_dim: 64}}
cluster: {node: a100-80gb-8gpu-8x200g, nodes: 2, fabric: rail-fat-tree-400g}
parallel: {tensor: 4, pipeline: 2, sequence_parallel: true, overlap_tensor: none, layers: [3, 2],
  overlap_grad_reduce: false, schedule: {kind: zb_h1}}
memory: {}
train: {tokens: 10B, global_batch: 8seq, sequence: 512tok, optimizer: muon}
""",
    "dualpipe": """\
model: {name: m, layers: 10, hidden: 4096, vocab: 128256, ffn: {kind: swiglu, width: 12288},
  attention: {kind: gqa, heads: 16, kv_heads: 8, head_dim: 64},
  moe: {experts: 64, top_k: 4, width: 512, shared_experts: 1}}
cluster: {node: gb200-nvl72, nodes: 1, fabric: rail-fat-tree-400g}
parallel: {context: 2, pipeline: 2, expert: 4, zero: 1, dispatcher: deepep, overlap_tensor: bulk,
  sequence_parallel: false, overlap_grad_reduce: false, layers: [5, 5],
  schedule: {kind: dualpipe}}
memory: {recompute: [moe]}
train: {tokens: 10B, global_batch: 108seq, sequence: 512tok, optimizer: adamw, precision: fp8}
""",
}


def step_ns(file: Path, text: str, field: str, speed: float) -> int:
    """The step of a layout of bare kernels, on a GPU that is so many times as fast."""
    file.write_text(f"schema: 1\nname: layout\n{text}cost: {{gpu_hour: 2USD}}\n", encoding="utf-8")
    unit = "B/s" if field == "memory_bandwidth" else "FLOP/s"
    rate = speed * getattr(load(file).cluster.node.gpu, field)
    sets = ["software=null", f"cluster.node.gpu.{field}={rate:.0f}{unit}"]
    return simulate(lower(plan(load(file, sets)))).step_ns


@pytest.mark.parametrize("name", LATE_HOSTS)
def test_a_host_that_is_late_on_a_faster_gpu_alone_makes_no_anomaly(
    tmp_path: Path, name: str
) -> None:
    usual, faster = (
        step_ns(tmp_path / "layout.yaml", LATE_HOSTS[name], "memory_bandwidth", speed)
        for speed in (1.0, 1.5)
    )
    assert faster <= usual
