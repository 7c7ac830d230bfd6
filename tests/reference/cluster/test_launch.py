"""Ranks that are started together and end together."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from reference.cluster.__main__ import main
from reference.cluster.launch import LaunchResult, RankProgram, launch
from reference.cluster.namespaces import LocalCluster

Write = Callable[..., RankProgram]
TWO = LocalCluster(nodes=2)


def over_loopback(program: RankProgram, cluster: LocalCluster = TWO) -> tuple[LaunchResult, float]:
    """How it ended, and after how many seconds; nothing may be left."""
    begin = time.monotonic()
    outcome = launch(cluster, program, shaped=False)
    taken = time.monotonic() - begin
    assert mp.active_children() == []
    return outcome, taken


def test_ranks_find_what_torchrun_would_set(program: Write, tmp_path: Path) -> None:
    text = """
        names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        Path(sys.argv[1], f"{rank}.txt").write_text(" ".join(os.environ[name] for name in names))
        assert torch.get_num_threads() == 1
    """
    cluster = LocalCluster(nodes=2, ranks_per_node=2)
    outcome, _ = over_loopback(program(text, str(tmp_path)), cluster)
    assert outcome == LaunchResult(0)
    found = [(tmp_path / f"{rank}.txt").read_text() for rank in range(4)]
    assert found == ["0 0 0 4 2", "1 1 0 4 2", "2 0 1 4 2", "3 1 1 4 2"]


@pytest.mark.usefixtures("links")
def test_ranks_in_namespaces_speak_over_their_own_cards(program: Write, tmp_path: Path) -> None:
    text = """
        total = torch.tensor([float(rank)])
        dist.all_reduce(total)
        facts = [os.environ["GLOO_SOCKET_IFNAME"], os.environ["CLUSTER_RATE"], total.item()]
        Path(sys.argv[1], f"{rank}.txt").write_text(repr(facts))
    """
    cluster = LocalCluster(nodes=2, ranks_per_node=2, rate=1e8)
    assert launch(cluster, program(text, str(tmp_path))) == LaunchResult(0)
    found = [(tmp_path / f"{rank}.txt").read_text() for rank in range(4)]
    cards = ["nic0", "nic1", "nic0", "nic1"]
    assert found == [repr([card, "100MB/s", 6.0]) for card in cards]


def test_a_rank_that_raises_ends_the_others_and_is_named(program: Write) -> None:
    text = """
        if rank == 1:
            raise ValueError("boom")
        dist.all_reduce(torch.zeros(1))
    """
    outcome, taken = over_loopback(program(text))
    assert taken < 10
    assert outcome.code == 1
    assert outcome.fault is not None
    assert str(outcome.fault) == "rank 1 on node 1 ended with exit code 1"
    assert outcome.fault.last_lines[-1] == "ValueError: boom"


def test_who_only_lost_another_is_not_at_fault(program: Write) -> None:
    text = """
        if rank == 1:
            dist.destroy_process_group()
            time.sleep(1.0)  # the other is gone by now
            raise ValueError("boom")
        dist.all_reduce(torch.zeros(1))
    """
    outcome, _ = over_loopback(program(text))
    assert outcome.fault is not None
    assert outcome.fault.rank == 1


def test_a_killed_rank_ends_those_that_notice_nothing(program: Write) -> None:
    text = """
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(100)
    """
    outcome, taken = over_loopback(program(text))
    assert taken < 10
    assert str(outcome.fault) == "rank 1 on node 1 ended with signal SIGKILL"
    assert outcome.code == 1


def test_the_exit_code_of_the_rank_at_fault_is_the_programs(program: Write) -> None:
    outcome, _ = over_loopback(program("sys.exit(5 * rank)"))
    assert outcome.code == 5


def test_a_signal_reaches_every_rank_once_and_lets_it_end_in_order(
    program: Write, tmp_path: Path
) -> None:
    text = """
        came = []
        signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
        Path(sys.argv[1], f"{rank}.ready").touch()
        while not came:
            time.sleep(0.01)
        time.sleep(0.3)
        Path(sys.argv[1], f"{rank}.txt").write_text(str(came))
    """

    def ask() -> None:
        while len(list(tmp_path.glob("*.ready"))) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = Thread(target=ask)
    asking.start()
    outcome, _ = over_loopback(program(text, str(tmp_path)))
    asking.join()
    assert outcome == LaunchResult(143)
    assert [(tmp_path / f"{rank}.txt").read_text() for rank in (0, 1)] == ["[15]", "[15]"]


def test_the_command_says_whose_fault_it_was(
    program: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    text = """
        print("hello from", rank)
        if rank == 1:
            sys.exit("the disk is full")
        time.sleep(100)
    """
    assert main(["--loopback", "--", program(text).name]) == 1
    out, err = capfd.readouterr()
    assert out == "hello from 0\n"
    assert "rank 1 on node 1 ended with exit code 1; the others were ended\n" in err
    assert "  hello from 1\n  the disk is full\n" in err


def test_without_links_the_command_says_so_and_uses_loopback(
    program: Write, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reference.cluster.__main__.obstacle", lambda: "no root")
    text = """
        if rank == 0:
            print(os.environ["GLOO_SOCKET_IFNAME"], repr(os.environ["CLUSTER_RATE"]), sys.argv[1:])
    """
    assert main(["--rate", "1Gbps", program(text).name, "nano", "--set", "a=1"]) == 0
    out, err = capfd.readouterr()
    assert out == "lo '' ['nano', '--set', 'a=1']\n"
    assert "no links of a declared rate here (no root); the ranks talk over loopback" in err


def test_all_that_is_wrong_with_a_command_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "0", "--rate", "10", "nosuch.module"]) == 2
    text = capsys.readouterr().err
    assert [code in text for code in ("--nodes: TW321", "--rate: TW321", "TW322")] == [True] * 3
    assert main(["nosuch.py"]) == 2


def test_the_timing_program_counts_what_crosses_cards(links: None, tmp_path: Path) -> None:
    del links
    path = tmp_path / "rows.csv"
    words = ["--patterns", "reduce_scatter,reduce_scatter_posted", "--sizes", "1MiB"]
    program = RankProgram(
        "reference.cluster.timing", [*words, "--seconds", "0", "--output", str(path)]
    )
    assert launch(LocalCluster(nodes=4, rate=1e9), program) == LaunchResult(0)
    columns, *rows = (line.split(",") for line in path.read_text().splitlines())
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    shares = [json.loads(row["sent"]) / 2**20 for row in found]
    assert shares == pytest.approx([1.5, 0.75], rel=0.1)  # gloo's is an all-reduce
