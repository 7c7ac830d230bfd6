"""The scenarios that the app knows by name: the shipped ones, and files that it was opened with."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from twin.errors import TwinError
from twin.evidence.measured.run_folder import is_run
from twin.loading.files import find_scenario, read_family, shipped_folder, shipped_scenarios
from twin.scenario import UpdateScenario

_UPDATE: Final = UpdateScenario.section


_FRONT_DOORS: Final = ("app.py", "router.py")
"""Scripts that streamlit runs; whatever else started this process has words of its own."""
_USUAL: Final = "kimi-k2-2048xh800"
"""What a visitor sees who asked for nothing else."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the loader takes, by the name that the app shows, for training runs and for weight
    updates; the one to start with; and a number that changes when any of the files does."""

    files: Mapping[str, str]
    updates: Mapping[str, str]
    first: str
    stamp: int


def known() -> Known:
    """The scenarios of this app, as their files stand now."""
    shipped = shipped_scenarios()
    asked = tuple(one for one in asked_for() if not is_run(one))
    every = named(shipped, asked)
    as_of = stamp([one for one in every.values() if one not in shipped])
    updates = {name: file for name, file in every.items() if is_update(file, as_of)}
    files = {name: file for name, file in every.items() if name not in updates}
    wanted = [name for name, file in files.items() if file in asked]
    first = wanted[0] if wanted else _USUAL if _USUAL in files else next(iter(files))
    return Known(files, updates, first, as_of)


@lru_cache(256)
def is_update(file: str, as_of: int) -> bool:
    """Whether a file, as it stood at `as_of`, is a weight update; one that cannot be read is shown
    with the training runs, where it is told what is wrong with it."""
    del as_of
    try:
        path = find_scenario(file)
    except TwinError:
        return False
    return any(_UPDATE in tree.children for tree in read_family(path).trees(path))


def asked_for(words: Sequence[str] | None = None) -> tuple[str, ...]:
    """The scenarios after `--` on streamlit's command line: names of shipped ones, or paths; and
    folders of real runs. `words` default to those of the process."""
    script, *scenarios = words or sys.argv
    return tuple(scenarios) if Path(script).name in _FRONT_DOORS else ()


def named(shipped: Sequence[str], asked: Sequence[str]) -> dict[str, str]:
    """What the loader takes, by name: files first, by file name."""
    names: dict[str, str] = {}
    for scenario in asked:
        name = Path(scenario).name
        if scenario not in shipped:
            names[scenario if name in names or name in shipped else name] = scenario
    return names | {name: name for name in shipped}


def stamp(files: Sequence[str] = ()) -> int:
    """Changes when a shipped scenario or catalog part is edited on disk, or one of these files, or
    anything that they extend or name."""
    folders = {folder for file in files for folder in read_family(Path(file)).folders}
    found = {path for folder in folders for path in folder.glob("*.yaml")}
    found |= {path for folder in folders for path in (folder / "catalog").rglob("*.yaml")}
    found |= {Path(file) for file in files if Path(file).exists()}
    found |= set(shipped_folder().rglob("*.yaml"))
    return hash(tuple((str(path), path.stat().st_mtime_ns) for path in sorted(found)))


def shared_text(known: Known, name: str) -> str | None:
    """The text of a file that is not shipped: a link to another machine has to carry it. None
    where the name alone will do, or the file does not exist any more."""
    file = known.files.get(name, name)
    path = Path(file)
    return path.read_text(encoding="utf-8-sig") if file != name and path.is_file() else None
