"""Kimi K2 on 2,048 H800 by events: the compiled player beside the one in Python, in the same run;
and what unfolded ranks take. Seconds of the processor, medians of five."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, TypeVar

import pytest

import twin
from twin.answers.nearest import document, replaced
from twin.compiled import machine
from twin.compiled.build import build
from twin.engine import lower, simulate
from twin.engine.events import play
from twin.engine.program import Program
from twin.engine.roles import Ranks
from twin.engine.unroll import unroll
from twin.planning.feasibility import problems
from twin.scenario import Scenario

pytestmark = pytest.mark.benchmark

K2 = "kimi-k2-2048xh800"
SHARE = 1 / 5
"""Of the Python player's seconds, that a step takes at most."""
WALL = 1.2
"""Seconds of `twin run` with imports."""

PLANS = 10
"""Lowered and simulated per second by events, at least."""

CHOICES: dict[str, list[Any]] = {
    "parallel.pipeline": [4, 8, 16, 32],
    "parallel.virtual": [1, 1, 2, 4],
    "parallel.expert": [8, 16, 32, 64, 128],
    "parallel.tensor": [1, 1, 2, 4, 8],
    "parallel.context": [1, 1, 1, 2],
    "parallel.zero": [0, 1, 1, 2, 3],
    "parallel.micro_batch": [1, 1, 2],
    "parallel.dispatcher": ["deepep", "alltoall"],
    "memory.recompute": [
        ["norms", "swiglu", "mla_up", "moe_down"],
        ["norms", "swiglu"],
        ["full"],
        [],
    ],
    "memory.offload": [["activations"], ["optimizer"], []],
    "parallel.schedule": [
        {"kind": "1f1b"},
        {"kind": "interleaved_1f1b"},
        {
            "kind": "interleaved_1f1b",
            "extra_warmup": 1,
            "overlap_all_to_all": True,
            "defer_weight_grad": True,
        },
        {"kind": "zb_h1"},
        {"kind": "dualpipe"},
    ],
}
"""Of random layouts of the same."""

T = TypeVar("T")


def program(ranks: Ranks = "folded") -> Program:
    return lower(twin.plan(twin.load(K2)), ranks)


def seconds(work: Callable[[], T]) -> tuple[float, T]:
    spent: list[float] = []
    while True:
        start = process_time()
        found = work()
        spent.append(process_time() - start)
        if len(spent) == 5:
            return median(spent), found


def test_a_step_takes_a_fifth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build() is not None
    made = program()
    graph = unroll(made, made.microbatches)
    whole, found = seconds(lambda: simulate(made))
    played, events = seconds(lambda: play(graph, made))
    monkeypatch.setattr(machine, "code", lambda: None)
    readable, theirs = seconds(lambda: simulate(made))
    slow, _ = seconds(lambda: play(graph, made))
    print(f"{whole:.2f} s of CPU, {readable:.2f} s in Python; {events.events / played:,.0f} events")
    print(f"per second, {events.events / slow:,.0f} in Python")
    assert found.step_ns == theirs.step_ns
    assert whole <= SHARE * readable


def test_a_run_takes_little_more_than_its_imports(tmp_path: Path) -> None:
    """With Python's bytecode, as on a planner's machine; the first of six runs writes it."""
    assert build() is not None
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    command = [Path(sys.executable).with_name("twin"), "run", K2, "--no-cache"]
    spent: list[float] = []
    for _ in range(6):
        start = perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=os.environ | bytecode)
        spent.append(perf_counter() - start)
    print(f"twin run {K2}: {median(spent[1:]):.2f} s")
    assert median(spent[1:]) <= WALL


def test_plans_are_lowered_and_simulated_by_the_dozen() -> None:
    """Per second of a core: of one plan, as a search meets it whose schedule it has seen."""
    assert build() is not None
    plan = twin.plan(twin.load(K2))
    spent, _ = seconds(lambda: simulate(lower(plan)))
    print(f"{1 / spent:.1f} plans per second")
    assert 1 / spent >= PLANS


def test_random_neighbours_are_lowered_and_simulated_by_the_dozen() -> None:
    """Each seen once. The median one: layouts of 1,024 micro-batches have 20 times the events of
    the shipped one."""
    assert build() is not None
    decided, played = list[float](), list[float]()
    for scenario in neighbours(30, seed=1):
        start = process_time()
        plan = twin.plan(scenario)
        planned = process_time()
        # A copy: what the decision has played is not handed on to it.
        assert simulate(lower(replace(plan))).step_ns > 0
        decided.append(planned - start)
        played.append(process_time() - planned)
    print(f"{1 / median(played):.1f} plans per second, {1 / median(decided):.1f} decided on")
    assert 1 / median(played) >= PLANS


def neighbours(count: int, seed: int) -> list[Scenario]:
    """Random possible layouts of Kimi K2, whether they fit in memory or not."""
    chance, base = random.Random(seed), document(twin.load(K2))
    found: list[Scenario] = []
    while len(found) < count:
        drawn = {path: chance.choice(choices) for path, choices in CHOICES.items()}
        drawn["parallel.sequence_parallel"] = drawn["parallel.tensor"] > 1
        scenario = replaced(base, drawn)
        if not problems(scenario):
            found.append(scenario)
    return found


@pytest.mark.parametrize(("ranks", "most"), [("group", 6.0), ("all", 60.0)])
def test_unfolded_ranks_come_out_alike(ranks: Ranks, most: float) -> None:
    start = perf_counter()
    made = program(ranks)
    trace = simulate(made)
    wall, used = perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{len(made.roles)} ranks: {trace.events:,} events, {wall:.1f} s, {used:.1f} GB")
    assert trace.step_ns == simulate(program()).step_ns
    assert wall <= most
    assert used <= 8
