"""The scenarios that the app knows by name: the shipped ones, and the files it was opened with."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twin.evidence.measured.run_folder import is_run
from twin.loading.files import read_family, shipped_folder, shipped_scenarios

_FRONT_DOORS: Final = ("app.py", "router.py")
"""Scripts that streamlit runs; another script that started this process has words of its own."""
_USUAL: Final = "kimi-k2-2048xh800"
"""The scenario that is shown first."""


@dataclass(frozen=True, slots=True)
class ScenarioFiles:
    """What the loader takes by the name that the app shows, the scenario to start with, and a
    number that changes when one of the files does."""

    files: Mapping[str, str]
    first: str
    stamp: int


def scenario_files() -> ScenarioFiles:
    """The scenarios of this app, as their files stand now."""
    shipped = shipped_scenarios()
    asked = tuple(path for path in command_line() if not is_run(path))
    files = named(shipped, asked)
    as_of = stamp([file for file in files.values() if file not in shipped])
    wanted = [name for name, file in files.items() if file in asked]
    first = wanted[0] if wanted else _USUAL if _USUAL in files else next(iter(files))
    return ScenarioFiles(files, first, as_of)


def command_line(words: Sequence[str] | None = None) -> tuple[str, ...]:
    """Scenarios and folders of real runs after `--` on streamlit's command line. `words` default to
    those of the process."""
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
    a file that they extend or name."""
    folders = {folder for file in files for folder in read_family(Path(file)).folders}
    found = {path for folder in folders for path in folder.glob("*.yaml")}
    found |= {path for folder in folders for path in (folder / "catalog").rglob("*.yaml")}
    found |= {Path(file) for file in files if Path(file).exists()}
    found |= set(shipped_folder().rglob("*.yaml"))
    return hash(tuple((str(path), path.stat().st_mtime_ns) for path in sorted(found)))


def shared_text(known: ScenarioFiles, name: str) -> str | None:
    """The text of a file that is not shipped: a link to another machine has to carry it. None
    where the name alone will do, or the file does not exist any more."""
    file = known.files.get(name, name)
    path = Path(file)
    return path.read_text(encoding="utf-8-sig") if file != name and path.is_file() else None
