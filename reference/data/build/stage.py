"""Stages in a row, each a folder that is complete or absent.

A stage writes into `.NAME.partial` and is renamed to `NAME` when its report, `done.json`, is on the
disk: a process that is killed anywhere leaves finished stages, and at most one partial one. A stage
that `resumes` finds what it had written there; any other begins anew. Since a stage is a function
of the stages before it, an interrupted build ends with the bytes of an undisturbed one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reference.data.build.spec import BuildSpec
from reference.disk import sync

DONE: Final = "done.json"
Hook = Callable[[str], None]
"""Called with the name of each point that was reached; a test kills the process there."""


@dataclass(frozen=True)
class Work:
    """What a stage works on."""

    spec: BuildSpec
    folder: Path
    """Of the build."""
    own: Path
    """Of this stage, while it is written."""
    reached: Hook

    def of(self, stage: str, file: str) -> Path:
        """A file of a stage that is done."""
        return self.folder / stage / file


@dataclass(frozen=True)
class Stage:
    """A named step of the build; `run` returns its report."""

    name: str
    run: Callable[[Work], Mapping[str, Any]]
    resumes: bool = False


def run_stages(
    stages: Sequence[Stage], spec: BuildSpec, folder: Path, reached: Hook, tell: Hook
) -> dict[str, Any]:
    """The reports of all stages, those done earlier included."""
    reports: dict[str, Any] = {}
    for stage in stages:
        final, partial = folder / stage.name, folder / f".{stage.name}.partial"
        if not (final / DONE).exists():
            if not stage.resumes:
                shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(exist_ok=True)
            report = stage.run(Work(spec, folder, partial, reached))
            write_json(partial / DONE, report)
            reached(f"{stage.name}:written")
            for path in partial.iterdir():
                sync(path)
            sync(partial)
            partial.rename(final)
            sync(folder)
        reports[stage.name] = json.loads((final / DONE).read_text(encoding="utf-8"))
        tell(told(stage.name, reports[stage.name]))
        reached(f"{stage.name}:done")
    return reports


def told(name: str, report: Mapping[str, Any]) -> str:
    """A stage in words."""
    left_out: list[Mapping[str, Any]] = report.get("left_out", [])
    reasons: dict[str, int] = {}
    for row in left_out:
        reasons[row["reason"]] = reasons.get(row["reason"], 0) + row["documents"]
    if "in" in report:
        shown = f"{report['in']:,} in, {report['out']:,} out"
        lost = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
        return f"{name}: {shown}" + (f"; left out: {lost}" if lost else "")
    plain = {key: value for key, value in report.items() if isinstance(value, int | str)}
    return f"{name}: " + ", ".join(f"{key} {value}" for key, value in plain.items())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A JSON file in one move: another process sees all of it or nothing."""
    write_whole(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def write_whole(path: Path, content: bytes) -> None:
    """A file in one move, on the disk when this returns."""
    aside = path.with_name(f".{path.name}.aside")
    aside.write_bytes(content)
    sync(aside)
    aside.replace(path)
