"""A run's folder, read: what a killed or resumed trainer leaves is no obstacle, what is damaged is
said with file and line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.evidence.measured.timelines import (
    MS,
    ORIGIN,
    header,
    pipeline,
    run_of,
    span,
    step,
    write,
)
from twin.errors import UsageError
from twin.evidence.measured.run_folder import is_run, read, runs_in

F = ("compute", "F", 0, 0, 0, 10)
ENDLESS = {key: one for key, one in span(1, F).items() if key != "end"}
ONE = {"pipeline": 1}


def alone(folder: Path, *lines: dict[str, Any]) -> Path:
    """A run of one rank, from the lines behind its header."""
    return write(folder, [[header(0, 1, 0), *lines]])


def file_of(folder: Path, rank: int = 0) -> Path:
    return folder / "timeline" / f"rank-{rank:05d}.jsonl"


def refused(folder: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(folder)
    return caught.value


def test_a_run_is_read_from_its_folder_or_from_the_timeline_in_it(piped: Path) -> None:
    for folder in (piped, piped / "timeline"):
        run = read(folder)
        assert run.steps == (1, 2, 3, 4, 5)
        assert (run.name, run.folder) == ("run", piped)
        assert [len(rank.of(2)) for rank in run.ranks] == [14, 14]
        assert run.layout.stage == (0, 1)


def test_runs_are_found_by_their_timelines_the_newest_first(tmp_path: Path) -> None:
    for at, name in enumerate(("old", "new")):
        pipeline(tmp_path / name, steps=1)
        for rank in (0, 1):
            os.utime(file_of(tmp_path / name, rank), (at, at))
    (tmp_path / "empty").mkdir()
    assert [one.name for one in runs_in(tmp_path)] == ["new", "old"]
    assert not is_run(tmp_path / "empty")
    assert runs_in(tmp_path / "none") == ()


def test_a_torn_last_line_and_a_step_without_an_end_are_passed_over(tmp_path: Path) -> None:
    run = alone(tmp_path, span(1, F), step(1, 0, 12), span(2, ("compute", "F", 0, 0, 20, 30)))
    with file_of(run).open("a") as file:
        file.write(json.dumps(step(2, 20, 35))[:-9])
    assert read(run).steps == (1,)


def test_a_resumed_run_goes_on_behind_a_torn_line(tmp_path: Path) -> None:
    run = alone(tmp_path, span(1, F), step(1, 0, 12))
    with file_of(run).open("a") as file:
        file.write('{"kind": "span", "ste')
        file.write(json.dumps(header(0, 1, 0)) + "\n" + json.dumps(step(2, 50, 60)) + "\n")
    assert read(run).steps == (1, 2)


def test_what_was_run_again_counts_once(tmp_path: Path) -> None:
    again = ("compute", "F", 0, 0, 100, 130)
    lines = [step(1, 0, 12), span(2, ("compute", "F", 0, 0, 20, 30)), step(2, 20, 32)]
    lines += [span(3, ("compute", "F", 0, 0, 40, 50)), step(3, 40, 52)]
    run = alone(tmp_path, *lines, header(0, 1, 0), span(2, again), step(2, 100, 140))
    assert read(run).steps == (1, 2)
    assert read(run).step_ns(2) == 40 * MS
    assert len(read(run).ranks[0].of(2)) == 1
    assert len(read(run).ranks[0].of(3)) == 0


def test_what_was_written_under_another_layout_is_left_out(tmp_path: Path) -> None:
    """Resumed on one rank what ran on two: the second rank's file is stale."""
    pipeline(tmp_path, steps=2)
    with file_of(tmp_path).open("a") as file:
        lines = [header(0, 1, 0, parallel=ONE), span(3, F), step(3, 500, 512)]
        file.write("".join(f"{json.dumps(line)}\n" for line in lines))
    run = read(tmp_path)
    assert run.steps == (3,)
    assert len(run.ranks) == 1


def test_steps_count_once_every_rank_has_finished_them(tmp_path: Path) -> None:
    first = [header(0, 2, 0, parallel={"pipeline": 2}), step(1, 0, 9), step(2, 10, 19)]
    run = write(tmp_path, [first, [header(1, 2, 1, parallel={"pipeline": 2}), step(1, 1, 9)]])
    assert read(run).steps == (1,)


def test_lines_of_other_kinds_and_further_keys_are_passed_over(tmp_path: Path) -> None:
    more = {"kind": "weather", "sun": True}
    run = alone(tmp_path, more, {**span(1, F), "thread": 7}, step(1, 0, 12))
    assert len(read(run).ranks[0].of(1)) == 1


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("{oops", "TW331", "not JSON"),
        ("[1, 2]", "TW331", "be an object"),
        (json.dumps({**span(1, F), "start": "now"}), "TW331", "`start`"),
        (json.dumps({**span(1, F), "start": 1.5}), "TW331", "`start`"),
        (json.dumps({**span(1, F), "stream": "river"}), "TW331", "`stream`"),
        (
            json.dumps(ENDLESS),
            "TW331",
            "`end`",
        ),
        (json.dumps({**span(1, F), "end": ORIGIN - 1}), "TW335", "`F` ends before it begins"),
        (json.dumps({**step(1, 5, 5)}), "TW335", "step 1 ends"),
        (json.dumps({**header(0, 1, 0), "version": 2}), "TW332", "version 2"),
        (json.dumps({**header(0, 1, 0), "clock": "rdtsc"}), "TW332", "rdtsc"),
        (json.dumps({**header(3, 1, 0)}), "TW332", "rank 3 of 1"),
    ],
)
def test_a_damaged_line_is_said_with_its_file_and_number(
    tmp_path: Path, line: str, code: str, says: str
) -> None:
    run = alone(tmp_path, span(1, F))
    with file_of(run).open("a") as file:
        file.write(f"{line}\n{json.dumps(step(1, 0, 12))}\n")
    (problem,) = refused(run).problems
    assert problem.code == code
    assert says in problem.message
    assert problem.origin is not None
    assert (problem.origin.file, problem.origin.line) == (str(file_of(run)), 3)
    assert line[:40] in str(refused(run))


def test_a_file_without_a_header_is_refused(tmp_path: Path) -> None:
    run = write(tmp_path, [[span(1, F), step(1, 0, 12)]])
    assert refused(run).problems[0].code == "TW332"
    file_of(run).write_text("")
    assert "has no header" in str(refused(run))


def test_a_folder_without_a_timeline_is_refused(tmp_path: Path) -> None:
    assert "holds no timeline" in str(refused(tmp_path))
    assert "there is no folder" in str(refused(tmp_path / "none"))
    assert refused(tmp_path).problems[0].code == "TW330"


def test_missing_or_strange_ranks_are_refused(tmp_path: Path) -> None:
    run = pipeline(tmp_path)
    text = file_of(run, 1).read_text()
    file_of(run, 1).write_text(text.replace("kimi-k2-nano", "another"))
    assert "another model or layout" in str(refused(run))
    file_of(run, 1).write_text(text.replace('"rank": 1', '"rank": 0'))
    assert "states that it is of rank 0" in str(refused(run))
    file_of(run, 1).write_text(text.replace('"stage": 1', '"stage": 0'))
    assert "stages [0, 0]" in str(refused(run))
    file_of(run, 1).unlink()
    assert "no timeline of rank 1" in str(refused(run))
    assert refused(run).problems[0].code == "TW333"


@pytest.mark.parametrize(
    ("parallel", "says"),
    [
        ({"pipeline": 0}, "`pipeline`"),
        ({"pipeline": 3}, "cannot be laid out"),
        ({"expert": 4}, "cannot be laid out"),
        ({"schedule": "zigzag"}, "no schedule 'zigzag'"),
        ({"order": ["data"]}, "the axis order"),
        ({"schedule": {"kind": "dualpipe"}, "pipeline": 1}, "its schedule cannot have run"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(tmp_path: Path, parallel: dict, says: str) -> None:
    lines = [[header(rank, 2, 0, parallel=parallel), step(1, 0, 9)] for rank in (0, 1)]
    assert says in str(refused(write(tmp_path, lines)))


def test_ranks_that_go_by_different_clocks_are_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path, [[], []], [(0, 10), (10, 20)])
    assert refused(run).problems[0].code == "TW336"


def test_a_run_that_finished_no_step_says_so(tmp_path: Path) -> None:
    assert refused(alone(tmp_path, span(1, F))).problems[0].code == "TW334"


def test_a_large_file_is_read_in_blocks(tmp_path: Path) -> None:
    lines = [span(1, ("compute", "F", 0, one, one, one + 1)) for one in range(20_500)]
    run = read(alone(tmp_path, *lines, step(1, 0, 20_501)))
    assert len(run.ranks[0].of(1)) == 20_500
