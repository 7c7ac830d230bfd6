"""What a row would meet whose source nobody knew: `python -m twin.evidence.validate.unseen` (or
with beginnings of titles) leaves out each source whole. Its rows leave the fits
(`twin.evidence.validate.source_left_out`) and the residuals. The stacks that were written for it
stay: what rows meet whose software is unknown, too, `twin.evidence.validate.blind` says. Takes
about three minutes.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import log
from statistics import median

from twin.evidence.validate.acceptance_limits import VTRAIN
from twin.evidence.validate.answer import RowResult, blank
from twin.evidence.validate.fit import Numbers
from twin.evidence.validate.free_parameters import FREE
from twin.evidence.validate.source_left_out import STEP, linear_fit, numbers_without, under
from twin.evidence.validate.suite import PublishedRow, read_suite
from twin.evidence.validate.summary import LEFT_OUT_COLUMNS, source_left_out, summarize
from twin.reports.interval import project
from twin.reports.interval import shipped as residuals


def unseen(rows: Sequence[PublishedRow], names: Callable[[str], bool]) -> Iterator[RowResult]:
    """The rows that judge, of all projects whose name passes, each without its project."""
    steps = [row for row in rows if row.category == "train_step" and VTRAIN not in row.source]
    fits = tuple(map(linear_fit, FREE))
    for name in sorted({project(row.source) for row in steps}):
        own = [row for row in steps if project(row.source) == name and row.use == "check"]
        if names(name):
            yield from _predicted(own, numbers_without(name, fits))


def _predicted(rows: Iterable[PublishedRow], known: Numbers) -> Iterator[RowResult]:
    for row in rows:
        found = under(known, row)
        if found is not None:
            yield replace(
                blank(row, STEP),
                predicted=found.predicted,
                measured=found.measured,
                stack=found.stack,
                experts=found.at.experts,
                software=found.at.software,
                regime=found.at.regime,
                at=found.at,
                tuned=found.tuned,
            )


def _table(rows: Sequence[RowResult]) -> Iterator[str]:
    """Each family, then groups of them, physical and corrected, with what intervals hold."""
    families: dict[tuple[str, ...], list[RowResult]] = defaultdict(list)
    for one in rows:
        families[one.family].append(one)
    for family, own in families.items():
        error = median(log(one.predicted / one.measured) for one in own)  # type: ignore[operator]
        yield f"{error:+7.1%}  {own[0].stack[:40]:40}  {', '.join(family)}"
    groups = source_left_out(summarize((), rows, residuals()))
    for first, *rest in (LEFT_OUT_COLUMNS, *(group.cells() for group in groups)):
        yield f"{first:34}" + "".join(f"{cell:>12}" for cell in rest)


if __name__ == "__main__":
    wanted = tuple(sys.argv[1:])
    found = unseen(read_suite(), lambda name: not wanted or name.startswith(wanted))
    for line in _table(tuple(found)):
        sys.stdout.write(f"{line}\n")
