"""Measures a profile of a CPU, and follows its pace: times cases again, in seconds, and writes the
profile at another pace.

A core that others share is faster or slower by a fifth within minutes. A profile takes a minute, so
it is measured once; around each run that it predicts, some of its kernels and items are timed
again. Paces are their seconds over those just before and just after their group was measured, the
median of each group. A profile at a pace is fitted anew on its points, each group's times its pace.
No step is timed.

`python -m reference.measure.retime --alone FOLDER --company FOLDER` measures what the folders do
not hold yet, says so by an empty line of JSON, and keeps the inputs. Then it answers each line on
stdin: `{"time": "alone"}` with paces by group, `{"write": "alone", "paces": {...}, "place":
FOLDER}` with the catalog's folder. `company` is measured beside work on the other cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, TextIO

import torch

from reference.machine import Machine, inspect
from reference.measure.clock import Effort
from reference.measure.company import company
from reference.measure.groups import GROUPS
from reference.measure.host.functions import Layers, narrow_run
from reference.measure.host.items import in_place
from reference.measure.points import (
    BF16,
    Setting,
    TimedCase,
    open_folder,
    read_points,
    write_group,
)
from reference.measure.run import MeasureRequest, run, write_machine
from reference.trainer.settings import settings
from twin.loading import load_part

EVERY: Final = {"bandwidth": 1, "host": 1, "gemm": 1, "grouped": 1, "attention": 3, "serving": 1}
"""Groups that are timed again, and every how many of their cases."""
PLACE: Final = {"sequences": 4, "tokens": 256}
"""The functions in place that are timed again: those of a small micro-batch."""
SERVED: Final = (4, 16)
"""Sequences of the engine's passes that are timed again."""
ROUNDS: Final = 30
"""Of the functions on few numbers that stand for the items of the host: their medians, as means of
so few rounds would vary more than the machine."""
EFFORT: Final = Effort(5e-3, 3)
"""Of a case; the median over a group's counts."""
MOST_FLOP: Final = 1e9
MOST_BYTES: Final = 2.0**26
ALONE: Final = ("serving",)
"""Groups of a profile that is measured alone only: loops have one process."""
MEASURED: Final = ("launch", *EVERY, "optimizer", "copies")
"""Groups of a profile, in their order."""
BASE_FILE: Final = "base.json"
START: Final = 0.5
"""Seconds until the other cores are at work."""

Seconds = Mapping[str, Mapping[str, float]]
"""Of each case, by group."""


class Retimed:
    """A profile's folder, with the cases that are timed again and their first seconds."""

    def __init__(self, folder: Path, *, beside: bool) -> None:
        self.folder, self.beside = folder, beside
        self.machine = inspect(torch.device("cpu"), folder.name)
        self.model = load_part("models", "kimi-k2-nano").spec
        limits = (False, MOST_FLOP, MOST_BYTES, 0)
        own = (torch.device("cpu"), self.model.name, self.model, (BF16,), EFFORT)
        self._setting = Setting(*own, *limits, keep=True)
        own = [name for name in EVERY if not (beside and name in ALONE)]
        self._cases = {name: _again(name, self._setting) for name in own}
        self._narrow = narrow_run()
        file = folder / BASE_FILE
        self._time(self._cases)
        if not file.exists():
            file.write_text(json.dumps(self._measure()), encoding="utf-8")
        self.base: Seconds = json.loads(file.read_text(encoding="utf-8"))

    def paces(self) -> dict[str, float]:
        """Seconds now over those of the profile's time, the median of each group."""
        return compare(self._time(self._cases), self.base)

    def write(self, paces: Mapping[str, float], place: Path) -> None:
        """The catalog of this machine at a pace."""
        at_pace(self.folder, paces, place, self.machine, self.model.name)

    def _measure(self) -> Seconds:
        """The profile, and what its cases took around their group."""
        base: dict[str, dict[str, float]] = {}
        for group in MEASURED:
            if self.beside and group in ALONE:
                continue
            own = [group] if group in self._cases else []
            before = self._time(own)
            if group in ALONE:
                self._apart(group)
            else:
                own_name = {"name": self.machine.name, "company": self.beside}
                run(MeasureRequest("cpu", output=self.folder, only=(group,), **own_name), _quiet)
            after = self._time(own)
            base |= {
                name: {case: fmean((seconds, after[name][case])) for case, seconds in cases.items()}
                for name, cases in before.items()
            }
        return base

    def _apart(self, group: str) -> None:
        """Measure in a new process, whose memory is as tidy as that of a loop."""
        words = ["--device", "cpu", "--only", group, "--name", self.machine.name, "--output"]
        command = [sys.executable, "-m", "reference.measure", *words, str(self.folder)]
        subprocess.run(command, check=True, capture_output=True)

    def _time(self, groups: Iterable[str]) -> Seconds:
        with company() if self.beside else nullcontext():
            time.sleep(START * self.beside)
            return {group: self._seconds(group) for group in groups}

    def _seconds(self, group: str) -> Mapping[str, float]:
        if group == "host":
            with settings(self._narrow.train):
                return in_place(Layers(self._narrow), ROUNDS)
        return {str(case): case.run(self._setting).median for case in self._cases[group]}


def _quiet(what: str, done: int, total: int, left: float) -> None:
    """Says nothing: whoever asked reads answers."""
    del what, done, total, left


def _again(group: str, setting: Setting) -> list[TimedCase]:
    cases = [case for case in GROUPS[group](setting) if isinstance(case, TimedCase)]
    if group == "bandwidth":
        return [case for case in cases if case.shape == PLACE]
    if group == "serving":
        passes = [case for case in cases if case.op == "engine_pass"]
        return [case for case in passes if case.shape["sequences"] in SERVED]
    return cases[:: EVERY[group]]


def compare(now: Seconds, base: Seconds) -> dict[str, float]:
    """Of each group the median of its cases' seconds over those of the base."""
    return {
        group: median(seconds / base[group][case] for case, seconds in cases.items())
        for group, cases in now.items()
    }


def at_pace(
    folder: Path, paces: Mapping[str, float], place: Path, machine: Machine, model: str
) -> None:
    """The points of a profile at a pace, and the parts that follow from them. Groups that were not
    timed again have the median of the paces."""
    open_folder(place, machine)
    typical = median(paces.values())
    points = read_points(folder)
    for group in {point.group for point in points}:
        pace = paces.get(group, typical)
        own = [replace(p, timing=p.timing.scaled(pace)) for p in points if p.group == group]
        write_group(place, group, machine, {"pace": {"times": pace}}, (own, ()))
    write_machine(place, machine, model, "median")


def serve(profiles: Mapping[str, Retimed], asked: TextIO, told: TextIO) -> None:
    """Answer each line until there are no more."""
    for line in asked:
        answer = _answer(profiles, json.loads(line))
        told.write(json.dumps(answer) + "\n")
        told.flush()


def _answer(profiles: Mapping[str, Retimed], asked: Mapping[str, Any]) -> dict[str, Any]:
    if "time" in asked:
        return profiles[asked["time"]].paces()
    profiles[asked["write"]].write(asked["paces"], Path(asked["place"]))
    return {"catalog": str(Path(asked["place"]) / "catalog")}


def main(words: Sequence[str] | None = None) -> None:
    """Time profiles once, say so, and answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alone", type=Path, help="a profile measured alone")
    parser.add_argument("--company", type=Path, help="a profile measured beside other cores' work")
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    profiles = {
        name: Retimed(folder, beside=name == "company")
        for name, folder in vars(options).items()
        if folder is not None
    }
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    serve(profiles, sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
