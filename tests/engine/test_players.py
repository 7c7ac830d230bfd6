"""Both players, the readable one and machine code, give the same nanoseconds on every program."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from time import sleep
from typing import Literal

import numpy as np
import pytest

import twin
from tests.engine.programs import by_hand, segment
from tests.engine.test_folding import CASES
from tests.engine.test_uneven import MORE
from tests.engine.test_uneven import drawn as unequal
from twin.cli.main import main
from twin.collectives.traffic import Traffic
from twin.compiled import machine
from twin.compiled.build import build
from twin.engine import lower, plan, simulate
from twin.engine import machine_player as compiled_player
from twin.engine.graph import Graph
from twin.engine.link_map import Rates, Seats, wire
from twin.engine.machine_player import play as play_compiled
from twin.engine.played import DeadlockError
from twin.engine.player import play as play_in_python
from twin.engine.program import (
    COMPUTE,
    DATA,
    EXPERT,
    TENSOR,
    Group,
    Offload,
    Program,
    Role,
    StageMessage,
    Step,
    Template,
)
from twin.engine.unroll import unroll
from twin.schedules import KNOWN
from twin.schedules.base import Schedule
from twin.schedules.interleaved import Interleaved
from twin.schedules.one_f_one_b import OneForwardOneBackward

K2 = Interleaved(extra_warmup=1, overlap_all_to_all=True, defer_weight_grad=True)


@pytest.fixture(scope="module", autouse=True)
def code() -> machine.Code:
    """Machine code, made if it is not there."""
    assert build() is not None
    found = machine.code()
    assert found is not None
    return found


def assert_same(graph: Graph, program: Program, code: machine.Code) -> None:
    """Every operation at the same times, for the same reason."""
    ours, theirs = play_in_python(graph, program), play_compiled(code, graph, program)
    for column in ("ready", "start", "end", "released_by"):
        assert np.array_equal(getattr(ours, column), getattr(theirs, column)), column
    assert (ours.events, ours.shared) == (theirs.events, theirs.shared)


def drawn_template(chance: random.Random, name: str) -> Template:
    """Kernels, exchanges that hold SMs or none, and a reduction that nothing waits for."""
    steps: list[Step] = []
    groups: list[Group] = ["self", "expert", "tensor"]
    for _ in range(chance.randint(1, 4)):
        last = (len(steps) - 1,) if steps else ()
        bound = chance.choice([1.0, 0.5, chance.random()])
        steps.append(Step(name, COMPUTE, chance.randint(0, 300), last, sm_bound=bound))
        if chance.random() < 0.7:
            sizes = [chance.choice([0.0, 40.0, chance.uniform(1, 300)]) for _ in range(2)]
            steps.append(
                Step(
                    "exchange",
                    chance.choice([EXPERT, TENSOR, DATA]),
                    chance.choice([0, 0, 7]),
                    (len(steps) - 1,),
                    Traffic(nvlink_bytes=sizes[0], nic_bytes=sizes[1], far_bytes=sizes[1] / 2),
                    chance.choice(groups),
                    sms=chance.choice([0, 0, 20]),
                )
            )
    return (*steps, Step(name, COMPUTE, 5, (len(steps) - 1,)))


def drawn_schedule(chance: random.Random) -> tuple[Schedule, tuple[int, int, int]]:
    """A schedule and a shape that it can run."""
    while True:
        schedule = chance.choice(
            [*(made.model_validate({"kind": kind}) for kind, made in KNOWN.items()), K2]
        )
        stages = chance.randint(1, 4)
        shape = stages, chance.choice([1, 2]), stages * chance.randint(2, 4)
        if not schedule.problems(*shape):
            return schedule, shape


def drawn(seed: int) -> Program:
    """A random program: links of sockets and leaves that ranks share, SMs, copies, rendezvous."""
    chance = random.Random(seed)
    schedule, shape = drawn_schedule(chance)
    stages, width, copied = shape[0], chance.choice([1, 1, 2]), chance.random() < 0.4
    count = stages * width
    seats = Seats(range(count), range(count), switch=1, socket=2, node=4, pod=4)
    leaf = chance.choice([None, 3.0])
    links = Rates(nvlink=3.0, nic=1.0, pcie=1.3, dram=2.0, leaf=leaf, loss=0.3)
    link: Literal["nic", "nvlink"] = "nic" if chance.random() < 0.5 else "nvlink"
    message = StageMessage(chance.choice([0.0, 50.0, 130.0]), link, chance.randint(0, 9), far=True)
    program = by_hand(
        schedule,
        shape,
        lambda _: drawn_template(chance, "forward"),
        lambda _: drawn_template(chance, "backward"),
        message,
        lambda _: drawn_template(chance, "backward_weight"),
    )
    chunks = len(program.chunk_map.part_of)
    every = [Role(f"{s} {w}", s, 1, (), {}) for s in range(stages) for w in range(width)]
    roles = tuple(
        Role(
            role.name,
            role.stage,
            1,
            tuple(range(index % width, count, width)),
            {"expert": role.stage, "tensor": index, "world": 0},
        )
        for index, role in enumerate(every)
    )
    closing = (Step("norm", DATA, 3, (), Traffic(nic_bytes=30.0), "world"),)
    return replace(
        program,
        roles=roles,
        wiring=wire(seats, links, host=copied, messages=link),
        offload=Offload(tuple(80.0 + c for c in range(chunks)), 2) if copied else None,
        sms=chance.choice([60, 132]),
        contention=chance.choice([0.0, 0.04]),
        finish=tuple(closing for _ in range(stages)),
        ready_after=tuple((None,) for _ in range(stages)),
    )


@pytest.mark.parametrize("part", range(10))
def test_random_programs_are_played_alike(part: int, code: machine.Code) -> None:
    for seed in range(20 * part, 20 * part + 20):
        program = drawn(seed)
        assert_same(unroll(program, program.microbatches), program, code)


@pytest.mark.slow
def test_2000_random_programs_are_played_alike(code: machine.Code) -> None:
    for seed in range(200, 2200):
        program = drawn(seed)
        assert_same(unroll(program, program.microbatches), program, code)


def test_random_programs_share_links_and_sms_and_wait_for_each_other() -> None:
    """Else their agreement would say little."""
    programs = [drawn(seed) for seed in range(40)]
    graphs = [unroll(program, program.microbatches) for program in programs]
    played = [play_in_python(*pair) for pair in zip(graphs, programs, strict=True)]
    assert sum(one.shared for one in played) > 20
    assert sum(len(graph.members.first) > 1 for graph in graphs) > 10
    assert sum(bool(graph.sms.any()) for graph in graphs) > 20
    assert {type(program.schedule) for program in programs} == {*KNOWN.values()}


def test_a_real_step_is_played_alike(code: machine.Code) -> None:
    program = twin.lower(twin.plan(twin.load("kimi-k2-2048xh800", ("train.global_batch=2048seq",))))
    assert_same(unroll(program, program.microbatches), program, code)


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_layouts_of_laws_are_played_alike(name: str, code: machine.Code) -> None:
    """With GPUs that differ. Laws over these are read by machine code alone in `make test`."""
    program = lower(plan(unequal((CASES | MORE)[name], name)))
    assert_same(unroll(program, program.microbatches), program, code)


def stuck() -> tuple[Graph, Program]:
    """Two operations that wait for each other."""
    program = by_hand(
        OneForwardOneBackward(), (1, 1, 1), lambda _: segment(5), lambda _: segment(5)
    )
    graph = unroll(program, 1)
    graph.waits[1] += 1
    return graph, program


def test_both_find_a_deadlock(code: machine.Code) -> None:
    graph, program = stuck()
    with pytest.raises(DeadlockError, match="never starts"):
        play_in_python(graph, program)
    with pytest.raises(DeadlockError, match="never starts"):
        play_compiled(code, graph, program)


@pytest.mark.parametrize(("limit", "value", "programs"), [("QUEUE", 1, 5), ("KNOWN", 16, 10)])
def test_a_short_queue_and_forgotten_sets_of_flows_change_nothing(
    limit: str, value: int, programs: int, code: machine.Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_player, limit, value)
    for seed in range(programs):
        program = drawn(seed)
        assert_same(unroll(program, program.microbatches), program, code)


def test_progress_is_told(code: machine.Code, monkeypatch: pytest.MonkeyPatch) -> None:
    program = drawn(3)
    graph = unroll(program, program.microbatches)
    monkeypatch.setattr(compiled_player, "ANNOUNCE", 20)
    told: list[float] = []
    play_compiled(code, graph, program, told.append)
    assert told == sorted(told)
    assert 0 < told[0] < 1


def test_while_the_code_is_made_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    program = drawn(7)
    compiled = simulate(program)
    monkeypatch.setattr(machine, "code", lambda: None)
    ours = simulate(program)
    assert ours.breakdown_ns == compiled.breakdown_ns
    assert (ours.spans.start == compiled.spans.start).all()
    assert (ours.critical, ours.link_bytes) == (compiled.critical, compiled.link_bytes)


ABSENT = """
import sys
sys.modules |= dict.fromkeys(("numba", "llvmlite", "llvmlite.binding"))
from twin.cli.main import main
from twin.compiled import machine
code = main(sys.argv[1:])
assert (code, machine.code()) == (0, None)
"""


def test_where_no_code_can_be_made_or_loaded_the_answer_is_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And says nothing about it."""
    words = ["run", "gpt-175b-64xa100-selective", "--no-cache"]
    command = [sys.executable, "-c", ABSENT, *words]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert main(words) == 0
    assert (found.stdout, found.stderr) == capsys.readouterr()


def test_an_object_file_that_cannot_be_loaded_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kernel.o"
    path.write_bytes(b"no object file")
    monkeypatch.setattr(machine, "places", lambda: (path,))
    monkeypatch.setattr(machine, "_PROCESS", machine._Process(asked=True))
    assert machine.code() is None
    assert machine.code() is None


@pytest.mark.usefixtures("code")
def test_threads_that_ask_at_once_get_one_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second loading would free the memory that another thread's code runs in."""
    threads, loaded = 4, list[machine.Code]()
    load, begin = machine._loaded, Barrier(threads)

    def slowly(data: bytes) -> machine.Code:
        sleep(0.05)
        loaded.append(load(data))
        return loaded[-1]

    monkeypatch.setattr(machine, "_PROCESS", machine._Process())
    monkeypatch.setattr(machine, "_loaded", slowly)

    def ask(_: int) -> machine.Code | None:
        begin.wait(10)
        return machine.code()

    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(ask, range(threads)))
    assert len(loaded) == 1
    assert found == loaded * threads
