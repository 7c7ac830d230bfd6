"""Which layouts are run: files of scenarios, or all that ship for it (`scenarios/reference`).

A layout with an iteration of reinforcement learning is a loop, run by the reference in one process
(`twin.evidence.loop.rl_loop`). A layout whose nodes are `stand-in-netns` runs paced: ranks sleep
for the time of a GPU, so that the schedule and the real links are judged. Any other layout runs
bare, one rank per core, as fast as it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from twin.errors import Problem, UsageError
from twin.loading import load, scenario_hash
from twin.loading.files import shipped_folder
from twin.loading.tree import hint
from twin.scenario import Scenario

Mode = Literal["paced", "bare", "rl"]
STAND_IN: Final = "stand-in"
"""The GPU that ranks sleep for."""
LOOPBACK: Final = "cluster.node.nic.bandwidth=16Gbps"
"""What gloo carries over loopback, roughly: where no link can be held to a rate."""


@dataclass(frozen=True, slots=True)
class ReferenceLayout:
    """A scenario that the reference can run here."""

    path: Path
    scenario: Scenario

    @property
    def name(self) -> str:
        """Its file's, without the ending."""
        return self.path.stem

    @property
    def mode(self) -> Mode:
        """How it is run."""
        if self.scenario.rl is not None:
            return "rl"
        return "paced" if self.scenario.cluster.node.gpu.name == STAND_IN else "bare"


def folder() -> Path:
    """Where layouts ship."""
    return shipped_folder() / "reference"


def shipped(mode: Mode | None = None) -> tuple[str, ...]:
    """The names of shipped layouts, sorted; those of one mode."""
    found = sorted(path.stem for path in folder().glob("*.yaml"))
    return tuple(one for one in found if mode is None or _named(one) == mode)


def _named(name: str) -> Mode:
    """The mode of a shipped layout, which its name begins with, but for paced ones."""
    return "rl" if name.startswith("rl-") else "bare" if name.startswith("bare-") else "paced"


def find(
    names: Sequence[str], mode: Mode | None = None, sets: Sequence[str] = (), *, shaped: bool = True
) -> tuple[ReferenceLayout, ...]:
    """The layouts of these files or names, or else all shipped ones; of one mode where it is given.
    Without shaped links each is taken once, whatever its rate.

    Raises UsageError where there is no such layout, ScenarioError where one is wrong.
    """
    paths = [_path(name) for name in names or shipped(mode)]
    overrides = [*sets, *([] if shaped else [LOOPBACK])]
    found = [ReferenceLayout(path, load(path, overrides)) for path in paths]
    return tuple(one for one in _once(found) if mode is None or one.mode == mode)


def _once(layouts: Iterable[ReferenceLayout]) -> list[ReferenceLayout]:
    return list({scenario_hash(one.scenario): one for one in layouts}.values())


def _path(name: str) -> Path:
    path = Path(name)
    if path.is_file():
        return path
    inside = folder() / f"{name}.yaml"
    if path.name == name and inside.is_file():
        return inside
    message = f"there is no layout `{name}`"
    raise UsageError([Problem("TW370", "", message, hint(name, shipped()))])
