"""Spans are as long as the device took, not as its host took to issue them."""

from __future__ import annotations

import json
from pathlib import Path
from time import time_ns

from reference.parallel.overlap import Running, Turns
from reference.parallel.timeline import Tape

MS = 1_000_000


class Later:
    """A device that has done nothing yet: a mark is what it was given so far."""

    def __init__(self) -> None:
        self.given, self.began, self.restarts = 0, time_ns(), 0

    def mark(self) -> int:
        return self.given

    def ns(self, mark: int) -> int:
        return self.began + mark

    def restart(self) -> None:
        self.restarts += 1


def test_spans_transfers_and_the_step_have_the_times_of_the_device(tmp_path: Path) -> None:
    device = Later()
    tape = Tape(device)  # pyright: ignore[reportArgumentType]  its marks are whole numbers
    tape.open(tmp_path, 0, {})
    tape.step = 1

    def issue(milliseconds: int) -> None:
        device.given += milliseconds * MS

    turns = Turns(tape)
    turns.alone(Running(tape, "F", (0, 0)), lambda: issue(5))
    with tape.transfer("data", "gradients", 8, "data", "all_reduce", "0, 1"):
        issue(3)
    tape.arrival("activations", 0, 0)
    turns.alone(Running(tape, "B", (0, 0)), lambda: issue(7))
    tape.end_step(device.began)
    tape.close()
    text = (tmp_path / "rank-00000.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    since = [
        (one["name"], (one["start"] - device.began) // MS, (one["end"] - device.began) // MS)
        for one in lines
        if one["kind"] == "span"
    ]
    assert since == [("F", 0, 5), ("gradients", 5, 8), ("B", 8, 15)]
    (arrival,) = (one for one in lines if one["kind"] == "arrival")
    (step,) = (one for one in lines if one["kind"] == "step")
    assert (arrival["at"] - device.began, step["end"] - step["start"]) == (8 * MS, 15 * MS)
    assert device.restarts == 1


def test_nothing_is_marked_while_no_file_is_open() -> None:
    device = Later()
    device.given = 1
    assert Tape(device).mark() == 0  # pyright: ignore[reportArgumentType]
