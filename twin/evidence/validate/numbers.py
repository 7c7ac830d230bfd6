"""The fits of the numbers in `twin.evidence.validate.free`: `python -m
twin.evidence.validate.numbers A100` (or H100, B200) prints them beside what is shipped."""

from __future__ import annotations

import sys

from twin.evidence.calibrate.a100 import layer_rows
from twin.evidence.calibrate.rows import BASE
from twin.evidence.validate.fit import Fit, Target, fit, targets
from twin.evidence.validate.free import FREE, profiles, shipped
from twin.evidence.validate.suite import SHIPPED, read_suite
from twin.loading import load
from twin.loading.files import shipped_folder


def fit_of(gpu: str) -> Fit:
    """The fit on all shipped rows whose use is `fit`."""
    own = profiles(gpu)
    rows = targets(read_suite(), own)
    layers = _layers() if "a100-megatron" in own else ()
    return fit((*rows, *layers), FREE[gpu])


def _layers() -> tuple[Target, ...]:
    """Ten times of one layer (Korthikanti et al. 2022, Table 4)."""
    published = shipped_folder() / SHIPPED
    return tuple(
        Target(row.name, "a100-megatron", load(BASE, row.overrides), row.measured, row.predict)
        for row in layer_rows(published)
    )


def table(found: Fit) -> str:
    """A fit as text: prior, value with its standard error, what is shipped; errors of the rows."""
    lines: list[str] = []
    for one, value, error in zip(found.free, found.values, found.ridge.deviations, strict=True):
        lines.append(
            f"{one.path:28} {one.prior:10.4g} +- {one.spread:4.0%} -> {value:10.4g} +- {error:5.1%}"
            f"  shipped {shipped(one):10.4g}  {', '.join(one.profiles)}"
        )
    for row, error in zip(found.targets, found.ridge.errors, strict=True):
        lines.append(f"{row.id:64} {row.profile:26} {error:+7.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    for name in sys.argv[1:] or FREE:
        sys.stdout.write(f"{name}\n{table(fit_of(name))}\n")
