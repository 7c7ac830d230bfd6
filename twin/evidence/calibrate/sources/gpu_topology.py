"""The matrix of `nvidia-smi topo -m`: GPUs of a node, NVLinks of each, network cards, NUMA nodes.

A cell says how a row's device reaches a column's: `NV18` over 18 NVLinks, `PIX` under one PCIe
switch. Source: the legend that the command prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, final

from twin.evidence.calibrate.sources.base import Findings, Measurement, Source, lines
from twin.interop.recognise import sign
from twin.loading.files import display

_HEADER: Final = sign("gpu-topology")
_DEVICE: Final = re.compile(r"^(GPU|NIC|mlx\d*_)\d+$")
_CELL: Final = re.compile(r"^(?:X|NV\d+|SYS|NODE|PHB|PXB|PIX)$")
_LINKS: Final = re.compile(r"^NV(\d+)$")

Matrix = Mapping[str, Sequence[str]]
"""The cells of each row in the order of the columns."""


@final
class GpuTopology(Source):
    """What a node is made of."""

    reads: ClassVar[tuple[str, ...]] = ("gpu-topology",)

    def read(self, path: Path) -> Findings:
        """Counts of GPUs, NVLinks, network cards that a GPU shares no socket's way with, and NUMA
        nodes; of the first matrix in the file."""
        columns, rows, sockets = _matrix(path)
        gpus = [name for name in rows if name.startswith("GPU")]
        if not gpus:
            return Findings(unused=(f"{display(path)}: a matrix without rows",))
        counts = {"gpus": len(gpus), "nics": _cards(columns, rows, gpus)}
        counts["sockets"] = len(sockets)
        links, why = _links(columns, rows, gpus)
        counts["nvlinks"] = links
        where = display(path)
        found = [
            Measurement(what, 0.0, len(gpus), 1, float(count), "count", where)
            for what, count in counts.items()
            if count
        ]
        words = ", ".join(f"{count} {_WORDS[what]}" for what, count in counts.items() if count)
        return Findings((words,), tuple(f"{where}: {text}" for text in why), "", tuple(found))


_WORDS: Final = {
    "gpus": "GPUs",
    "nics": "network cards near GPUs",
    "sockets": "NUMA nodes with GPUs",
    "nvlinks": "NVLinks of each GPU",
}


def _matrix(path: Path) -> tuple[list[str], dict[str, list[str]], set[str]]:
    """Columns, rows, and the NUMA nodes that GPUs are on."""
    columns: list[str] = []
    rows: dict[str, list[str]] = {}
    sockets: set[str] = set()
    for line in lines(path):
        if not columns:
            if _HEADER.search(line):
                columns = [word for word in line.split() if _DEVICE.match(word)]
            continue
        name, *words = line.split() or [""]
        if name in rows or (rows and not _DEVICE.match(name)):
            break  # the legend, or the matrix of the next node
        cells = [word for word in words if _CELL.match(word)][: len(columns)]
        if not _DEVICE.match(name) or len(cells) < len(columns):
            continue
        rows[name] = cells
        if name.startswith("GPU") and (numa := _numa(words[len(columns) :])):
            sockets.add(numa)
    return columns, rows, sockets


def _numa(words: Sequence[str]) -> str:
    """The NUMA node behind the list of cores, which may be empty, or one core."""
    listed = [word for word in words if word[0].isdigit()]
    numa = listed[1:2] if len(listed) > 1 else listed
    return numa[0] if numa and numa[0].isdigit() else ""


def _cards(columns: Sequence[str], rows: Matrix, gpus: Sequence[str]) -> int:
    """Network cards behind a PCIe switch or bridge of some GPU: others serve storage."""
    near = {"PIX", "PXB"}
    cards = [place for place, name in enumerate(columns) if not name.startswith("GPU")]
    close = [place for place in cards if near & {rows[gpu][place] for gpu in gpus}]
    return len(close)


def _links(
    columns: Sequence[str], rows: Matrix, gpus: Sequence[str]
) -> tuple[int, tuple[str, ...]]:
    """NVLinks of each GPU; 0, and why, where pairs differ or have none."""
    cells = {
        rows[gpu][place]
        for gpu in gpus
        for place, other in enumerate(columns)
        if other.startswith("GPU") and other != gpu
    }
    found = {int(link[1]) for cell in cells if (link := _LINKS.match(cell))}
    if not cells:
        return 0, ()
    if len(cells) > 1 or not found:
        return 0, ("GPUs do not all meet over equally many NVLinks: the twin knows switches only",)
    return found.pop(), ()
