"""Names of what is compared: a plan is a scenario, shipped or a file of the user's own, or a copy
of one to edit beside it."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

_COPY = re.compile(r" \(copy(?: (\d+))?\)$")
_FRONT_DOORS = ("app.py", "router.py")
"""Scripts that streamlit runs; whatever else started this process has words of its own."""


_USUAL = ("kimi-k2-2048xh800", "kimi-k2-512xh800")
"""What a visitor sees who asked for nothing else."""


def asked_for(words: Sequence[str] | None = None) -> tuple[str, ...]:
    """The scenarios after `--` on streamlit's command line: names of shipped ones, or paths.
    `words` default to those of the process."""
    script, *scenarios = words or sys.argv
    return tuple(scenarios) if Path(script).name in _FRONT_DOORS else ()


def scenarios(shipped: Sequence[str], asked: Sequence[str]) -> dict[str, str]:
    """What the loader takes, by the name that the page shows: files first, by file name."""
    names: dict[str, str] = {}
    for scenario in asked:
        name = Path(scenario).name
        if scenario not in shipped:
            names[scenario if name in names or name in shipped else name] = scenario
    return names | {name: name for name in shipped}


def first_plans(named: Mapping[str, str], asked: Sequence[str]) -> list[str]:
    """The plans that a visitor sees before picking any: those asked for, or else the usual."""
    return [name for name, one in named.items() if one in asked] or [
        name for name in _USUAL if name in named
    ]


def scenario_of(plan: str) -> str:
    """The scenario that a plan edits: `kimi-k2-256xh800 (copy 2)` is `kimi-k2-256xh800`."""
    return _COPY.sub("", plan)


def next_copy(plan: str, taken: Collection[str]) -> str:
    """A free name for one more copy of a plan's scenario."""
    scenario = scenario_of(plan)
    number = 1
    while (name := f"{scenario} (copy{f' {number}' if number > 1 else ''})") in taken:
        number += 1
    return name


def edit_key(plan: str, path: str) -> str:
    """The key of the widget that edits a field of a plan."""
    return f"{plan}: {path}"


def shown_name(plan: str, edits: Collection[str]) -> str:
    """The name of a plan in figures and tables: edited plans say so."""
    return f"{plan}, edited" if edits else plan
