"""A log is read while it is written, cut back, torn, replaced or rotated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evidence.live.made import line, write_log
from twin.evidence.live.trainer_log import Event, Log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def append(path: Path, *rows: object) -> None:
    with path.open("a") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def numbers(log: Log) -> list[int]:
    return [one.step for one in log.steps]


def test_a_log_that_is_not_there_yet_holds_nothing(path: Path) -> None:
    log = Log(path)
    assert not log.look()
    append(path, line(1, 0.5))
    assert log.look()
    assert not log.look()
    assert [(one.step, one.seconds, one.tokens) for one in log.steps] == [(1, 0.5, 100)]


def test_a_torn_line_counts_once_it_is_whole(path: Path) -> None:
    log = Log(path)
    text = json.dumps(line(1, 0.5))
    path.write_text(text[:20])
    log.look()
    assert log.steps == []
    with path.open("a") as file:
        file.write(f"{text[20:]}\n")
    log.look()
    assert numbers(log) == [1]
    assert log.lines.damaged == 0


def test_a_resumed_run_forgets_what_happens_again(path: Path, tmp_path: Path) -> None:
    log = Log(write_log(tmp_path, [1.0] * 10))
    log.look()
    aside = tmp_path / "aside"
    kept = path.read_text().splitlines(keepends=True)[:6]
    aside.write_text("".join(kept))  # as reference/metrics.py does: written aside, moved over
    aside.replace(path)
    append(path, {"kind": "resume", "step": 6}, line(7, 2.0))
    log.look()
    assert numbers(log) == [1, 2, 3, 4, 5, 6, 7]
    assert log.steps[-1].seconds == 2.0
    assert log.steps[-1].fresh == 0  # a process that has just begun
    assert log.events == [Event("resume", 6)]


def test_a_log_that_only_grows_is_cut_back_where_a_step_comes_again(path: Path) -> None:
    log = Log(path)
    append(path, *(line(n, 1.0) for n in range(1, 9)), line(5, 3.0))
    log.look()
    assert numbers(log) == [1, 2, 3, 4, 5]
    assert log.steps[-1].seconds == 3.0
    assert log.cut == 1


def test_a_log_truncated_in_place_and_grown_beyond_is_read_again(path: Path) -> None:
    log = Log(write_log(path.parent, [1.0] * 5))
    log.look()
    with path.open("r+") as file:  # the same inode, longer than before, other content
        file.truncate(0)
        file.writelines(f"{json.dumps(line(n, 7.0))}\n" for n in range(1, 9))
    log.look()
    assert numbers(log) == list(range(1, 9))
    assert {one.seconds for one in log.steps} == {7.0}


def test_a_rotated_log_goes_on(path: Path) -> None:
    log = Log(write_log(path.parent, [1.0] * 5))
    log.look()
    path.rename(path.with_suffix(".1"))
    log.look()
    append(path, line(6, 2.0))
    log.look()
    assert numbers(log) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "text",
    [
        "no JSON\n",
        "[1, 2]\n",
        '{"step": "3", "seconds": 1}\n',
        '{"step": 3, "seconds": null}\n',
        '{"step": 3, "seconds": -1}\n',
        '{"step": 3, "seconds": true}\n',
        '{"step": true, "seconds": 1}\n',
        '{"seconds": 1}\n',
        "\n\xff\n",
        "[" * 100_000 + "\n",
    ],
)
def test_what_is_no_step_is_left_out(path: Path, text: str) -> None:
    append(path, line(1, 1.0))
    with path.open("a") as file:
        file.write(text)
    append(path, line(2, 1.0))
    log = Log(path)
    log.look()
    assert numbers(log) == [1, 2]


def test_events_and_stages_are_told_apart_from_steps(path: Path) -> None:
    rows = [line(1, 1.0), {"kind": "evaluation", "step": 1, "seconds": 9.0}]
    append(path, *rows, {"kind": "stage", "step": 1, "name": "long"}, line(2, 4.0, stage="long"))
    log = Log(path)
    log.look()
    assert [one.stage for one in log.steps] == ["train", "long"]
    assert [one.fresh for one in log.steps] == [0, 0]
    assert [one.kind for one in log.events] == ["evaluation", "stage"]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=30), st.data())
def test_however_a_log_arrives_it_says_the_same(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], data: st.DataObject
) -> None:
    """Read in pieces cut anywhere, a log gives what it gives when it is read at once."""
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    text = "".join(f"{json.dumps(line(step, n + 1.0))}\n" for n, step in enumerate(order)).encode()
    live = Log(path)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        with path.open("ab") as file:
            file.write(text[begin:end])
        live.look()
    whole = Log(path)
    whole.look()
    assert live.steps == whole.steps
    assert numbers(whole) == sorted(set(numbers(whole)))
