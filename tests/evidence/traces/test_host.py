"""Traces of ranks without a GPU: what annotations name is what ran, else operators."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from reference.parallel.overlap import Running, Turns
from reference.parallel.timeline import Tape
from tests.evidence.traces.traces import event, trace_file
from twin.evidence.traces.accounted import accounted
from twin.evidence.traces.answer import read_rank
from twin.evidence.traces.meetings import meetings


def note(name: str, start: float, end: float, thread: int = 1) -> dict[str, object]:
    return event("user_annotation", name, thread, start, end)


def test_passes_and_transfers_are_what_annotations_name_whatever_is_inside(tmp_path: Path) -> None:
    first = [
        note("ProfilerStep#4", 0, 100),
        note("forward, chunk 0, micro-batch 0", 10, 30),
        event("cpu_op", "aten::mm", 1, 12, 20),
        note("pipeline: activations [0 > 1]", 31, 35, thread=2),
        note("expert: dispatch [0, 1]", 40, 60),  # the other rank comes at 50
        note("gloo:send", 40, 60),
        event("cpu_op", "aten::copy_", 1, 41, 42),
        note("backward, chunk 0, micro-batch 0", 60, 90),
        note("optimizer", 90, 95),
    ]
    second = [
        note("ProfilerStep#4", 0, 100),
        note("pipeline: activations [0 > 1]", 0, 36, thread=2),  # its sender begins at 31
        note("forward, chunk 1, micro-batch 0", 37, 50),
        note("expert: dispatch [0, 1]", 50, 60),
    ]
    ranks = [
        read_rank(trace_file(tmp_path / f"{at}.json", events, rank=at))[0]
        for at, events in enumerate((first, second))
    ]
    rows = [
        {cause: ns // 1000 for cause, ns in accounted(rank, 4, begun=begun).row.items() if ns}
        for rank, begun in zip(ranks, meetings(ranks).begun, strict=True)
    ]
    assert rows[0] == {
        "compute": 50,
        "exposed_pipeline": 4,
        "bubble": 10,
        "exposed_expert": 10,
        "optimizer": 5,
        "other": 21,
    }
    assert rows[1] == {
        "bubble": 31,
        "exposed_pipeline": 5,
        "compute": 13,
        "exposed_expert": 10,
        "other": 41,
    }


def test_without_annotations_operators_and_the_library_s_collectives_ran(tmp_path: Path) -> None:
    events = [
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 1, 0, 50),
        event("cpu_op", "aten::mm", 1, 0, 50),
        event("cpu_op", "aten::t", 1, 1, 2),  # inside
        note("gloo:all_reduce", 40, 70, thread=2),
        event("cpu_op", "aten::add", 1, 80, 90),
    ]
    (rank,) = read_rank(trace_file(tmp_path / "t.json", events))
    found = accounted(rank)
    assert {cause: ns // 1000 for cause, ns in found.row.items() if ns} == {
        "compute": 60,
        "exposed_data": 20,
        "other": 10,
    }
    assert not found.unknown_ns
    assert {one.kind: one.count for one in found.kernels} == {
        "product": 1,
        "collective": 1,
        "elementwise": 1,
    }


def test_what_a_tape_notes_is_read_back_from_torch_s_own_trace(tmp_path: Path) -> None:
    tape = Tape()
    tape.profiled = True
    turns = Turns(tape)
    a = torch.ones(64, 64)
    with profile(activities=[ProfilerActivity.CPU]) as trace:
        for name in ("F", "I", "W"):
            turns.alone(Running(tape, name, (0, 0)), lambda: a @ a)
        with tape.transfer("data", "gradients", 8, "data", "all_reduce", "0, 1"):
            torch.mm(a, a)
    trace.export_chrome_trace(str(tmp_path / "t.json"))
    (rank,) = read_rank(tmp_path / "t.json")
    names = [rank.names[name] for name in rank.name.tolist()]
    assert names == ["forward", "backward_input", "backward_weight", "data: gradients"]
    assert rank.backward.tolist() == [False, True, True, False]
    assert rank.told[int(rank.says[3])].members == 2
    found = accounted(rank)
    assert found.row["exposed_data"] == pytest.approx(rank.end[3] - rank.start[3])
    assert {one.kind for one in found.kernels} == {"pass", "collective"}
