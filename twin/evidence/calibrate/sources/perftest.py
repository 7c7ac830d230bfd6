"""Output of perftest between two nodes: `ib_write_bw`, `ib_read_bw`, `ib_send_bw` and the latency
of `ib_write_lat` and `ib_send_lat`.

Its Gb are 1e9 bits and its MB 2^20 bytes (perftest, src/perftest_resources.c). A bidirectional run
counts both directions. `ib_read_lat` times a way there and back, and is not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, final

from twin.evidence.calibrate.sources.base import Findings, Measurement, Source, lines
from twin.interop.recognise import sign
from twin.loading.files import display

LARGE: Final = 1 << 16
"""Bytes from which on a message shows the rate of a card: what perftest sends if not told."""
SHORT: Final = 64
"""Bytes up to which a message shows latency."""
_TITLE: Final = sign("perftest")
_DEVICE: Final = re.compile(r"Device\s*:\s*(\S+)")
_HEAD: Final = re.compile(r"#bytes\s+#iterations(.*)")
_RATE_UNITS: Final = {"Gb/sec": 1e9 / 8, "MB/sec": 2.0**20, "MiB/sec": 2.0**20}
_COLUMN: Final = re.compile(r"(\S+(?: percentile| average| peak)?)\[([^\]]+)\]")


@dataclass(slots=True)
class _Test:
    title: str
    both_ways: bool
    latency: bool
    device: str = ""
    columns: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    rows: list[list[float]] = field(default_factory=list[list[float]])


@final
class Perftest(Source):
    """Tests of two network cards."""

    reads: ClassVar[tuple[str, ...]] = ("perftest",)

    def read(self, path: Path) -> Findings:
        """Average rates of large messages, and typical latencies of short ones."""
        unused, found = list[str](), list[Measurement]()
        for number, test in enumerate(_tests(path), 1):
            where = f"{display(path)}, test {number}"
            own, why = _measurements(test, where)
            found += own
            if why:
                unused.append(f"{where}: {why}")
        rates = sum(one.unit == "B/s" for one in found)
        counts = {"rates of network cards": rates, "latencies": len(found) - rates}
        took = tuple(f"{count} {what}" for what, count in counts.items() if count)
        return Findings(took, tuple(unused), "", tuple(found))


def _tests(path: Path) -> Iterator[_Test]:
    test: _Test | None = None
    for line in lines(path):
        if title := _TITLE.search(line):
            if test is not None:
                yield test
            test = _Test(title[1], title[2] is not None, title[3] == "Latency")
        elif test is None:
            continue
        elif device := _DEVICE.search(line):
            test.device = device[1]
        elif columns := _HEAD.search(line):
            test.columns = [(name, unit) for name, unit in _COLUMN.findall(columns[1])]
        elif test.columns and (numbers := _numbers(line)) is not None:
            test.rows.append(numbers)
    if test is not None:
        yield test


def _numbers(line: str) -> list[float] | None:
    try:
        numbers = [float(word) for word in line.split()]
    except ValueError:
        return None
    return numbers if len(numbers) > 2 else None


def _measurements(test: _Test, where: str) -> tuple[list[Measurement], str]:
    if not test.rows:
        return [], "no row of numbers (the server's side, or a run that failed)"
    if test.latency and test.title == "RDMA_Read":
        return [], "a read's latency is of a way there and back"
    picked = _column(test)
    if picked is None:
        return [], "its columns are unknown"
    place, scale = picked
    found: list[Measurement] = []
    for row in test.rows:
        fits = row[0] <= SHORT if test.latency else row[0] >= LARGE
        if not fits or len(row) <= place + 2 or row[place + 2] <= 0:
            continue
        value = row[place + 2] * scale / (2 if test.both_ways else 1)
        what, unit = ("hop", "s") if test.latency else ("card", "B/s")
        found.append(Measurement(what, row[0], 2, 2, value, unit, where))
    skipped = len(test.rows) - len(found)
    kind = f"over {SHORT} bytes" if test.latency else "under 64 KiB"
    return found, f"{skipped} sizes {kind}" if skipped else ""


def _column(test: _Test) -> tuple[int, float] | None:
    """Which column counts, behind bytes and iterations, and what its numbers are multiplied by."""
    wanted = ("t_typical", "t_avg") if test.latency else ("BW average", "average")
    for name in wanted:
        for place, (column, unit) in enumerate(test.columns):
            if column.endswith(name):
                scale = 1e-6 if test.latency else _RATE_UNITS.get(unit)
                return None if scale is None else (place, scale)
    return None
