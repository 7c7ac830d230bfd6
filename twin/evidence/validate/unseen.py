"""What a row would meet whose source nobody knew: `python -m twin.evidence.validate.unseen` (or
with beginnings of titles) leaves out each source whole. Its rows leave the fits, whose numbers are
found again without them; and its stacks leave, so that a row gets the one that its words suggest.
Steps come by the fast path. Takes about a minute for each source that a fit saw.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log
from statistics import median

from twin.engine import lower, simulate
from twin.evidence.validate.acceptance_limits import VTRAIN
from twin.evidence.validate.fit import Numbers, fit, layers, numbers_at, targets
from twin.evidence.validate.free_parameters import FREE, profiles
from twin.evidence.validate.steps import measured_seconds, settled
from twin.evidence.validate.suite import PublishedRow, Unreadable, read_suite
from twin.evidence.validate.training import express
from twin.planning import plan


@dataclass(frozen=True, slots=True)
class UnseenRow:
    """A row that judges, predicted without its source. `error`: logarithm of predicted over
    measured seconds."""

    row: PublishedRow
    stack: str
    error: float


def project(row: PublishedRow) -> str:
    """What is left out together: a title without table, release or year."""
    return row.source.split(",")[0].split(" (")[0]


def unseen(rows: Sequence[PublishedRow], names: Callable[[str], bool]) -> Iterator[UnseenRow]:
    """The rows that judge, of all projects whose name passes, each without its project."""
    steps = [row for row in rows if row.category == "train_step" and VTRAIN not in row.source]
    for name in sorted({project(row) for row in steps if names(project(row))}):
        own = [row for row in steps if project(row) == name]
        known = _numbers_without([row for row in rows if project(row) != name], own)
        yield from _predicted([row for row in own if row.use == "check"], known)


def _numbers_without(rest: Sequence[PublishedRow], own: Sequence[PublishedRow]) -> Numbers:
    """Numbers of all fits that saw rows of a project, found without them; others as shipped."""
    found = Numbers({}, {})
    for gpu, free in FREE.items():
        if not targets(own, profiles(gpu)):
            continue
        values = fit((*targets(rest, profiles(gpu)), *layers(gpu)), free).values
        again = numbers_at(free, values)
        found = Numbers({**found.profiles, **again.profiles}, {**found.software, **again.software})
    return found


def _predicted(rows: Iterable[PublishedRow], known: Numbers) -> Iterator[UnseenRow]:
    for row in rows:
        try:
            expressed, scenario = settled(express(row, by_words=True))
            seconds = measured_seconds(row, expressed, scenario)
        except Unreadable:
            continue
        if seconds:
            scenario = known.into(scenario, str(expressed.tree["calibration"]))
            step = simulate(lower(plan(scenario)), fidelity="fast")
            yield UnseenRow(row, expressed.stack.name, log(step.step_ns / 1e9 / seconds))


def _table(rows: Iterable[UnseenRow]) -> Iterator[str]:
    """Each family as it comes, then the median of families and nine in ten."""
    families: dict[tuple[str, ...], list[UnseenRow]] = defaultdict(list)
    for one in rows:
        families[one.row.family].append(one)
    errors = {family: median(one.error for one in own) for family, own in families.items()}
    for family, error in errors.items():
        yield f"{error:+7.1%}  {families[family][0].stack[:40]:40}  {', '.join(family)}"
    sizes = sorted(abs(error) for error in errors.values())
    if sizes:
        most, bias = sizes[int(0.9 * len(sizes))], median(errors.values())
        yield f"{len(sizes)} families: median {median(sizes):.1%}, nine in ten {most:.1%}"
        yield f"bias {bias:+.1%}"


if __name__ == "__main__":
    wanted = tuple(sys.argv[1:])
    for line in _table(unseen(read_suite(), lambda name: not wanted or name.startswith(wanted))):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
