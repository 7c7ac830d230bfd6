"""Ten step times of a GPU whose own profile is withheld: `python -m
twin.evidence.calibrate.withheld`.

A planner with a GPU that nobody has calibrated has a profile of another one and a few runs. For two
sources ten rows are drawn at random, several times; each time a profile of another architecture is
the base, and nothing fitted on the GPU's own measurements is used but those ten rows. Told are the
errors of the base, of each row under a fit on the other nine, and of all rows that were not drawn.
Of LLM Foundry rows are drawn from those marked `fit`; rows marked `check` are predicted only.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from twin.errors import DEFAULT
from twin.evidence.calibrate.a100_rows import BASE, iteration_rows
from twin.evidence.calibrate.columns import StepRow, steps
from twin.evidence.calibrate.fits import from_steps
from twin.evidence.calibrate.result import Calibration, Errors, Stamp
from twin.evidence.calibrate.table import read_table
from twin.loading import load, load_part
from twin.loading.files import shipped_folder

ROWS: Final = 10
SEEDS: Final = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class RowSource:
    """Rows of one (GPU, source), and the profile of another GPU that is the base."""

    title: str
    rows: tuple[StepRow, ...]
    base: str


def sources() -> tuple[RowSource, ...]:
    """The two sources that have ten rows which the twin can express and a fit may see."""
    published = shipped_folder() / "published"
    table = read_table(published / "steps-h100-llm-foundry.csv")
    foundry = steps(table, None, ())
    iterations = tuple(
        StepRow(row.name, load(BASE, row.overrides), row.measured, "fit", DEFAULT)
        for row in iteration_rows(published)
    )
    return (
        RowSource("H100, LLM Foundry", foundry, "a100-megatron-deepspeed"),
        RowSource("A100, vTrain", iterations, "h800-hopper-bf16"),
    )


def draw(source: RowSource, seed: int) -> Calibration:
    """A calibration on ten rows; all others are of use `check`."""
    fit = [row.name for row in source.rows if row.use == "fit"]
    drawn = set(random.Random(seed).sample(fit, ROWS))
    rows = [replace(row, use="fit" if row.name in drawn else "check") for row in source.rows]
    base = load_part("calibrations", source.base).spec
    gpu = source.rows[0].scenario.cluster.node.gpu.name
    stamp = Stamp.now("step times", source.title, "", gpu, base)
    return from_steps(rows, base, stamp, f"seed-{seed}")


def line(seed: int, found: Calibration, kept: frozenset[str]) -> str:
    """One draw as a row of a table, mean errors in percent; no draw may see the rows `kept`."""
    unseen = [row for row in found.rows if row.use == "check"]
    rest = [row.after for row in unseen if row.name not in kept]
    bare = [row.before for row in unseen if row.name not in kept]
    never = [row.after for row in unseen if row.name in kept]
    (taken,) = (one for one in found.tried if one.taken)
    inside = sum(_within(row.after, found.interval) for row in unseen if row.name not in kept)
    cells = (
        str(seed),
        ", ".join(f"{name} {value:.2f}" for name, value in taken.factors.items()) or "none",
        _mean(found.errors("before", "fit")),
        _mean(found.errors("left_out", "fit")),
        f"{_mean(Errors.of(bare))} -> {_mean(Errors.of(rest))}",
        _mean(Errors.of(never)),
        f"{inside} of {len(rest)}",
    )
    return f"| {' | '.join(cells)} |"


def _within(error: float, interval: tuple[float, float] | None) -> bool:
    """Whether what was measured lies in the interval around what was predicted."""
    if interval is None:
        return False
    low, high = interval
    return low <= 1 / (1 + error) - 1 <= high


def _mean(errors: Errors | None) -> str:
    return f"{100 * errors.mean:.1f}" if errors else ""


def table(source: RowSource, seeds: Sequence[int] = SEEDS) -> str:
    """All draws of a source, as Markdown."""
    kept = frozenset(row.name for row in source.rows if row.use == "check")
    head = (
        f"### {source.title}: base {source.base}\n\n"
        "| draw | factors taken | ten rows: base | left out | not drawn: base -> fit "
        "| other models | in interval |\n|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *(line(seed, draw(source, seed), kept) for seed in seeds)])


if __name__ == "__main__":
    for one in sources():
        sys.stdout.write(f"{table(one)}\n\n")
        sys.stdout.flush()
