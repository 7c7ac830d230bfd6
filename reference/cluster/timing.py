"""Times messages and collectives over a cluster's links, and counts the bytes that cross them; run
on its ranks: `python -m reference.cluster --nodes 2 --rate 1Gbps -- reference.cluster.timing`.

All ranks begin a sample at an agreed moment of the machine's clock, so that it does not count how
they meet; it ends with the last of them. Bytes are what a rank's card has sent and received, with
headers and answers (0.5 to 1 %). Rows are appended to a CSV (`LinkTiming`).
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Final, TypeAlias

import torch
import torch.distributed as dist

from reference.ending import exit_code
from reference.machine import inspect
from reference.parallel import groups
from twin import units
from twin.errors import Problem, UsageError

Call: TypeAlias = Callable[[], object]
SIZES: Final = (65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 33_554_432)
HEAD_START: Final = 0.01
"""Seconds for all ranks to learn when a sample begins, of each rank."""
LEAST: Final = 3
"""Samples at least, whatever time they take."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who takes part, seen from one of them, and a second process group of the same ranks."""

    rank: int
    size: int
    second: dist.ProcessGroup | None = None


def _message(ranks: Ranks, size: int) -> Call:
    """From rank 0 to rank 1; others look on."""
    x_X = _bytes(size)
    if ranks.rank == 0:
        return lambda: dist.send(x_X, 1)
    if ranks.rank == 1:
        return lambda: dist.recv(x_X, 0)
    return lambda: None


def _both_ways(ranks: Ranks, size: int, *, receive_first: bool, groups: int) -> Call:
    """Both ways between neighbours, on one connection or each way with its own."""
    x_X, y_X = _bytes(size), _bytes(size)
    other = ranks.rank ^ 1
    ways = [None, ranks.second if groups == 2 else None]
    if ranks.rank % 2:
        ways.reverse()

    def run() -> None:
        works: list[dist.Work | None] = []
        if receive_first:
            works.append(dist.irecv(y_X, other, group=ways[1]))
        works.append(dist.isend(x_X, other, group=ways[0]))
        if not receive_first:
            works.append(dist.irecv(y_X, other, group=ways[1]))
        for work in works:
            if work is not None:
                work.wait()

    return run


def _all_to_all(ranks: Ranks, size: int, *, posted: bool, uneven: bool) -> Call:
    """With equal shares, or uneven ones by as much as 1 to N: rank a sends rank b 1 + (a + b) mod N
    shares (bytes), so that every rank sends `size` in all, and receives as much."""
    rows: list[int] | None = None
    if uneven:
        numbers = range(ranks.size)
        share = size // sum(1 + other for other in numbers)
        rows = [share * (1 + (ranks.rank + other) % ranks.size) for other in numbers]
        size = sum(rows)  # symmetric: b sends a as many
    x_X, y_X = _bytes(size), _bytes(size)
    if posted:
        return lambda: groups.all_to_all(y_X, x_X, rows, rows).wait()
    return lambda: dist.all_to_all_single(y_X, x_X, rows, rows)


def _collective(
    ranks: Ranks, size: int, *, run: Callable[[torch.Tensor, torch.Tensor], object]
) -> Call:
    """Of a tensor of so many bytes, and a part of it for each rank."""
    part = size // 4 // ranks.size
    whole_X, part_X = torch.zeros(part * ranks.size), torch.zeros(part)
    return lambda: run(whole_X, part_X)


def _bytes(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.uint8)


_COLLECTIVES: Final[Mapping[str, Callable[[torch.Tensor, torch.Tensor], object]]] = {
    "all_reduce": lambda whole_X, _: dist.all_reduce(whole_X),
    "reduce_scatter": lambda whole_X, part_X: dist.reduce_scatter_single(part_X, whole_X),
    "reduce_scatter_posted": lambda whole_X, part_X: groups.reduce_scatter(part_X, whole_X),
    "all_gather": dist.all_gather_single,
    "all_gather_posted": groups.all_gather,
    "broadcast": lambda whole_X, _: dist.broadcast(whole_X, 0),
}
PATTERNS: Final[Mapping[str, Callable[[Ranks, int], Call]]] = MappingProxyType(
    {
        "message": _message,
        "receive_first": partial(_both_ways, receive_first=True, groups=1),
        "send_first": partial(_both_ways, receive_first=False, groups=1),
        "two_groups": partial(_both_ways, receive_first=False, groups=2),
        "all_to_all": partial(_all_to_all, posted=False, uneven=False),
        "all_to_all_uneven": partial(_all_to_all, posted=False, uneven=True),
        "all_to_all_posted": partial(_all_to_all, posted=True, uneven=False),
        "all_to_all_posted_uneven": partial(_all_to_all, posted=True, uneven=True),
        **{name: partial(_collective, run=run) for name, run in _COLLECTIVES.items()},
    }
)
"""gloo's messages and collectives, and `posted` ones: those of `reference.parallel`, which post
their receives first.

Bytes of a pattern are the payload as the twin counts it: a message of one rank; the whole tensor,
gathered or not yet scattered; of an all-to-all what one rank sends, its own share included."""


@dataclass(frozen=True, slots=True)
class LinkTiming:
    """One pattern of one size: seconds, and bytes of the rank that sent and received most. `rate`
    is each link's (bytes/s, as text with a unit), empty for loopback."""

    date: str
    machine: str
    nodes: int
    ranks_per_node: int
    rate: str
    pattern: str
    bytes: int
    least: float
    median: float
    samples: int
    sent: int
    received: int
    load: float


def main(words: Sequence[str] | None = None) -> int:
    """The exit code."""
    return exit_code(lambda: _command(_parser().parse_args(words)))


def _command(options: argparse.Namespace) -> int:
    patterns, sizes = _wanted(options.patterns), _sizes(options.sizes)
    dist.init_process_group("gloo")
    second = dist.new_group()
    assert isinstance(second, dist.ProcessGroup)
    ranks = Ranks(dist.get_rank(), dist.get_world_size(), second)
    machine = inspect(torch.device("cpu")).name
    for pattern in patterns:
        for size in sizes:
            row = _row(machine, ranks, pattern, size, options.seconds)
            if ranks.rank == 0:
                sys.stdout.write(_line(row) + "\n")
                if options.output is not None:
                    append(options.output, [row])
    dist.destroy_process_group()
    return 0


def append(path: Path, rows: Sequence[LinkTiming]) -> None:
    """Add rows to a CSV, which begins with its columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        columns = [field.name for field in fields(LinkTiming)]
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reference.cluster.timing", description=__doc__)
    add = parser.add_argument
    add("--patterns", help=f"time these, with commas between: {', '.join(PATTERNS)} [all]")
    add("--sizes", help="time these sizes, with commas between [64KiB to 32MiB]")
    add("--seconds", type=float, default=1.0, help="time one pattern of one size so long [1]")
    add("--output", type=Path, help="append rows to this CSV")
    return parser


def _wanted(text: str | None) -> tuple[str, ...]:
    names = tuple(PATTERNS) if text is None else tuple(text.split(","))
    unknown = [name for name in names if name not in PATTERNS]
    if unknown:
        message = f"there is no pattern `{unknown[0]}`"
        raise UsageError([Problem("TW323", "--patterns", message, ", ".join(PATTERNS))])
    return names


def _sizes(text: str | None) -> tuple[int, ...]:
    try:
        if text is None:
            return SIZES
        return tuple(round(units.parse(size, "bytes")) for size in text.split(","))
    except units.QuantityError as error:
        raise UsageError([Problem("TW321", "--sizes", str(error), error.hint)]) from error


def _row(machine: str, ranks: Ranks, pattern: str, size: int, seconds: float) -> LinkTiming:
    call = PATTERNS[pattern](ranks, size)
    taken, sent, received = zip(*_samples(ranks, call, seconds), strict=True)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return LinkTiming(
        date=datetime.now(UTC).date().isoformat(),
        machine=machine,
        nodes=ranks.size // local,
        ranks_per_node=local,
        rate=os.environ.get("CLUSTER_RATE", ""),
        pattern=pattern,
        bytes=size,
        least=round(min(taken), 7),
        median=round(median(taken), 7),
        samples=len(taken),
        sent=min(sent),
        received=min(received),
        load=round(os.getloadavg()[0], 1),
    )


def _samples(ranks: Ranks, call: Call, seconds: float) -> Iterator[tuple[float, int, int]]:
    """Seconds, and bytes of the busiest card, of each try after the first, which connects ranks."""
    number, until = 0, time.monotonic() + seconds
    while True:
        begin = _agreed(ranks, until)
        if begin <= 0 and number > LEAST:
            return
        before = _carried()
        time.sleep(max(0.0, abs(begin) - time.monotonic()))
        call()
        taken = _most(time.monotonic() - abs(begin))
        after = _carried()  # now that all ranks have all
        sent, received = (_most(now - then) for now, then in zip(after, before, strict=True))
        if number:
            yield taken, int(sent), int(received)
        number += 1


def _most(value: float) -> float:
    """The greatest of all ranks'."""
    most = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most.item()


def _agreed(ranks: Ranks, until: float) -> float:
    """When the next sample begins, the same on all ranks; negative where time is up."""
    now = time.monotonic()
    begin = torch.tensor([now + HEAD_START * (1 + ranks.size)], dtype=torch.float64)
    if now > until:
        begin.neg_()
    dist.broadcast(begin, 0)
    return begin.item()


def _carried() -> tuple[int, int]:
    """Bytes that this rank's card has sent and received since it is there."""
    card = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    for line in Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == card:
            columns = numbers.split()
            return int(columns[8]), int(columns[0])
    return 0, 0


def _line(row: LinkTiming) -> str:
    where = row.rate or "loopback"
    return (
        f"{row.nodes}x{row.ranks_per_node} {where:>10} {row.pattern:26} {row.bytes:>10,} B  "
        f"{row.least * 1e3:9.3f} ms least {row.median * 1e3:9.3f} median of {row.samples:3}  "
        f"sent {row.sent / row.bytes:6.3f}  received {row.received / row.bytes:6.3f}"
    )


if __name__ == "__main__":
    sys.exit(main())
