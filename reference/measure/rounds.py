"""The machine and whole steps of a run, measured in turns.

Neighbours of a virtual machine slow a core by up to two, for milliseconds to minutes. So a step is
compared with kernels and items of the same minute: a round times each group once, with steps in
front of it and behind. A fixed piece of work, the probe, is timed with the steps; how far it varies
says how quiet the machine was.

A round has a folder, `round-N`: points and catalog parts as those of any measurement, and
`steps.json` with the seconds of steps and probes. No part follows from a step. Fits take means: a
step is the sum of its calls, and neighbours disturb some of them. Seconds are the process's own on
one thread of a CPU.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import torch

from reference.config import RunSpec, load_run
from reference.ending import Stop
from reference.machine import Machine, inspect, state
from reference.measure import clock
from reference.measure.clock import Call, Effort
from reference.measure.groups import GROUPS
from reference.measure.points import CACHES, Setting, TimedCase, open_folder, write_group
from reference.measure.run import write_machine
from reference.parallel.world import joined
from reference.trainer.settings import settings
from reference.trainer.stages import balanced, microbatches, stages_of
from reference.trainer.step import train_step
from reference.trainer.trainee import build
from twin.spec.model import ModelSpec

IN_TURN: Final = ("launch", "bandwidth", "host", "gemm", "grouped", "attention", "optimizer")
"""Groups of a round: what the profile and the host of a training step follow from."""
EFFORT: Final = Effort(5e-3, 3)
"""Of a case: rounds are many, and the median over them counts."""
MOST_FLOP: Final = 1e9
MOST_BYTES: Final = 2.0**26
"""Of a call, so that a round is over in seconds: kernels of a thousand tokens of a small model."""
STEPS: Final = 2
"""Between two groups."""
WARM: Final = 3
"""Steps before the first round."""
FEWEST: Final = 3
"""Rounds, however long they take."""
STREAMED: Final = 2 * clock.last_level_cache()
"""Bytes that the probe moves."""
CALLS: Final = 2000
"""Calls of torch that it makes."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class RoundSamples:
    """Seconds of steps and probes of a round, in their order, and the share of a core that the
    process had meanwhile."""

    steps: tuple[float, ...]
    probes: tuple[float, ...]
    core: float


@dataclass(slots=True)
class Watch:
    """Times calls by the process's own clock, and sums the wall's beside it."""

    own: Clock
    wall: Clock
    ran: float = 0.0
    lasted: float = 0.0

    def seconds(self, call: Call) -> float:
        """What a call takes."""
        wall, own = self.wall(), self.own()
        call()
        taken = self.own() - own
        self.ran, self.lasted = self.ran + taken, self.lasted + self.wall() - wall
        return taken


def measure_rounds(
    config: Path, folder: Path, seconds: float, tell: Callable[[str], object]
) -> list[RoundSamples]:
    """Rounds within so many seconds, three at least; each is written once it has ended."""
    run = load_run(config, ["train.device=cpu", "train.threads=1"])
    found: list[RoundSamples] = []
    with _trainer(run) as step:
        device = torch.device("cpu")
        machine = inspect(device)
        setting = _setting(device, run.model)
        plans = {name: _cases(name, setting) for name in IN_TURN}
        for place in rounds(folder, seconds, time.monotonic):
            tell(f"{place.name} of about {seconds:.0f} s in all")
            open_folder(place, machine)
            groups = [
                partial(_measured, name, cases, setting, machine, place)
                for name, cases in plans.items()
            ]
            watch = Watch(clock.ticking(device), time.perf_counter)
            found.append(alternate(groups, step, probe(), watch))
            write_machine(place, machine, run.model.name, "mean")
            (place / "steps.json").write_text(json.dumps(asdict(found[-1])), encoding="utf-8")
    return found


def rounds(folder: Path, seconds: float, now: Clock) -> Iterator[Path]:
    """The folders of rounds, until there is no time for one more like the mean of those before."""
    began, done = now(), 0
    while done < FEWEST or (now() - began) * (done + 1) / done <= seconds:
        done += 1
        yield folder / f"round-{done}"


def alternate(groups: Sequence[Call], step: Call, probed: Call, watch: Watch) -> RoundSamples:
    """One round: probe and steps in front of each group and behind the last."""
    steps: list[float] = []
    probes: list[float] = []
    for group in (*groups, None):
        probes.append(watch.seconds(probed))
        steps += [watch.seconds(step) for _ in range(STEPS)]
        if group is not None:
            group()
    return RoundSamples(tuple(steps), tuple(probes), watch.ran / watch.lasted)


def probe() -> Call:
    """Work that is the same whatever is measured: calls of Python and torch, and memory that no
    cache holds."""
    few, many = torch.zeros(8), torch.zeros(STREAMED // 4)

    def call() -> None:
        for _ in range(CALLS):
            few.add_(1.0)
        many.add_(1.0)

    call()
    return call


@contextmanager
def _trainer(run: RunSpec) -> Iterator[Call]:
    """The trainer's next step, warm."""
    with ExitStack() as stack:
        device = stack.enter_context(settings(run.train))
        world = stack.enter_context(joined(run.parallel, microbatches(run), device))
        trainee, stage = build(run, world, device, resumes=False), stages_of(run)[0]
        trainee.enter(stage)
        share = run.balance.sequence_loss / stage.accumulate
        stack.enter_context(balanced(trainee.models, share, stage.sequence))
        stop = Stop()
        for _ in range(WARM):
            train_step(run, stage, trainee, stop)
        yield lambda: train_step(run, stage, trainee, stop)


def _setting(device: torch.device, model: ModelSpec) -> Setting:
    cache = CACHES * clock.cache_bytes(device)
    limits = (False, MOST_FLOP, MOST_BYTES, cache)
    return Setting(device, model.name, model, ("bf16",), EFFORT, *limits, keep=True)


def _cases(name: str, setting: Setting) -> list[TimedCase]:
    """The cases of a group, but for the optimizer that a step here does not run."""
    found = (case for case in GROUPS[name](setting) if isinstance(case, TimedCase))
    return [case for case in found if case.op != "newton_schulz"]


def _measured(
    name: str, cases: Sequence[TimedCase], setting: Setting, machine: Machine, folder: Path
) -> None:
    """Time a group, and write its points."""
    points = [case.measured(name, setting) for case in cases]
    write_group(folder, name, machine, {"after": state()}, (points, ()))
