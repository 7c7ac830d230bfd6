"""Sources that the twin met blind: their steps as predicted before anything changed because of them
(`scenarios/published/blind.json`). Only they tell how far software lies off that nobody named.

`python -m twin.evidence.validate.blind` says how many sealed intervals held, and how many hold that
know all other sources, or no source of the same round. Every source weighs the same. With a suite's
file it prints the lines of one more round; no source of it may have been here before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import fmean, median
from typing import Final

from twin.evidence.validate.intervals import METRICS, line, residual, with_intervals
from twin.evidence.validate.suite import read_suite
from twin.evidence.validate.validate import validate
from twin.loading.files import shipped_folder
from twin.reports.interval import FILES, Known, Reach, Residual, project, reach, read, shipped

FILE: Final = shipped_folder() / "published" / FILES[1]
STEP: Final = METRICS[0]


@dataclass(frozen=True, slots=True)
class BlindStep:
    """A step that was predicted blind: its round, its residual, whether the sealed interval held,
    and what other sources tell of it, and sources of other rounds."""

    round: int
    residual: Residual
    held: bool
    others: Reach
    other_rounds: Reach

    def within(self, reach: Reach) -> bool:
        """Whether a reach holds what was measured."""
        return abs(self.residual.value - reach.centre) <= reach.size

    def error(self, centre: float = 0.0) -> float:
        """|predicted / measured - 1| of a step corrected so."""
        return abs(exp(centre - self.residual.value) - 1.0)


MEANS: Final[Mapping[str, Callable[[BlindStep], float]]] = {
    "too fast": lambda one: one.residual.value > 0.0,
    "held as sealed": lambda one: one.held,
    "held, source left out": lambda one: one.within(one.others),
    "held, round left out": lambda one: one.within(one.other_rounds),
}
"""Shares of a source's steps; of sources their mean is told."""
MEDIANS: Final[Mapping[str, Callable[[BlindStep], float]]] = {
    "reach": lambda one: one.others.size,
    "error": BlindStep.error,
    "error, corrected": lambda one: one.error(one.others.centre),
    "by other rounds": lambda one: one.error(one.other_rounds.centre),
}
"""Of a source's steps, and of sources, the median."""


def steps(file: Path = FILE) -> tuple[BlindStep, ...]:
    """All that were predicted blind."""
    lines, own = json.loads(file.read_text(encoding="utf-8"))["residuals"], read(file)
    found: list[BlindStep] = []
    for one, said in zip(own, lines, strict=True):
        apart = (r for r, other in zip(own, lines, strict=True) if other["round"] != said["round"])
        sets = (Known((), some).without(one.source) for some in (own, tuple(apart)))
        others, other_rounds = (reach(one.at, STEP, known) for known in sets)
        assert others is not None
        assert other_rounds is not None
        low, high = said["interval"]
        held = low <= one.measured <= high
        found.append(BlindStep(said["round"], one, held, others, other_rounds))
    return tuple(found)


def figures(told: Sequence[BlindStep]) -> dict[str, float]:
    """What some steps come to, where every source weighs the same."""
    sources: dict[str, list[BlindStep]] = {}
    for one in told:
        sources.setdefault(one.residual.source, []).append(one)
    shares = {name: [fmean(map(of, own)) for own in sources.values()] for name, of in MEANS.items()}
    sizes = {
        name: [median(map(of, own)) for own in sources.values()] for name, of in MEDIANS.items()
    }
    return {
        "sources": len(sources),
        "steps": len(told),
        **{name: fmean(own) for name, own in shares.items()},
        **{name: median(own) for name, own in sizes.items()},
    }


def sealed(suite: Path) -> Iterator[str]:
    """Lines of a new round. Raises `ValueError` where a source has been here before."""
    rows = read_suite(suite)
    new = {row.id for row in rows}
    before = {project(row.source) for row in read_suite() if row.id not in new}
    seen = before.union(one.source for one in shipped().blind)
    if again := seen.intersection(project(row.source) for row in rows):
        raise ValueError(f"not blind, here before: {', '.join(sorted(again))}")
    number = 1 + max(one.round for one in steps())
    answers = (one for found in validate(rows, 1) for one in found)
    for one in with_intervals(answers, shipped()):
        if one.metric == STEP and one.measured and one.predicted and one.at and one.interval:
            value = log(one.measured / one.predicted)
            told = line(residual(one, replace(one.at, assumed=True), value))
            ends = [float(f"{end:.6g}") for end in one.interval]
            yield json.dumps({"round": number, "interval": ends} | told)


def _lines(told: Sequence[BlindStep]) -> Iterator[str]:
    for name in (*sorted({one.round for one in told}), "all"):
        found = figures([one for one in told if name in (one.round, "all")])
        yield f"round {name}: " + ", ".join(f"{what} {x:.3g}" for what, x in found.items())


if __name__ == "__main__":
    suites = [Path(name) for name in sys.argv[1:]]
    for text in [own for file in suites for own in sealed(file)] if suites else _lines(steps()):
        sys.stdout.write(f"{text}\n")
