"""A profile of this machine, measured now, that follows its pace.

The reference measures kernels and items of the host once, alone and with the other cores at work,
and what a message costs. Around each run it times some of them again (`reference.measure.retime`);
the layout is predicted from the profile at that pace. Nothing here comes from a step or a loop.

An engine's step lasts its kernels, of the same profile, and what its host takes per step and per
sequence: a line through the measured steps of the group `serving` less their kernels. So it holds
what eager calls cost, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from types import TracebackType
from typing import Any, Final, Literal, Self, cast

import numpy as np

from twin.collectives.base import START_HOPS
from twin.errors import Problem, UsageError
from twin.evidence.loop.layouts import ReferenceLayout
from twin.evidence.loop.trainer import BEFORE_OTHERS, checkout, start
from twin.inference.engine import Engine
from twin.inference.seconds import decode_pass
from twin.kinds.iteration.plan import plan as plan_loop
from twin.loading import load, load_part
from twin.scenario import Scenario

Condition = Literal["alone", "company"]
"""Whether the other cores are at work."""
CONDITIONS: Final[tuple[Condition, ...]] = ("alone", "company")
MESSAGE_RATES: Final = ("100Mbps", "500Mbps", "2Gbps")
"""Links that messages are timed over."""
FRESH: Final = 3.0
"""Seconds for which a pace is that of now: the end of one run is the beginning of the next."""
Paces = Mapping[str, float]
"""Seconds over those right after the profile, by group of kernels."""


@dataclass(frozen=True, slots=True)
class EngineHost:
    """Seconds of a step of the inference engine beside its kernels, and of each sequence of it."""

    step: float
    sequence: float


class MachineProfile:
    """Profiles in a folder, and the process that times them again."""

    def __init__(
        self,
        folder: Path,
        layouts: Sequence[ReferenceLayout],
        tell: Callable[[str], None],
        *,
        shaped: bool = True,
    ) -> None:
        self._folder, self._tell, self._shaped = folder, tell, shaped
        self._wanted = {condition_of(layout) for layout in layouts}
        self._last: dict[Condition, tuple[float, Paces]] = {}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Measure what the folder does not hold yet, and start the process."""
        wanted = [one for one in CONDITIONS if one in self._wanted]
        for condition in wanted:
            place = self._folder / condition
            if not (place / "base.json").exists():
                self._tell(f"profile of this machine, {condition}: about a minute")
                place.mkdir(parents=True, exist_ok=True)
        if "company" in wanted:
            self._time_messages(self._folder / "company")
        words = [*BEFORE_OTHERS, sys.executable, "-m", "reference.measure.retime"]
        for condition in wanted:
            words += [f"--{condition}", str(self._folder / condition)]
        self._process = subprocess.Popen(
            words,
            cwd=checkout(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self._folder / "retime.txt").open("wb"),
            text=True,
            start_new_session=True,
        )
        self._answer()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            cast("Any", self._process.stdin).close()
            self._process.wait()

    def paces(self, layout: ReferenceLayout) -> Paces:
        """This machine's, as a run of the layout finds it."""
        condition = condition_of(layout)
        when, last = self._last.get(condition, (0.0, {}))
        if time.monotonic() - when > FRESH:
            last = self._ask({"time": condition})
            self._last[condition] = time.monotonic(), last
        return last

    def at(self, layout: ReferenceLayout, paces: Sequence[Paces], place: Path) -> ReferenceLayout:
        """A layout with the parts of this machine at the mean of some paces."""
        mean = {name: fmean(one[name] for one in paces) for name in paces[0]}
        condition = condition_of(layout)
        self._ask({"write": condition, "paces": mean, "place": str(place)})
        return replace(layout, scenario=grafted(layout.scenario, condition, place))

    def _time_messages(self, place: Path) -> None:
        """What messages cost the processor, over links of some rates, unless that is known."""
        if (place / "points" / "messages.jsonl").exists():
            return
        own = ["--", "reference.measure.messages", "--output", str(place), "--name", place.name]
        links = [["--rate", rate] for rate in MESSAGE_RATES] if self._shaped else [["--loopback"]]
        for link in links:
            words = [sys.executable, "-m", "reference.cluster", "--nodes", "2", *link]
            start([*BEFORE_OTHERS, *words, "--pin", *own], place / "log.txt")

    def _ask(self, asked: Mapping[str, Any]) -> Any:
        assert self._process is not None, "the process runs within the context"
        asking = cast("Any", self._process.stdin)
        asking.write(json.dumps(asked) + "\n")
        asking.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process is not None, "the process runs within the context"
        line = cast("Any", self._process.stdout).readline()
        if not line:
            said = self._folder / "retime.txt"
            message = "the process that times kernels again has ended"
            raise UsageError([Problem("TW373", "", message, f"all that it said is in {said}")])
        return json.loads(line)


def condition_of(layout: ReferenceLayout) -> Condition:
    """How a layout's profile is measured: ranks of several cores share memory, caches and clock."""
    return "company" if layout.scenario.cluster.gpus > 1 else "alone"


def grafted(scenario: Scenario, name: str, folder: Path) -> Scenario:
    """A scenario on the machine whose parts have this name in a folder; links stay."""
    node, own = load_part("nodes", name, (folder,)).spec, scenario.cluster.node
    if scenario.cluster.gpus > 1:
        start = exchange_start(folder)
        hop = own.nvlink.latency if start is None else max(0, start - own.nic.latency) / START_HOPS
        nvlink = own.nvlink.model_copy(update={"latency": hop})
        node = node.model_copy(update={"nic": own.nic, "nvlink": nvlink})
    parts = {
        "cluster": scenario.cluster.model_copy(update={"node": node}),
        "calibration": load_part("calibrations", name, (folder,)).spec,
        "software": load_part("software", name, (folder,)).spec,
    }
    on_machine = scenario.model_copy(update=parts)
    return on_machine if scenario.rl is None else _serving(on_machine, folder)


def exchange_start(folder: Path) -> float | None:
    """Seconds of an exchange beside its bytes, the mean between ranks that come from computing, of
    the middle one of the rates; None where none was timed."""
    lines = (folder / "points" / "messages.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    points = [one for one in map(json.loads, lines) if one["op"] == "exchange_start"]
    return median(one["timing"]["mean"] for one in points) if points else None


def _serving(scenario: Scenario, folder: Path) -> Scenario:
    """A loop with the engine, the updater and the turns of a machine; its own calibration serves,
    too."""
    (path,) = folder.glob("loop-*.yaml")
    measured, rl = load(path).rl, scenario.rl
    assert rl is not None
    assert rl.rollout is not None
    assert rl.iteration is not None
    assert measured is not None
    assert measured.iteration is not None
    its = measured.iteration
    update = rl.iteration.update.model_copy(update={"updater": its.update.updater})
    turns = {"sleep": its.sleep, "wake": its.wake, "update": update}
    iteration = rl.iteration.model_copy(update=turns)
    plain = {"calibration": scenario.calibration, "step_overhead": 0.0, "sequence_overhead": 0.0}

    def served(fields: Mapping[str, Any]) -> Scenario:
        engine = rl.rollout.engine.model_copy(update=fields)
        rollout = rl.rollout.model_copy(update={"engine": engine})
        own = rl.model_copy(update={"rollout": rollout, "iteration": iteration})
        return scenario.model_copy(update={"rl": own})

    host = engine_host(plan_loop(served(plain)).server, folder)
    return served({**plain, "step_overhead": host.step, "sequence_overhead": host.sequence})


def engine_host(server: Engine, folder: Path) -> EngineHost:
    """What steps of the group `serving` take beside kernels: the line that misses them by least,
    each relative to its step."""
    steps: dict[tuple[int, int], float] = {}
    for text in (folder / "points" / "serving.jsonl").read_text(encoding="utf-8").splitlines()[1:]:
        point = json.loads(text)
        if point["op"] in ("engine_host", "engine_pass"):
            key = point["shape"]["sequences"], point["shape"]["cached"]
            steps[key] = steps.get(key, 0.0) + point["timing"]["median"]
    kernels = np.array([decode_pass(server, batch, cached).seconds for batch, cached in steps])
    batches, seconds = np.array([batch for batch, _ in steps]), np.array([*steps.values()])
    rows = np.stack([1 / seconds, batches / seconds], 1)
    step, sequence = np.linalg.lstsq(rows, 1 - kernels / seconds, rcond=None)[0]
    return EngineHost(max(0.0, float(step)), max(0.0, float(sequence)))
