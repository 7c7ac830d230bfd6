"""Scenarios of rows, played: seconds of a step and bytes at the peak."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from twin.engine import lower, simulate
from twin.errors import TwinError
from twin.evidence.validate.row import Unreadable
from twin.evidence.validate.training import Expressed
from twin.loading import load
from twin.planning import plan
from twin.planning.types import Plan
from twin.scenario import Scenario

DOUBT: Final = 1.2
"""How much more than the device's memory a peak has to be before it is taken for certain that the
scenario does not fit: what the ledger misses of measured peaks at most (docs/validation.md)."""


def text_of(tree: dict[str, Any]) -> str:
    """A scenario's tree as a file that a planner can read."""
    stream = StringIO()
    writer = YAML()
    writer.dump(tree, stream)  # pyright: ignore[reportUnknownMemberType]
    return stream.getvalue()


def scenario_of(expressed: Expressed) -> Scenario:
    """The scenario of a row. Raises `Unreadable` with what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return load(write(expressed, Path(folder), "row"))
        except TwinError as error:
            raise Unreadable(_first(error)) from None


def write(expressed: Expressed, folder: Path, name: str) -> Path:
    """Writes the scenario of a row where `twin run` reads it: one file, or two where parts of the
    catalog are changed."""
    file = folder / f"{name}.yaml"
    if not expressed.over:
        file.write_text(text_of(expressed.tree), encoding="utf-8")
        return file
    base = folder / "base" / f"{name}.yaml"
    base.parent.mkdir(exist_ok=True)
    base.write_text(text_of(expressed.tree), encoding="utf-8")
    over = {"schema": 1, "extends": f"base/{name}.yaml", **expressed.over}
    file.write_text(text_of(over), encoding="utf-8")
    return file


def _first(error: TwinError) -> str:
    problem = error.problems[0]
    return f"{problem.path}: {problem.message}" if problem.path else problem.message


@dataclass(frozen=True, slots=True)
class Played:
    """What the twin says of a scenario."""

    step_seconds: float
    peak_bytes: float


def play(scenario: Scenario) -> Played:
    """Plays one step. Raises `Unreadable` where no plan can be made of the scenario."""
    made = _plan(scenario)
    return Played(simulate(lower(made)).step_ns / 1e9, made.memory.peak.peak_bytes)


def settled(expressed: Expressed) -> tuple[Expressed, Scenario]:
    """A row's scenario; where the row does not say what is computed again, with the least of its
    stack's that may fit, since what was measured did fit. Raises `Unreadable`, as above."""
    scenario = scenario_of(expressed)
    found = expressed
    for more in expressed.stack.recompute[1:] if expressed.silent else ():
        if _may_fit(scenario):
            break
        found = expressed.computing_again(more)
        scenario = scenario_of(found)
    _plan(scenario)
    return found, scenario


def _may_fit(scenario: Scenario) -> bool:
    peak = _plan(scenario).memory.peak.peak_bytes
    return peak <= DOUBT * scenario.cluster.node.gpu.memory


def _plan(scenario: Scenario) -> Plan:
    try:
        return plan(scenario)
    except TwinError as error:
        raise Unreadable(_first(error)) from None
