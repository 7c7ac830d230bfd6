"""What ranks do to each other: collectives, uneven exchanges, kernels and copies beside both.

    torchrun --nproc-per-node 8 -m reference.measure.ranks --output FOLDER

On several machines `torchrun` starts it on each; the first rank writes. Each case is a line of
`points/ranks-RANKSxNODES.jsonl`, written when it has ended, so that a second run goes on where the
first one stopped. A case that ended the process twice is left out.

Bytes are what one rank sends. Legend: T tokens, D width.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from reference.machine import Machine, inspect, pick
from reference.measure import clock
from reference.measure.clock import Timing
from reference.measure.groups.collectives import FP32, KINDS, collective, timing
from reference.measure.groups.products import skewed
from reference.measure.points import BF16, MeasuredPoint, bf16, open_folder
from reference.measure.together import Pair, Timed
from twin.errors import Problem, TwinError, UsageError

GROUP: Final = "ranks"
TOKENS: Final = 4096
WIDTH: Final = 7168
CHOSEN: Final = 8
EXPERTS: Final = 256
"""An exchange of Kimi K2 and DeepSeek-V3: DeepEP's own tests have these sizes."""
CTAS: Final = (2, 4, 8, 16, 32)
"""Blocks of NCCL at most, each of which holds an SM."""
SMS: Final = (12, 20, 24)
"""Of DeepEP."""


@dataclass(frozen=True, slots=True)
class World:
    """The ranks, where they are, and how much of each case is made."""

    rank: int
    ranks: int
    nodes: int
    device: torch.device
    samples: int
    quick: bool

    @property
    def cuda(self) -> bool:
        """Whether NCCL carries the bytes."""
        return self.device.type == "cuda"

    @property
    def exchanged(self) -> int:
        """Bytes of an exchange beside kernels."""
        return 1 << (28 if self.cuda else 16 if self.quick else 22)


@dataclass(frozen=True, slots=True)
class RankCase:
    """One thing that all ranks do at once; `flop` and `bytes` of one call."""

    op: str
    shape: dict[str, int]
    bytes: float
    run: Callable[[World], Timing]
    flop: float = 0.0
    dtype: str = BF16

    @property
    def key(self) -> str:
        """By which a second run knows it."""
        return json.dumps([self.op, self.shape], sort_keys=True)


def cases(world: World) -> Iterator[RankCase]:
    """Tables first, then what runs beside something else."""
    yield from tables(world)
    yield from uneven(world)
    yield from beside(world)
    if world.cuda:
        yield from limited(world)
    if find_spec("deep_ep") is not None:
        yield from deepep(world)


def sizes(world: World) -> Sequence[int]:
    """Bytes of the tables."""
    steps = (
        (12, 16) if world.quick else (12, 16, 20, 24, 26, 28, 30) if world.cuda else (12, 16, 20)
    )
    return [1 << step for step in steps]


def tables(world: World) -> Iterator[RankCase]:
    """Each collective, and a message to the rank half of all ranks away: over several machines it
    crosses between them."""
    for size in sizes(world):
        shape = {"bytes": size, "ranks": world.ranks, "nodes": world.nodes}
        for kind in KINDS:

            def run(world: World, kind: Any = kind, size: int = size) -> Timing:
                call = collective(kind, size, world.ranks, world.device)
                return timing(call, world.samples, world.device)

            yield RankCase(kind, shape, size, run, dtype=FP32)
        yield RankCase("message", shape, size, lambda w, size=size: _message(w, size), dtype=FP32)


def _message(world: World, size: int) -> Timing:
    """Both ways at once, as stages send activations and gradients."""
    own, other = (torch.zeros(size // 4, device=world.device) for _ in range(2))
    half = world.ranks // 2
    if world.rank >= 2 * half:  # an odd rank watches
        return timing(lambda: None, world.samples, world.device)
    peer = (world.rank + half) % (2 * half)

    def call() -> None:
        pair = [dist.P2POp(dist.isend, own, peer), dist.P2POp(dist.irecv, other, peer)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    return timing(call, world.samples, world.device)


def exchange(world: World, size: int, *, even: bool) -> Callable[[], Any]:
    """Begins an all-to-all of so many bytes per rank; uneven: in proportion to 1, 1/2, 1/3, ...,
    every rank's fullest share to the first."""
    values = size // 2
    counts = [values // world.ranks] * world.ranks if even else skewed(values, world.ranks)
    received = [counts[world.rank]] * world.ranks
    source = torch.zeros(sum(counts), dtype=torch.bfloat16, device=world.device)
    target = torch.zeros(sum(received), dtype=torch.bfloat16, device=world.device)

    def begin() -> Any:
        return dist.all_to_all_single(target, source, received, counts, async_op=True)

    return begin


def uneven(world: World) -> Iterator[RankCase]:
    """The same bytes, evenly and not."""
    for size in sizes(world)[1:-1] or sizes(world)[:1]:
        for even in (True, False):

            def run(world: World, size: int = size, even: bool = even) -> Timing:
                begin = exchange(world, size, even=even)
                return timing(lambda: begin().wait(), world.samples, world.device)

            name = "exchange" if even else "exchange_uneven"
            shape = {"bytes": size, "ranks": world.ranks, "nodes": world.nodes}
            yield RankCase(name, shape, size, run)


def _product(world: World) -> tuple[Callable[[], object], float]:
    """A product of an expert of Kimi K2, and its FLOP."""
    rows, wide = (TOKENS, WIDTH) if world.cuda else (64, 256)
    x, w = bf16(world.device, rows, wide), bf16(world.device, wide // 2, wide)
    return (lambda: x @ w.T), float(2 * rows * wide * (wide // 2))


def _with_copies(call: Callable[[], object], world: World) -> Callable[[], object]:
    """The same, while a third stream copies to the host."""
    if not world.cuda:
        there, host = (torch.zeros(1 << 16, dtype=torch.uint8) for _ in range(2))
        return lambda: (host.copy_(there), call())
    there = torch.zeros(1 << 26, dtype=torch.uint8, device=world.device)
    host, stream = there.cpu().pin_memory(), torch.cuda.Stream(world.device)

    def both() -> None:
        with torch.cuda.stream(stream):
            host.copy_(there, non_blocking=True)
        call()

    return both


def beside(world: World) -> Iterator[RankCase]:
    """A product and an exchange, each alone and beside the other, and beside copies as well; and
    what ranks wait for each other where nothing but the exchange itself makes them meet."""
    size = world.exchanged
    shape = {"bytes": size, "ranks": world.ranks, "nodes": world.nodes}

    def pair(timed: Timed, copies: bool = False) -> Callable[[World], Timing]:
        def run(world: World) -> Timing:
            call, _ = _product(world)
            begin = exchange(world, size, even=True)
            both = Pair(_with_copies(call, world) if copies else call, begin)
            return both.measure(timed, world.samples, world.device)

        return run

    def product_alone(world: World) -> Timing:
        return timing(_product(world)[0], world.samples, world.device)

    flop = _product(world)[1]
    yield RankCase("product_alone", shape, 0.0, product_alone, flop)
    yield RankCase("product_beside_exchange", shape, 0.0, pair("kernels"), flop)
    yield RankCase("product_beside_exchange_and_copies", shape, 0.0, pair("kernels", True), flop)
    yield RankCase("exchange_alone", shape, size, lambda w: _exchange_alone(w, size))
    yield RankCase("exchange_beside_product", shape, size, pair("exchange"))
    yield RankCase("exchange_beside_product_and_copies", shape, size, pair("exchange", True))
    yield RankCase("exchange_wait", shape, size, lambda w: _wait(w, size))


def _exchange_alone(world: World, size: int) -> Timing:
    begin = exchange(world, size, even=True)
    return timing(lambda: begin().wait(), world.samples, world.device)


def _wait(world: World, size: int) -> Timing:
    """Seconds of an exchange in a row of products and exchanges, less those of the product: what
    it takes beyond `exchange_alone` is waiting."""
    call, _ = _product(world)
    begin = exchange(world, size, even=True)
    seconds: list[float] = []
    for sample in range(world.samples + 1):
        if sample == 0:
            dist.barrier()
        clock.finish(world.device)
        call()
        clock.finish(world.device)
        start = time.perf_counter()
        begin().wait()
        clock.finish(world.device)
        seconds.append(time.perf_counter() - start)
    return clock.summary(seconds[1:], 1)


def limited(world: World) -> Iterator[RankCase]:
    """An all-reduce that may hold so many SMs: its own rate, and a product beside it."""
    size = world.exchanged
    for ctas in CTAS:
        shape = {"bytes": size, "ranks": world.ranks, "nodes": world.nodes, "ctas": ctas}

        def reduce(world: World, ctas: int = ctas) -> Callable[[], Any]:
            options: Any = dist.ProcessGroupNCCL.Options()
            options.config.min_ctas = options.config.max_ctas = ctas
            group = dist.new_group(pg_options=options)
            held = torch.zeros(size // 2, dtype=torch.bfloat16, device=world.device)
            return lambda: dist.all_reduce(held, group=group, async_op=True)

        def alone(world: World, make: Any = reduce) -> Timing:
            begin = make(world)
            return timing(lambda: begin().wait(), world.samples, world.device)

        def product(world: World, make: Any = reduce) -> Timing:
            pair = Pair(_product(world)[0], make(world))
            return pair.measure("kernels", world.samples, world.device)

        yield RankCase("all_reduce_limited", shape, size, alone)
        yield RankCase("product_beside_all_reduce", shape, 0.0, product, _product(world)[1])


def deepep(world: World) -> Iterator[RankCase]:
    """DeepEP's exchange of Kimi K2's tokens, out and back; bytes are the rows that a rank receives,
    its own among them, where each token chooses its experts at random."""
    size = 2.0 * TOKENS * WIDTH * copies_per_token(world.ranks)
    for sms in SMS:
        shape = {"tokens": TOKENS, "ranks": world.ranks, "nodes": world.nodes, "sms": sms}
        for op in ("dispatch", "combine"):

            def run(world: World, op: str = op, sms: int = sms) -> Timing:
                return timing(_deepep(world, sms)[op], world.samples, world.device)

            yield RankCase(f"deepep_{op}", shape, size, run)


def copies_per_token(ranks: int) -> float:
    """Ranks that hold one of a token's experts, on average."""
    elsewhere = EXPERTS - EXPERTS // ranks
    missed = prod((elsewhere - i) / (EXPERTS - i) for i in range(CHOSEN))
    return ranks * (1.0 - missed)


def _deepep(world: World, sms: int) -> dict[str, Callable[[], object]]:
    """DeepEP's two calls (its `tests/test_intranode.py` and `test_internode.py`)."""
    library: Any = import_module("deep_ep")
    buffer = library.Buffer(dist.group.WORLD, int(1e9), int(1e9) if world.nodes > 1 else 0)
    library.Buffer.set_num_sms(sms)
    tokens, wide = (TOKENS, WIDTH) if world.cuda else (64, 128)
    x = bf16(world.device, tokens, wide)
    scores = torch.rand(tokens, EXPERTS, device=world.device)
    weights, index = scores.topk(CHOSEN, dim=-1, sorted=False)
    per_rank, per_node, per_expert, inside, _ = buffer.get_dispatch_layout(index, EXPERTS)
    received, _, _, _, handle, _ = buffer.dispatch(
        x=x,
        topk_idx=index,
        topk_weights=weights,
        num_tokens_per_rank=per_rank,
        num_tokens_per_rdma_rank=per_node,
        is_token_in_rank=inside,
        num_tokens_per_expert=per_expert,
    )
    return {
        "dispatch": lambda: buffer.dispatch(x=x, handle=handle),
        "combine": lambda: buffer.combine(x=received, handle=handle),
    }


class Lines:
    """The file of points, and which cases it has. The first rank writes; all know."""

    def __init__(self, folder: Path, world: World, machine: Machine) -> None:
        self.path = folder / "points" / f"{GROUP}-{world.ranks}x{world.nodes}.jsonl"
        self.tried = self.path.with_suffix(".tried")
        self.world = world
        known: list[set[str]] = [set(), set()]
        if world.rank == 0:
            open_folder(folder, machine)
            known = [self._read(), self._fatal()]
            if not self.path.exists():
                head = {"machine": machine.as_dict(), "skipped": []}
                self.path.write_text(json.dumps(head) + "\n", encoding="utf-8")
        dist.broadcast_object_list(known, device=world.device)
        self.done, self.fatal = known

    def begin(self, case: RankCase) -> None:
        """A line that stays where the case ends the process."""
        if self.world.rank == 0:
            with self.tried.open("a", encoding="utf-8") as file:
                file.write(case.key + "\n")

    def end(self, case: RankCase, found: Timing) -> None:
        """Its line."""
        if self.world.rank == 0:
            point = MeasuredPoint(
                GROUP, case.op, case.shape, case.dtype, case.flop, case.bytes, 1, found
            )
            with self.path.open("a", encoding="utf-8") as file:
                file.write(point.text() + "\n")
            self.tried.unlink()

    def _read(self) -> set[str]:
        lines = self.path.read_text(encoding="utf-8").splitlines()[1:] if self.path.exists() else []
        found = [json.loads(line) for line in lines]
        return {json.dumps([one["op"], one["shape"]], sort_keys=True) for one in found}

    def _fatal(self) -> set[str]:
        lines = self.tried.read_text(encoding="utf-8").splitlines() if self.tried.exists() else []
        return {line for line in lines if lines.count(line) > 1}


def measure(world: World, folder: Path, machine: Machine) -> int:
    """Every case that the folder lacks; how many were timed."""
    lines, count = Lines(folder, world, machine), 0
    for case in cases(world):
        if case.key in lines.done | lines.fatal:
            continue
        lines.begin(case)
        found = case.run(world)
        lines.end(case, found)
        count += 1
        if world.cuda:
            torch.cuda.empty_cache()
    return count


def main(words: Sequence[str] | None = None) -> int:
    """The exit code."""
    options = _parser().parse_args(words)
    try:
        device = _own(pick(options.device))
        torch.set_num_threads(1)
        machine = inspect(device, options.name)
        if "RANK" not in os.environ:
            fix = "torchrun --nproc-per-node 8 -m reference.measure.ranks --output FOLDER"
            raise UsageError([Problem("TW266", "", "these are not ranks", fix)])
    except TwinError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    ranks, here = dist.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    samples = 2 if options.quick else 15
    nodes = max(1, ranks // here)
    world = World(dist.get_rank(), ranks, nodes, device, samples, options.quick)
    count = measure(world, options.output, machine)
    if world.rank == 0:
        sys.stdout.write(f"{count} cases of {ranks} ranks on {world.nodes} machines\n")
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _own(device: torch.device) -> torch.device:
    """The GPU of this rank, before anything else touches CUDA."""
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    return device


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchrun -m reference.measure.ranks",
        description="Time what ranks send each other, alone and beside kernels and copies.",
    )
    add = parser.add_argument
    add("--output", type=Path, required=True, help="write to this folder")
    add("--device", default="auto", help="measure auto, cpu or cuda [auto]")
    add("--name", help="name the machine, as its other points are named")
    add("--quick", action="store_true", help="measure few and small cases")
    return parser


if __name__ == "__main__":
    sys.exit(main())
