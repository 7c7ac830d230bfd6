"""Where the time of a measured step went: by hand, by law, and as the simulator says of its own."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.programs import by_hand, segment, with_exchange
from tests.evidence.measured.timelines import MS, ORIGIN, arrival, header, run_of, step
from twin.engine import simulate
from twin.engine.breakdown import sums
from twin.engine.program import STREAMS, Program, StageMessage
from twin.engine.trace import CAUSES, Trace
from twin.evidence.measured.run_folder import read
from twin.evidence.measured.step import measured_step, pieces, trace
from twin.schedules.base import Schedule
from twin.schedules.dualpipe import DualPipe
from twin.schedules.gpipe import GPipe
from twin.schedules.interleaved import Interleaved
from twin.schedules.one_f_one_b import OneForwardOneBackward
from twin.schedules.zb_h1 import ZeroBubbleH1


def spent(folder: Path, rank: int = 0) -> dict[str, float]:
    """What took time on a rank, in ms."""
    row = trace(read(folder), 1).breakdown_ns[rank]
    return {cause: ns / MS for cause, ns in row.items() if ns}


def test_a_lone_rank_computes_and_what_is_left_is_other(tmp_path: Path) -> None:
    rows = [("compute", "F", 0, 0, 2, 12), ("compute", "B", 0, 0, 13, 33)]
    rows += [("compute", "optimizer", -1, -1, 33, 38)]
    run = run_of(tmp_path, [rows], [(0, 40)])
    assert spent(run) == {"compute": 30, "optimizer": 5, "other": 5}


def test_before_its_message_is_sent_a_pass_waits_in_the_bubble_and_then_for_the_message(
    tmp_path: Path,
) -> None:
    first = [("compute", "F", 0, 0, 0, 10), ("send_forward", "activations", 1, 0, 11, 14)]
    run = run_of(tmp_path, [first, [("compute", "F", 1, 0, 15, 20)]], [(0, 20), (0, 20)])
    assert spent(run, 1) == {"bubble": 11, "exposed_pipeline": 4, "compute": 5}
    # What the first rank sends beside nothing shows as its message; then its step is not over yet.
    assert spent(run, 0) == {"compute": 10, "other": 10}


def test_a_message_that_was_noted_down_where_it_came_ends_there(tmp_path: Path) -> None:
    first = [("compute", "F", 0, 0, 0, 10), ("send_forward", "activations", 1, 0, 10, 11)]
    run = run_of(tmp_path, [first, [("compute", "F", 1, 0, 18, 20)]], [(0, 20), (0, 20)])
    with (run / "timeline" / "rank-00001.jsonl").open("a") as file:
        file.write(json.dumps(arrival(1, "activations", 1, 0, 15)) + "\n")
    assert spent(run, 1) == {"bubble": 10, "exposed_pipeline": 5, "other": 3, "compute": 2}


def test_a_message_that_was_there_before_explains_no_wait(tmp_path: Path) -> None:
    first = [("compute", "F", 0, 0, 0, 1), ("send_forward", "activations", 1, 0, 1, 2)]
    second = [("compute", "W", 1, 3, 2, 10), ("compute", "F", 1, 0, 14, 20)]
    run = run_of(tmp_path, [first, second], [(0, 20), (0, 20)])
    assert spent(run, 1) == {"compute": 14, "other": 6}


def test_a_message_that_nobody_wrote_down_begins_when_its_pass_ended(tmp_path: Path) -> None:
    first, second = [("compute", "F", 0, 0, 0, 10)], [("compute", "F", 1, 0, 13, 20)]
    run = run_of(tmp_path, [first, second], [(0, 20), (0, 20)])
    assert spent(run, 1) == {"bubble": 10, "exposed_pipeline": 3, "compute": 7}


def test_an_all_to_all_begins_when_the_last_rank_of_its_group_is_there(tmp_path: Path) -> None:
    def rows(ready: float) -> list[Any]:
        first = ("compute", "F", 0, 0, 0, ready)
        return [first, ("expert", "dispatch", 0, 0, ready, 20), ("compute", "F", 0, 0, 20, 30)]

    parallel = {"pipeline": 1, "expert": 2}
    run = run_of(tmp_path, [rows(10), rows(16)], [(0, 30), (0, 30)], parallel=parallel)
    assert spent(run, 0) == {"compute": 20, "bubble": 6, "exposed_expert": 4}
    assert spent(run, 1) == {"compute": 26, "exposed_expert": 4}


def test_ranks_that_share_no_experts_do_not_wait_for_each_other(tmp_path: Path) -> None:
    def rows(ready: float) -> list[Any]:
        return [("expert", "dispatch", 0, 0, ready, 20), ("compute", "F", 0, 0, 20, 30)]

    parallel = {"pipeline": 1, "expert": 2}
    rows_of = [rows(0), rows(0), rows(16), rows(16)]
    run = run_of(tmp_path, rows_of, [(0, 30)] * 4, parallel=parallel)
    assert spent(run, 0) == {"compute": 10, "exposed_expert": 20}


def test_a_collective_whose_group_is_unknown_counts_from_its_own_start(tmp_path: Path) -> None:
    def rows(ready: float, group: str | None) -> list[Any]:
        return [
            ("compute", "B", 0, 0, 0, ready),
            ("data", "reduce_scatter_gradients", 0, -1, ready, 20, 64, group),
            ("compute", "optimizer", -1, -1, 20, 30),
        ]

    for group, row in ((None, {"exposed_data": 10}), ("data", {"bubble": 5, "exposed_data": 5})):
        both = [rows(10, group), rows(15, group)]
        run = run_of(tmp_path, both, [(0, 30)] * 2, parallel={"pipeline": 1})
        assert spent(run) == {"compute": 10, "optimizer": 10, **row}


def test_after_the_last_stage_is_done_it_waits_for_the_norm_of_all(tmp_path: Path) -> None:
    def rows(stage: int, ready: float) -> list[Any]:
        return [
            ("compute", "W", stage, 0, 0, ready),
            ("data", "gradient_norm", -1, -1, ready, 22),
            ("compute", "optimizer", -1, -1, 22, 25),
        ]

    run = run_of(tmp_path, [rows(0, 20), rows(1, 12)], [(0, 25), (0, 25)])
    assert spent(run, 0) == {"compute": 20, "exposed_data": 2, "optimizer": 3}
    assert spent(run, 1) == {"compute": 12, "bubble": 8, "exposed_data": 2, "optimizer": 3}


def test_before_its_own_step_a_rank_is_busy_elsewhere_and_after_it_waits(tmp_path: Path) -> None:
    rows = [[("compute", "W", 0, 0, 0, 10)], [("compute", "W", 1, 0, 3, 6)]]
    run = run_of(tmp_path, rows, [(0, 10), (2, 8)])
    assert spent(run, 1) == {"compute": 3, "other": 2 + 1 + 2, "bubble": 2}


def test_host_copies_and_weights_on_their_way_show_behind_the_last_kernel(tmp_path: Path) -> None:
    rows = [("compute", "optimizer", -1, -1, 0, 10), ("to_host", "states_to_host", -1, -1, 9, 12)]
    rows += [("data", "all_gather_weights", -1, -1, 12, 17)]
    run = run_of(tmp_path, [rows], [(0, 18)])
    assert spent(run) == {"optimizer": 10, "exposed_offload": 2, "exposed_data": 5, "other": 1}


Rows = st.lists(
    st.tuples(
        st.sampled_from(["compute", "compute", "expert", "send_forward", "data", "to_host"]),
        st.sampled_from(["F", "B", "I", "W", "dispatch", "optimizer", "activations"]),
        st.integers(-1, 3),
        st.integers(-1, 2),
        st.integers(-3, 50),
        st.integers(0, 20),
    ),
    max_size=25,
)
"""Anything that a rank could write down, sense or not: starts and lengths in ms."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    rows=st.lists(Rows, min_size=2, max_size=4).filter(lambda rows: len(rows) != 3),
    windows=st.lists(st.tuples(st.integers(0, 9), st.integers(20, 60)), min_size=4, max_size=4),
)
def test_every_nanosecond_has_one_cause_and_streams_are_in_order(
    tmp_path: Path, rows: list[list[Any]], windows: list[tuple[int, int]]
) -> None:
    spans = [[(*row[:4], row[4], row[4] + row[5]) for row in own] for own in rows]
    parallel = {"pipeline": 2, "virtual": 2, "schedule": "interleaved_1f1b"}
    parallel["expert"] = len(rows) // 2
    run = read(run_of(tmp_path, spans, windows, parallel=parallel))
    found, shown = measured_step(run, 1), trace(run, 1)
    for rank, row in enumerate(shown.breakdown_ns):
        stretches = pieces(found, rank)
        assert [one[0] for one in stretches] == [0, *(one[1] for one in stretches[:-1])]
        assert stretches[-1][1] == shown.step_ns == sum(row.values())
        assert all(start < end and cause in CAUSES for start, end, cause in stretches)
        assert row == sums(stretches, 0, shown.step_ns)
    _in_order(shown)
    computed = (shown.spans.end - shown.spans.start)[shown.spans.stream == 0].sum()
    told = sum(row["compute"] + row["optimizer"] for row in shown.breakdown_ns)
    assert computed == told


def _in_order(shown: Trace) -> None:
    """Spans are by role, stream and start, inside the step, and none begins before the last one on
    its stream has ended."""
    spans = shown.spans
    columns = (spans.role, spans.stream, spans.start, spans.end)
    rows = list(zip(*(one.tolist() for one in columns), strict=True))
    assert rows == sorted(rows)
    for before, after in pairwise(rows):
        assert before[:2] != after[:2] or before[3] <= after[2]
    assert all(0 <= start < end <= shown.step_ns for _, _, start, end in rows)


KINDS = {"forward": "F", "backward": "B", "backward_weight": "W"}


def written(folder: Path, program: Program, played: Trace, *, noted: bool) -> Path:
    """A simulated step as the trainer would have written it; where `noted`, messages where they
    came, too."""
    chunks = program.schedule.chunk_map(program.stages, program.chunks_per_stage)
    ranks = len(played.roles)
    parallel: dict[str, Any] = {"pipeline": program.stages, "virtual": program.chunks_per_stage}
    parallel["schedule"] = program.schedule.model_dump(mode="json")
    about = {"parallel": parallel, "microbatches": program.microbatches}
    lines = [[header(rank, ranks, rank, **about)] for rank in range(ranks)]
    spans = played.spans
    columns = (spans.role, spans.stream, spans.name, spans.chunk, spans.microbatch)
    rows = zip(*(one.tolist() for one in (*columns, spans.start, spans.end)), strict=True)
    for role, stream, name, chunk, batch, start, end in rows:
        word, place = KINDS.get(played.names[name], played.names[name]), chunk
        if "send" in STREAMS[stream]:
            forward = _is_forward(played, (role, chunk, batch), start)
            word = "activations" if forward else "gradients"
            place = (chunks.after if forward else chunks.before)[chunk]
            came = arrival(1, word, place, batch, 0) | {"at": ORIGIN + end}
            lines[chunks.stage_of[place]] += [came] if noted else []
        known = {"kind": "span", "step": 1, "stream": STREAMS[stream], "name": word}
        about = {"chunk": place, "microbatch": batch}
        lines[role].append(known | about | {"start": ORIGIN + start, "end": ORIGIN + end})
    for role, own in enumerate(lines):
        done = spans.end[(spans.role == role) & (spans.stream == 0)].max()
        own.append({**step(1, 0, 1), "end": ORIGIN + int(done)})
    timeline = folder / "timeline"
    timeline.mkdir(parents=True, exist_ok=True)
    for rank, own in enumerate(lines):
        text = "".join(f"{json.dumps(line)}\n" for line in own)
        (timeline / f"rank-{rank:05d}.jsonl").write_text(text)
    return folder


def _is_forward(played: Trace, place: tuple[int, int, int], start: int) -> bool:
    """Whether a message was made by the forward of its chunk: before its backward has ended."""
    spans, (role, chunk, batch) = played.spans, place
    own = (spans.role == role) & (spans.stream == 0) & (spans.chunk == chunk)
    own &= (spans.microbatch == batch) & (spans.name == played.names.index("backward"))
    return start < int(spans.end[own].max())


@pytest.mark.parametrize(
    ("schedule", "shape"),
    [
        (GPipe(kind="gpipe"), (3, 1, 4)),
        (OneForwardOneBackward(kind="1f1b"), (4, 1, 6)),
        (Interleaved(kind="interleaved_1f1b"), (3, 2, 6)),
        (ZeroBubbleH1(kind="zb_h1"), (3, 1, 6)),
        (DualPipe(kind="dualpipe"), (4, 1, 8)),
    ],
    ids=lambda one: getattr(one, "kind", ""),
)
@pytest.mark.parametrize(("exchanged", "noted"), [(False, True), (True, True), (True, False)])
def test_a_simulated_step_that_is_read_as_a_measured_one_was_spent_alike(
    tmp_path: Path, schedule: Schedule, shape: tuple[int, int, int], exchanged: bool, noted: bool
) -> None:
    def forward(chunk: int) -> Any:
        return with_exchange(90 + chunk, 30) if exchanged else segment(90 + chunk)

    def backward(chunk: int) -> Any:
        halves = with_exchange(200 - chunk, 20, "backward")
        return halves if exchanged else segment(200 - chunk, "backward")

    message = StageMessage(7.0, "nvlink", 3)
    weights = lambda _: segment(40, "backward_weight")  # noqa: E731
    program = by_hand(schedule, shape, forward, backward, message, weights)
    played = simulate(program)
    assert played.repeats == 1
    shown = trace(read(written(tmp_path, program, played, noted=noted)), 1)
    assert shown.step_ns == played.step_ns
    assert list(shown.breakdown_ns) == list(played.breakdown_ns)
