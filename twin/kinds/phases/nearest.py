"""What takes the place of a phase that cannot run as written, or does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from twin.explore.study import Suggestion, nearest_fit
from twin.scenario import Scenario

BATCH: Final = "train.global_batch"
_OF_THE_RUN: Final = "cluster."
"""All phases share one cluster, so that none of them may have a larger one."""


def nearest(scenario: Scenario) -> tuple[Suggestion, ...]:
    """Plans near to a phase's that fit on its cluster, the nearest first: with the fewest changes;
    of those the batch alone, which leaves layout and memory as they were written, by how little it
    changes; then by days of the whole run, by the fast path. Empty where the search finds none."""
    found = [one for one in nearest_fit(scenario) if not _needs_another_cluster(one)]
    return tuple(sorted(found, key=lambda one: _distance(one, scenario)))


def _needs_another_cluster(one: Suggestion) -> bool:
    return any(path.startswith(_OF_THE_RUN) for path in one.overrides)


def _distance(one: Suggestion, scenario: Scenario) -> tuple[int, bool, float, float]:
    train = scenario.train
    moved = abs(one.scenario.train.global_batch / train.global_batch - 1)
    days = one.kpis["days"] or 0.0
    return len(one.overrides), BATCH not in one.overrides, moved, days


def overrides(index: int, one: Suggestion) -> dict[str, str]:
    """The changes as `--set` takes them for a phase of the run, by its place.

    The batch of phase 2 is `phases.2.train.global_batch`.
    """
    return {f"phases.{index}.{path}": value for path, value in one.overrides.items()}


def words(index: int, found: Suggestion) -> str:
    """The changes as one would type them."""
    return " ".join(f"--set {path}={value}" for path, value in overrides(index, found).items())


def first(found: Sequence[Suggestion]) -> Suggestion | None:
    """The nearest; None where there is none."""
    return found[0] if found else None
