"""Which GPUs a node has: `nvidia-smi -L`, or `nvidia-smi --query-gpu=name,... --format=csv`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import ClassVar, Final, final

from twin.evidence.calibrate.sources.base import Findings, Measurement, Source, lines, plain
from twin.loading.files import display

_LISTED: Final = re.compile(r"^GPU \d+: (?P<name>.+?) \(UUID: ", re.MULTILINE)
_HEADER: Final = re.compile(
    r"^(?:index, |timestamp, |uuid, |count, )*name(?:, [\w.]+(?: \[[^\]]+\])?)*\s*$", re.MULTILINE
)


@final
class GpuList(Source):
    """The names of GPUs."""

    words: ClassVar[str] = "nvidia-smi's list of GPUs"

    def recognises(self, head: bytes) -> bool:
        """By a listed GPU, or the header of the table."""
        text = plain(head)
        return _LISTED.search(text) is not None or _names_gpus(text)

    def read(self, path: Path) -> Findings:
        """The commonest name, and how many GPUs have it."""
        names: Counter[str] = Counter()
        place = -1
        for line in lines(path):
            if listed := _LISTED.search(line):
                names[listed["name"]] += 1
            elif _HEADER.match(line):
                place = line.strip().split(", ").index("name")
            elif place >= 0 and len(cells := line.strip().split(", ")) > place:
                names[cells[place]] += 1
        if not names:
            return Findings(unused=(f"{display(path)}: no GPU in it",))
        (name, count), *others = names.most_common()
        unused = tuple(f"{display(path)}: {n} {other}, another GPU" for other, n in others)
        counted = Measurement("gpus", 0.0, count, 1, float(count), "count", display(path))
        return Findings((f"{count} {name}",), unused, name, (counted,))


def _names_gpus(text: str) -> bool:
    found = _HEADER.search(text)
    return found is not None and "NVIDIA" in text[found.end() : found.end() + 2000]
