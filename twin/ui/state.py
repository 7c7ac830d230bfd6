"""Names of what is compared: a plan is a shipped scenario, or a copy of one to edit beside it."""

from __future__ import annotations

import re
from collections.abc import Collection

_COPY = re.compile(r" \(copy(?: (\d+))?\)$")


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
