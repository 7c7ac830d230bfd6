"""Issues of small repositories, mended with tools and judged by hidden tests: the environment of
`reference.agentic.software`, which level 1 and 2 ask in fewer words and with fewer tools."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from reference.agentic.environment import Turn
from reference.agentic.software.environment import SoftwareEnvironment, probes
from reference.agentic.software.generate import generate
from reference.rl.gym.environments import Item, NarrowedEnvironment, Turns, probed

_FEW: Final = {1: ("edit_file",), 2: ("read_file", "edit_file")}
"""Tools of a level that has not all."""


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    world = SoftwareEnvironment(generate(seed))
    repository, gold = world.repository, world.repository.gold
    request = f"In {gold.path} replace\n{gold.old}by\n{gold.new}"
    if level == 2:
        request = f"{repository.issue}\n\nIt is in {gold.path}."
    shown: Any = world if level == 3 else NarrowedEnvironment(world, _FEW[level], request)
    solution = (Turn(calls=(("edit_file", asdict(gold)),)), Turn("Done."))
    tags = (repository.project, repository.bug)
    return Item(shown, lambda: solution, lambda: _hacks(world, level), tags)


def _hacks(world: SoftwareEnvironment, level: int) -> dict[str, Turns]:
    """Those that spoil a good patch need tools that easy levels have not."""
    hacks = probed(probes(world))
    return hacks if level == 3 else {k: turns for k, turns in hacks.items() if "mended" not in k}
