"""Output of nccl-tests (and rccl-tests): `all_reduce_perf`, `all_gather_perf`,
`reduce_scatter_perf`, `alltoall_perf`, `broadcast_perf`, `sendrecv_perf`.

A file may hold several runs, each line behind the prefix of a launcher (`[1,0]<stdout>:`, `0: `). A
run begins at `# nThread` and lists its ranks with their hosts; a row gives microseconds out of
place and in place. Of both the shorter counts: a trainer may do either. Which collective a run is
stands in its first line from nccl-tests 2.16 on, else in the command above it, else in the name of
the file. Source: nccl-tests, src/common.cu and doc/PERFORMANCE.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import ClassVar, Final, final

from twin.evidence.calibrate.sources.base import Findings, Measurement, Source, lines
from twin.interop.recognise import sign
from twin.loading.files import display

SMALLEST: Final = 4 * 2**20
"""Bytes of the smallest payload that is taken: NCCL sends smaller ones with flags, and what that
costs is not fitted to a cluster."""
COLLECTIVES: Final = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "message",
}
"""What the programs are called, and what the twin calls what they do."""
_PROGRAM: Final = re.compile(r"\b([a-z_]+)_perf\b")
_BEGIN: Final = sign("nccl-tests")
_RANK: Final = re.compile(
    r"#\s*Rank\s+\d+\s+(?:Group\s+(?P<group>\d+)\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+"
    r"device\s+\d+\s+\[[^\]]*\]\s*(?P<gpu>.*)"
)
_TYPES: Final = "u?int(?:8|32|64)|half|float|double|bfloat16|fp8_?e[45]m[23]|f8e[45]m[23]"
_ROW: Final = re.compile(
    rf"(?P<size>\d+)\s+\d+\s+(?:{_TYPES})\s+(?:[a-z]+\s+)?(?:-?\d+\s+)?(?=[\d.]+\s+[\d.]+\s+[\d.]+)"
    r"(?P<out>[\d.]+)\s+[\d.]+\s+[\d.]+\s+\S+(?:\s+(?P<in>[\d.]+)\s+[\d.]+\s+[\d.]+\s+\S+)?\s*$"
)


@dataclass(slots=True)
class _Run:
    program: str
    hosts: Counter[str] = field(default_factory=Counter[str])
    groups: set[str] = field(default_factory=set[str])
    gpu: str = ""
    rows: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Bytes and seconds."""


@final
class NcclTests(Source):
    """Runs of nccl-tests."""

    reads: ClassVar[tuple[str, ...]] = ("nccl-tests",)

    def read(self, path: Path) -> Findings:
        """Every row of at least 4 MiB whose collective the twin prices."""
        unused, found, device, small = list[str](), list[Measurement](), "", 0
        for number, run in enumerate(_runs(path), 1):
            where = f"{display(path)}, run {number}"
            device = device or run.gpu
            if why := _wrong(run):
                unused.append(f"{where}: {why}")
                continue
            ranks, nodes = sum(run.hosts.values()), len(run.hosts)
            large = [row for row in run.rows if row[0] >= SMALLEST]
            small += len(run.rows) - len(large)
            kind = COLLECTIVES[run.program]
            found += (Measurement(kind, size, ranks, nodes, s, "s", where) for size, s in large)
        if small:
            unused.append(f"{small} times of less than 4 MiB: NCCL sends them with flags")
        return Findings(_words(found), tuple(unused), device, tuple(found))


def _words(found: Sequence[Measurement]) -> tuple[str, ...]:
    """Times by their group, and the collectives of each."""
    groups: dict[tuple[int, int], list[str]] = {}
    for one in found:
        groups.setdefault((one.ranks, one.nodes), []).append(one.what.replace("_", "-"))
    return tuple(
        f"{len(own)} times on {ranks} ranks of {nodes} node{'' if nodes == 1 else 's'} "
        f"({', '.join(dict.fromkeys(own))})"
        for (ranks, nodes), own in groups.items()
    )


def _runs(path: Path) -> Iterator[_Run]:
    """The runs of a file in order; those without a row, too."""
    named = _program(path.name)
    told, run = "", None
    for line in lines(path):
        program = _program(line)
        if _BEGIN.search(line):
            if run is not None:
                yield run
            run, told = _Run(told or named), ""
        elif program:
            told = "" if "concluded" in line else program
        elif run is not None:
            _take(run, line)
    if run is not None:
        yield run


def _program(text: str) -> str:
    """The program that a line names last; empty where it names none of these."""
    known = [name for name in _PROGRAM.findall(text) if name in COLLECTIVES]
    return known[-1] if known else ""


def _take(run: _Run, line: str) -> None:
    if rank := _RANK.search(line):
        run.groups.add(rank["group"] or "0")
        if (rank["group"] or "0") == min(run.groups):
            run.hosts[rank["host"]] += 1
        run.gpu = run.gpu or rank["gpu"].strip()
    elif row := _ROW.search(line):
        times = [float(row[name]) * 1e-6 for name in ("out", "in") if _is_time(row[name])]
        if times:
            run.rows.append((float(row["size"]), min(times)))


def _is_time(text: str | None) -> bool:
    try:
        return text is not None and float(text) > 0 and isfinite(float(text))
    except ValueError:
        return False


def _wrong(run: _Run) -> str:
    """Why a run cannot be used; empty where it can."""
    if not run.rows:
        return "no row of times"
    if not run.program:
        return "which collective it is stands nowhere; keep the command line in the file"
    if sum(run.hosts.values()) < 2:
        return "fewer than 2 ranks are listed"
    if len(set(run.hosts.values())) > 1:
        return "nodes have unequal numbers of ranks"
    return ""
