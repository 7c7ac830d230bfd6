"""A layout of one rank, predicted from its machine as it was measured between the layout's steps.

The reference alternates them in rounds (`reference.measure.rounds`), since a core that others use
is as fast as they let it be. Each round has its own parts of the catalog and so its own prediction,
with the host and without. No part follows from a step. A round's step is the mean of its steps;
medians over rounds are compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any, Final

from twin.answers import ask
from twin.engine import plan
from twin.errors import Problem, ScenarioError, UsageError
from twin.evidence.loop.layouts import ReferenceLayout
from twin.evidence.loop.trainer import configuration, problems, start
from twin.loading import load
from twin.loading.files import read_data

QUIET: Final = 0.1
"""Distance of the probe's quartiles over its median up to which the machine counts as quiet. OURS:
a core that changes by more cannot judge a prediction to some percent."""
OWN_CORE: Final = 0.8
"""Share of a core from which the process counts as alone on it. OURS: others empty its caches."""
MANY: Final = 1_000_000
"""Steps of the run, of which it makes as many as there is time for."""


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of one round: predicted, predicted without the host, measured, and of its probes;
    and the share of a core that the process had."""

    predicted: float
    without_host: float
    measured: float
    probes: tuple[float, ...]
    core: float

    @property
    def error(self) -> float:
        """Of the prediction, as a share of what was measured."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class HostOutcome:
    """A layout's rounds, and what they say together."""

    name: str
    rounds: tuple[Round, ...]

    @cached_property
    def typical(self) -> Round:
        """Medians over rounds, with the probes of all."""
        fields = ("predicted", "without_host", "measured")
        predicted, without, measured = (
            median(getattr(one, name) for one in self.rounds) for name in fields
        )
        probes = tuple(probe for one in self.rounds for probe in one.probes)
        core = median(one.core for one in self.rounds)
        return Round(predicted, without, measured, probes, core)

    @property
    def error_without_host(self) -> float:
        """Of the prediction without the host."""
        return replace(self.typical, predicted=self.typical.without_host).error

    @property
    def errors(self) -> tuple[float, float]:
        """The lowest and the highest error of a round."""
        found = [one.error for one in self.rounds]
        return min(found), max(found)

    @property
    def unrest(self) -> float:
        """Distance of the quartiles of all probes over their median."""
        low, middle, high = quantiles(self.typical.probes, n=4)
        return (high - low) / middle

    @property
    def quiet(self) -> bool:
        """Whether the machine was quiet enough for the errors to mean something."""
        return self.unrest <= QUIET and self.typical.core >= OWN_CORE

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        typical = self.typical
        return {
            "name": self.name,
            "measured": typical.measured,
            "predicted": typical.predicted,
            "error": typical.error,
            "without_host": typical.without_host,
            "error_without_host": self.error_without_host,
            "errors": self.errors,
            "probe_spread": self.unrest,
            "core": typical.core,
            "quiet": self.quiet,
            "rounds": [asdict(one) for one in self.rounds],
        }


def measure_between_steps(
    layout: ReferenceLayout, sets: Sequence[str], seconds: int, folder: Path
) -> HostOutcome:
    """Run a layout and measure this machine in turns, for about so many seconds, into a folder;
    then predict each round.

    Raises ScenarioError where the reference cannot do what the layout states, UsageError (TW379)
    for a layout of several ranks, and where the run fails.
    """
    own = plan(layout.scenario)
    if found := problems(own):
        raise ScenarioError(found)
    if own.mesh.ranks > 1 or layout.mode != "bare":
        message = f"`{layout.name}` is not one rank that runs as fast as it goes"
        fix = "name a layout like bare-host-64-experts, or leave --measure out"
        raise UsageError([Problem("TW379", "--measure", message, fix)])
    folder.mkdir(parents=True, exist_ok=True)
    written = configuration(own, folder / "run", MANY, None)
    written["train"]["timeline"] = False
    file = folder / "trainer.json"
    file.write_text(json.dumps(written, indent=2), encoding="utf-8")
    words = ["--between", str(file), "--time", str(seconds), "--output", str(folder)]
    start([sys.executable, "-m", "reference.measure", *words], folder / "log.txt")
    places = sorted(folder.glob("round-*"), key=lambda place: int(place.name.partition("-")[2]))
    return HostOutcome(layout.name, tuple(_round(place, layout.path, sets) for place in places))


def _round(folder: Path, layout: Path, sets: Sequence[str]) -> Round:
    """What was measured in a round, beside the answers from its parts."""
    (profile,) = (folder / "catalog" / "calibrations").glob("*.yaml")
    name = profile.stem
    scenario = folder / "scenario.yaml"
    parts = f"cluster: {{node: {name}}}\ncalibration: {name}\nsoftware: {name}\n"
    scenario.write_text(f"extends: {layout.absolute()}\n{parts}", encoding="utf-8")
    predicted, without = (
        ask(load(scenario, [*sets, *off])).trace.step_ns / 1e9
        for off in ((), ("software.host=null",))
    )
    seconds = read_data(folder / "steps.json")
    measured = fmean(seconds["steps"])
    return Round(predicted, without, measured, tuple(seconds["probes"]), seconds["core"])
