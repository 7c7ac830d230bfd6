"""Which GPUs a node has: `nvidia-smi -L`, or `nvidia-smi --query-gpu=name,... --format=csv`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import ClassVar, Final, final

from twin.evidence.calibrate.sources.base import Findings, Measurement, Source, lines
from twin.loading.files import display

_LISTED: Final = re.compile(r"^GPU \d+: (?P<name>.+?) \(UUID: ")
_HEADER: Final = re.compile(
    r"^(?:index, |timestamp, |uuid, |count, )*name(?:, [\w.]+(?: \[[^\]]+\])?)*\s*$"
)


@final
class GpuList(Source):
    """The names of GPUs."""

    reads: ClassVar[tuple[str, ...]] = ("gpu-list",)

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
