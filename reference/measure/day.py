"""`make measure`: everything that a GPU machine can tell, in half an hour, into one folder.

    python -m reference.measure.day --plan          # what, and how long; nothing is measured
    python -m reference.measure.day                 # go; the same words again go on

Each item is a process of its own, so that a kernel that ends one ends no other. `day.jsonl` has a
line per attempt: an item that ended well is not run again, one that failed twice is left out. An
item begins only if its time is left. At the end the folder has a profile, `report.md`, and
`pull-request`, which lies over a checkout of this repository.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reference.files import replace_synced
from twin.errors import TwinError

LOG: Final = "day.jsonl"
TRIES: Final = 2
PATIENCE: Final = 3.0
"""Times its estimate after which an item is ended."""
LEAST: Final = 120.0
"""Seconds before that, however short the estimate."""

Run = Callable[[Sequence[str], Path, float], int]
"""Runs words within so many seconds, says all into a file, and returns the exit code."""


@dataclass(frozen=True, slots=True)
class Day:
    """What was asked for."""

    folder: Path
    seconds: float
    device: str
    quick: bool
    name: str


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0 where nothing is left, 1 where something is."""
    options = _parser().parse_args(words)
    # torch takes more than a second to load: `--help` goes without.
    from reference.machine import inspect, pick  # noqa: PLC0415
    from reference.measure.plan import plan, text  # noqa: PLC0415

    if options.plan:
        sys.stdout.write(text(plan(options.gpus or 8, options.gpu or "h100")) + "\n")
        return 0
    try:
        machine = inspect(pick(options.device), options.name)
        gpu = options.gpu or ("h800" if "H800" in machine.device else "h100")
        items = plan(options.gpus or (machine.count if machine.kind == "cuda" else 1), gpu)
        folder = options.output or Path("measured") / machine.name
        day = Day(folder, options.minutes * 60, options.device, options.quick, machine.name)
        left = run_day(day, items, run_process, sys.stdout.write)
        from reference.measure.handover import hand_over  # noqa: PLC0415

        hand_over(folder, machine, items, gpu)
    except TwinError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("stopped; the same words go on\n")
        return 130
    told = f"left: {', '.join(left)}; the same words go on" if left else "nothing is left"
    sys.stdout.write(f"{folder / 'report.md'}; {told}\n")
    return 1 if left else 0


def run_day(
    day: Day,
    items: Sequence[Any],
    run: Run,
    tell: Callable[[str], object],
    now: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Runs the items of a plan that are not done; the names of those that are left."""
    (day.folder / "logs").mkdir(parents=True, exist_ok=True)
    began, left = now(), list[str]()
    for number, item in enumerate(items, 1):
        codes = attempts(day.folder).get(item.name, [])
        if 0 in codes or len(codes) >= TRIES:
            continue
        if now() - began + item.seconds > day.seconds:
            left.append(item.name)
            continue
        tell(f"{number}/{len(items)} {item.name}: about {item.seconds:.0f} s\n")
        start = now()
        log = day.folder / "logs" / f"{item.name.replace(' ', '-')}.txt"
        code = run(command(day, item), log, max(LEAST, PATIENCE * item.seconds))
        line = {"item": item.name, "code": code, "seconds": round(now() - start, 1)}
        with (day.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if code:
            tell(f"  ended with {code}: {log}\n")
            if len(codes) + 1 < TRIES:
                left.append(item.name)
    return left


def attempts(folder: Path) -> dict[str, list[int]]:
    """Exit codes of every item so far."""
    path = folder / LOG
    found: dict[str, list[int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        one = json.loads(line)
        found.setdefault(one["item"], []).append(int(one["code"]))
    return found


def command(day: Day, item: Any) -> list[str]:
    """The words of an item."""
    python, several = [sys.executable, "-m"], list[str]()
    if item.ranks:
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(item.ranks)]
        several = [*torchrun, "-m"]
    if item.scenario is not None:
        return [*python, *several, item.module, str(_configured(day, item)), "--fresh"]
    own = ["--output", str(day.folder), "--device", day.device, "--name", day.name]
    return [*python, *several, item.module, *item.words, *own, *["--quick"] * day.quick]


def _configured(day: Day, item: Any) -> Path:
    """The trainer's configuration of a layout, written."""
    from reference.measure.layouts import run_of  # noqa: PLC0415 - torch, as above

    folder = day.folder / "runs" / item.scenario.stem
    path = folder.with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_synced(path, json.dumps(run_of(item.scenario, folder), indent=2) + "\n")
    return path


def run_process(words: Sequence[str], log: Path, seconds: float) -> int:
    """A process with a group of its own, ended as a whole when its time is over."""
    with log.open("wb") as said:
        started = subprocess.Popen(
            words, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return started.wait(seconds)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.measure.day",
        description="Measure all that a GPU machine can tell, and write a profile, a report and a "
        "folder for a pull request. The same words again go on where the last ones stopped.",
    )
    add = parser.add_argument
    add("--plan", action="store_true", help="print the items with their seconds, and stop")
    add("--minutes", type=float, default=30, help="begin nothing that ends later [30]")
    add("--output", type=Path, help="write to this folder [measured/NAME]")
    add("--name", help="name the machine's parts")
    add("--device", default="auto", help="measure auto, cpu or cuda [auto]")
    add("--gpus", type=int, help="measure over so many GPUs [all; 8 for --plan]")
    add("--gpu", choices=("h100", "h800"), help="judge the predictions of this GPU [what is here]")
    add("--quick", action="store_true", help="measure few shapes, in seconds")
    return parser


if __name__ == "__main__":
    sys.exit(main())
