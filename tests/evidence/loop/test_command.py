"""What is typed, and what the reference is started with."""

from __future__ import annotations

from pathlib import Path

from tests.command import Command
from twin.evidence.loop.layouts import find
from twin.evidence.loop.trainer import BEFORE_OTHERS, FIRST, command


def test_layouts_are_not_run_unless_that_is_asked_for(twin_command: Command) -> None:
    found = twin_command("validate", "pp2-1gbps")
    assert found.code == 2
    assert "add --reference" in found.err


def test_published_rows_and_layouts_are_two_questions(twin_command: Command) -> None:
    found = twin_command("validate", "--reference", "--suite", "rows.yaml")
    assert found.code == 2
    assert "--suite is for published rows" in found.err


def test_links_have_the_rate_of_the_network_card() -> None:
    (layout,) = find(["pp4-dp2-ep2-5gbps"])
    words = command(layout.scenario.cluster, Path("x.json"), shaped=True)
    assert words[: len(FIRST)] == [*FIRST]
    assert words[len(FIRST) + 3 :] == [
        *("--nodes", "4", "--ranks-per-node", "2", "--rate", "625MB/s"),
        *("--", "reference.train", "x.json", "--fresh"),
    ]


def test_on_loopback_no_rate_is_asked_for_and_bare_ranks_have_cores() -> None:
    (layout,) = find(["bare-pp2-100mbps"], shaped=False)
    words = command(layout.scenario.cluster, Path("x.json"), shaped=False, pinned=True)
    assert words[: len(BEFORE_OTHERS)] == [*BEFORE_OTHERS]
    rest = words[len(BEFORE_OTHERS) + 3 :]
    assert rest[:6] == ["--nodes", "2", "--ranks-per-node", "1", "--loopback", "--pin"]
