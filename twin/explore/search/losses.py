"""What interruptions may cost a decision: the loss of one as a lever.

With interruptions at a rate r of the job's time, each of which costs L seconds all in all (work
done again, saves, restart), a run takes 1 / (1 - r L) times as long as without: the definition that
`twin.goodput` has for the largest loss, L = (1 - share) / r. Rates grow with the cluster, so the
same loss costs larger ones more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from twin.errors import ScenarioError
from twin.explore.search.contenders import Contender, Contest, Stand, scaled, scenario_of
from twin.goodput import expected_goodput
from twin.goodput.rates import hazards
from twin.loading import catalog_parts, load_part
from twin.planning import plan
from twin.spec.goodput import FailuresSpec

USUAL: Final = "llama3-h100"
"""The best documented run: taken where nobody has observed the scenario's GPU."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The loss of one interruption as a lever, in seconds."""

    now: float | None
    """What one costs now on average; None where the scenario does not say."""
    most: float
    """With which no contender makes progress."""
    stand: Callable[[Contender, float], Stand]
    note: str


def loss_lever_parts(contest: Contest) -> Losses | str:
    """The lever of a contest, or why there is none."""
    scenario, spec = contest.scenario, contest.scenario.goodput
    if not contest.contenders:
        return "no layout fits"
    failures = spec.failures if spec is not None else usual_failures(scenario.cluster.node.gpu.name)
    rates = {one.nodes: rate(contest, failures, one.nodes) for one in contest.contenders}
    if not min(rates.values()):
        return f"nothing interrupts the run, by {failures.name}"

    def stand(one: Contender, loss: float) -> Stand:
        kept = 1.0 - rates[one.nodes] * loss
        kpis = one.now.kpis
        if kept <= 0.0 or kpis is None:
            return Stand(None, "interruptions leave it no time")
        return Stand(scaled(kpis, 1.0 / kept))

    first = contest.contenders[0]
    said = f"{86400 * rates[first.nodes]:.3g} interruptions a day on {first.gpus:,} GPUs"
    if spec is None:
        note = (
            f"{said}, as {failures.name} says, since the scenario has no section `goodput`: add "
            "one for what is lost now"
        )
    else:
        note = f"{said}, as {failures.name} says; in the closed form"
    most = 1.0 / min(rates.values())
    return Losses(_now(contest, first, rates[first.nodes]), most, stand, note)


def rate(contest: Contest, failures: FailuresSpec, nodes: int) -> float:
    """Interruptions per second on so many nodes, planned ones among them."""
    cluster = contest.scenario.cluster.model_copy(update={"nodes": nodes})
    return sum(one.per_second for one in hazards(failures, cluster))


def _now(contest: Contest, one: Contender, per_second: float) -> float | None:
    """What an interruption costs now, on average, in the closed form."""
    kpis = one.now.kpis
    if contest.scenario.goodput is None or kpis is None:
        return None
    try:
        planned = plan(scenario_of(contest, one))
    except ScenarioError:  # of another split of layers than the one that was answered
        return None
    found = expected_goodput(planned, kpis["step_seconds"] or 0.0)
    return (1.0 - found.fraction - found.losses["stragglers"]) / per_second


def usual_failures(gpu: str) -> FailuresSpec:
    """What the catalog knows of failures of a GPU: the first part by name that observed one, else
    `USUAL`."""
    parts = [load_part("failures", name).spec for name in catalog_parts("failures")]
    observed = [one for one in parts if one.gpu.casefold() in gpu.casefold()]
    return observed[0] if observed else load_part("failures", USUAL).spec
