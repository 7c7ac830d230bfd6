"""What the software of a weight update takes, fitted on the two measured updates that are marked
for it (`scenarios/published/weight-update.yaml`): efficiency of a broadcast, time per rank and
bucket, and joining a group.

Each row measured an update and a recovery, so four times stand against three numbers. Gathering is
the mean of the rows'. `nics` and `per_tensor` are not fitted: with them the fit is not unique.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twin.kinds.weight_update.lower import lower
from twin.kinds.weight_update.plan import plan
from twin.kinds.weight_update.simulate import simulate
from twin.loading import load_any
from twin.scenario import UpdateScenario

SCENARIO: Final = "kimi-k2-weight-update-16xh20"
"""The shipped scenario that rows are written as changes of."""
_SCALE: Final = {"efficiency": 1.0, "per_tensor": 1e-4, "hop": 1e-5, "regroup": 1.0}
"""What one step of the search is worth, so that all numbers are of one size."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured update or recovery, and the scenario that it was."""

    id: str
    event: str
    sets: tuple[str, ...]
    seconds: float
    use: str


def measured(rows: Sequence[Mapping[str, Any]], place: Sequence[str] = ()) -> tuple[Measured, ...]:
    """The updates and recoveries of checkpoint-engine's rows, as scenarios; `place`: the cluster,
    where it is not nodes of eight of the scenario's own GPUs."""
    found: list[Measured] = []
    for row in rows:
        metrics, gpus = row["metrics"], row["system"]["gpus"]
        for event, word in (("update", "broadcast"), ("recover", "p2p")):
            if f"update_{word}_s" not in metrics:
                continue
            sets = (
                *(place or (f"cluster.nodes={gpus // 8}",)),
                f"model={row['model']}",
                f"weight_update.precision={str(row.get('precision', 'fp8')).lower()}",
                f"weight_update.replica.gpus={row['parallelism']['inference_tp']}",
                f"weight_update.free_memory={3 * metrics[f'bucket_{word}_gib']}GiB",
                f"weight_update.event={event}",
            )
            seconds = metrics[f"update_{word}_s"]
            found.append(Measured(f"{row['id']}, {event}", event, sets, seconds, row["use"]))
    return tuple(found)


def predicted(one: Measured, updater: Mapping[str, float] | None = None) -> float:
    """Seconds that the twin says; `updater` has numbers in place of the catalog's, in SI units."""
    units = {"efficiency": "", "hop": "s", "per_tensor": "s", "regroup": "s", "nics": ""}
    own = (f"weight_update.updater.{k}={v!r}{units[k]}" for k, v in (updater or {}).items())
    scenario = load_any(SCENARIO, (*one.sets, *own))
    assert isinstance(scenario, UpdateScenario)
    return simulate(lower(plan(scenario))).update_ns / 1e9


def fit(rows: Sequence[Measured], rival: bool = False) -> dict[str, float]:
    """The numbers that make the relative errors of the rows marked `fit` smallest. The `rival`
    explanation keeps all NICs busy at their full rate, and fits the time per tensor instead of the
    efficiency."""
    marked = [one for one in rows if one.use == "fit"]
    first, fixed = ("per_tensor", {"nics": 8, "efficiency": 1.0}) if rival else ("efficiency", {})
    names = (first, "hop", "regroup")

    def updater(values: NDArray[np.float64]) -> dict[str, float]:
        pairs = zip(names, values, strict=True)
        return fixed | {name: float(value) * _SCALE[name] for name, value in pairs}

    def errors(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([predicted(one, updater(values)) / one.seconds - 1 for one in marked])

    from scipy.optimize import least_squares  # noqa: PLC0415 - predictions need no fit

    bounds = ((0.01, 0.0, 0.0), (2.0 if rival else 1.0, 50.0, 10.0))
    return updater(
        least_squares(errors, (0.8, 2.0, 1.5), bounds=bounds, diff_step=np.full(3, 1e-3)).x
    )
