"""Explore: alternatives to the open plan: searches, sweeps, break-even points, sensitivity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twin.kinds.base import Verb, kind_of
from twin.ui.answers import Failure, plan_of, scenario_of
from twin.ui.better import SECTION
from twin.ui.explore.better_plan import better_plan_section
from twin.ui.explore.break_even import break_even_section
from twin.ui.explore.exports import expert_section, levers_section
from twin.ui.explore.search import search_section
from twin.ui.explore.sweep import sweep_section
from twin.ui.place import OpenPlan, open_plan, refused, say, say_scope, step_view
from twin.ui.sensitivity import sensitivity_section
from twin.ui.session import section

_STEP: Final[dict[str, Callable[[OpenPlan, Any], None]]] = {
    "Search": search_section,
    SECTION: better_plan_section,
    "Break-even points": break_even_section,
    "Sensitivity": sensitivity_section,
    "Memory levers": levers_section,
    "Expert parallelism": expert_section,
}
"""Sections that vary the layout of a training step."""
_SWEEP: Final = "Sweep"


def _names(scenario: Any) -> list[str]:
    """The sections that can say something of a scenario."""
    first, *others = _STEP
    if isinstance(scenario, Failure):
        return [first, _SWEEP, *others]
    if "recommend" in kind_of(scenario).refusals:
        return [_SWEEP]
    if scenario.model.moe is None:
        others.remove("Expert parallelism")
    return [first, _SWEEP, *others]


def page() -> None:
    """Run the page once, top to bottom."""
    shown = open_plan()
    scenario = scenario_of(shown.asked)
    name = section("Explore", _names(scenario))
    if isinstance(scenario, Failure):
        say(shown.plan, scenario)
        return
    if isinstance(planned := plan_of(shown.asked), Failure):
        say(shown.plan, planned)  # searches and sweeps may find plans that can run
    verb: Verb = "sweep" if name == _SWEEP else "recommend"
    if refused(verb, scenario):
        return
    if name == _SWEEP:
        sweep_section(shown, scenario)
        return
    say_scope(scenario)
    step = step_view(shown)
    _STEP[name](step, scenario_of(step.asked))


page()
