"""Which layouts are run: files of scenarios, or all that ship for it (`scenarios/reference`).

A layout with an iteration of reinforcement learning is a loop, run by the reference in one process
(`twin.evidence.loop.rl_loop`). A layout whose nodes are `stand-in-netns` runs paced: ranks sleep
for the time of a GPU, so that the schedule and the real links are judged. Any other layout runs
bare, one rank per core, as fast as it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from random import Random
from typing import Final, Literal

from twin.engine import plan
from twin.errors import Problem, ScenarioError, UsageError
from twin.evidence.loop.trainer import problems
from twin.loading import load, scenario_hash
from twin.loading.files import shipped_folder
from twin.loading.tree import hint
from twin.scenario import Scenario

Mode = Literal["paced", "bare", "rl"]
STAND_IN: Final = "stand-in"
"""The GPU that ranks sleep for."""
LOOPBACK: Final = "cluster.node.nic.bandwidth=16Gbps"
"""What gloo carries over loopback, roughly: where no link can be held to a rate."""


@dataclass(frozen=True, slots=True)
class ReferenceLayout:
    """A scenario that the reference can run here."""

    path: Path
    scenario: Scenario
    drawn: str = ""
    """The name of a layout that was drawn at random."""

    @property
    def name(self) -> str:
        """Its file's, without the ending."""
        return self.drawn or self.path.stem

    @property
    def mode(self) -> Mode:
        """How it is run."""
        if self.scenario.rl is not None:
            return "rl"
        return "paced" if self.scenario.cluster.node.gpu.name == STAND_IN else "bare"

    def slowed(self, times: float) -> ReferenceLayout:
        """The same on a GPU that is so many times slower."""
        cluster = self.scenario.cluster
        gpu = cluster.node.gpu
        rates = {
            "bf16_dense": gpu.bf16_dense / times,
            "memory_bandwidth": gpu.memory_bandwidth / times,
        }
        node = cluster.node.model_copy(update={"gpu": gpu.model_copy(update=rates)})
        cluster = cluster.model_copy(update={"node": node})
        return replace(self, scenario=self.scenario.model_copy(update={"cluster": cluster}))


def folder() -> Path:
    """Where layouts ship."""
    return shipped_folder() / "reference"


def shipped(mode: Mode | None = None) -> tuple[str, ...]:
    """The names of shipped layouts, sorted; those of one mode."""
    found = sorted(path.stem for path in folder().glob("*.yaml"))
    return tuple(one for one in found if mode is None or _named(one) == mode)


def _named(name: str) -> Mode:
    """The mode of a shipped layout, which its name begins with, but for paced ones."""
    return "rl" if name.startswith("rl-") else "bare" if name.startswith("bare-") else "paced"


def find(
    names: Sequence[str], mode: Mode | None = None, sets: Sequence[str] = (), *, shaped: bool = True
) -> tuple[ReferenceLayout, ...]:
    """The layouts of these files or names, or else all shipped ones; of one mode where it is given.
    Without shaped links each is taken once, whatever its rate.

    Raises UsageError where there is no such layout, ScenarioError where one is wrong.
    """
    paths = [_path(name) for name in names or shipped(mode)]
    overrides = [*sets, *([] if shaped else [LOOPBACK])]
    found = [ReferenceLayout(path, load(path, overrides)) for path in paths]
    return tuple(one for one in _once(found) if mode is None or one.mode == mode)


DRAWN_FROM: Final = {"paced": ("pp2-1gbps", (2, 4)), "bare": ("bare-pp2-100mbps", (2,))}
"""By mode the layout whose other fields drawn ones have, and ranks."""
RATES: Final = (100e6, 5e9)
"""Bits per second of a drawn layout's links: even in their logarithm between these."""
SCHEDULES: Final = (
    "{kind: gpipe}",
    "{kind: 1f1b}",
    "{kind: zb_h1}",
    "{kind: zb_h2, post_validation: false}",
    "{kind: dualpipe}",
    "{kind: interleaved_1f1b}",
    "{kind: interleaved_1f1b, extra_warmup: 1, overlap_all_to_all: true}",
)
MICROBATCHES: Final = (8, 12, 16)
RECOMPUTE: Final = ("[]", "[full]")


def drawn(
    count: int, seed: int, mode: Literal["paced", "bare"] = "paced"
) -> tuple[ReferenceLayout, ...]:
    """Layouts drawn at random; the same ones for a seed. What is refused is drawn again."""
    name, ranks = DRAWN_FROM[mode]
    draw, base, found = Random(seed), _path(name), list[ReferenceLayout]()
    before = "bare-" * (mode == "bare")
    while len(found) < count:
        with suppress(ScenarioError):
            scenario = load(base, _draw(draw, draw.choice(ranks)))
            if not problems(plan(scenario)):
                named = f"{before}drawn-{seed}-{len(found) + 1:02}"
                found.append(ReferenceLayout(base, scenario, named))
    return tuple(found)


def _draw(draw: Random, ranks: int) -> list[str]:
    """Fields of a layout."""
    schedule = draw.choice(SCHEDULES)
    pipeline = draw.choice([one for one in (1, 2, 4) if one <= ranks])
    data = ranks // pipeline
    low, high = map(log, RATES)
    rate = round(exp(draw.uniform(low, high)) / 1e6)
    return [
        f"cluster.nodes={ranks}",
        f"cluster.node.nic.bandwidth={rate}Mbps",
        f"parallel.pipeline={pipeline}",
        f"parallel.virtual={1 + ('interleaved' in schedule)}",
        f"parallel.schedule={schedule}",
        # Copies of a chunk finish in different orders: the reference sums them behind all passes.
        f"parallel.overlap_grad_reduce={str('dualpipe' not in schedule).lower()}",
        f"parallel.expert={draw.choice([one for one in (1, 2, 4) if one <= data])}",
        f"parallel.zero={draw.choice((0, 1))}",
        f"memory.recompute={draw.choice(RECOMPUTE)}",
        f"train.global_batch={data * draw.choice(MICROBATCHES)}seq",
    ]


def _once(layouts: Iterable[ReferenceLayout]) -> list[ReferenceLayout]:
    return list({scenario_hash(one.scenario): one for one in layouts}.values())


def _path(name: str) -> Path:
    path = Path(name)
    if path.is_file():
        return path
    inside = folder() / f"{name}.yaml"
    if path.name == name and inside.is_file():
        return inside
    message = f"there is no layout `{name}`"
    raise UsageError([Problem("TW370", "", message, hint(name, shipped()))])
