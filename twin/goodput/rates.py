"""From failures of components to interruptions of a job.

A synchronous job stops with any of its components, so the rates of all of them add up (a series
system of parts that fail independently, at rates that do not change with age; Kokolis et al. 2024,
arXiv:2410.21680, section III, find one over their cluster sizes proportional to the nodes). It
breaks where failures come together, such as a power outage, and for parts that wear out.
"""

from __future__ import annotations

from typing import Final

from twin.goodput.types import Hazard
from twin.spec.cluster import ClusterSpec
from twin.spec.goodput import CauseSpec, FailuresSpec, ObservedSpec

HOUR: Final = 3600.0
DAY: Final = 86400.0


def hazards(failures: FailuresSpec, cluster: ClusterSpec) -> tuple[Hazard, ...]:
    """What interrupts a job on all of a cluster, each cause per second."""
    there = {"gpu": cluster.gpus, "nic": cluster.gpus, "node": cluster.nodes, "job": 1}
    return tuple(
        Hazard(
            cause.name,
            there[cause.per] * component_rate(cause, failures.observed),
            cause.planned,
            cause.replaces_node,
        )
        for cause in failures.causes
    )


def component_rate(cause: CauseSpec, observed: ObservedSpec | None) -> float:
    """Failures of one component per second: interruptions / (components x time) where they were
    counted, the maximum-likelihood rate of a Poisson process."""
    if cause.mtbf is not None:
        return 1.0 / cause.mtbf
    if cause.rate is not None:
        return cause.rate / HOUR
    assert cause.count is not None, "a cause says how often it strikes"
    assert observed is not None, "what was counted was observed"
    watched = {"gpu": observed.gpus, "nic": observed.gpus, "node": observed.nodes, "job": 1}
    return cause.count / (watched[cause.per] * observed.time)


def per_day(causes: tuple[Hazard, ...]) -> dict[str, float]:
    """Interruptions in a day by name, the most frequent first; causes of one name together."""
    found: dict[str, float] = {}
    for one in causes:
        found[one.name] = found.get(one.name, 0.0) + DAY * one.per_second
    return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))
