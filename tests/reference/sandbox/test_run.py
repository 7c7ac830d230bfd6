"""Runs: what goes in, what comes out, many at once, and a workspace over several commands."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
from pathlib import Path

import pytest

from reference.sandbox import cgroup
from reference.sandbox.__main__ import main
from reference.sandbox.inside import kernel
from reference.sandbox.inside.files import Entry, packed, unpacked
from reference.sandbox.isolation import Means, own_user, plain
from reference.sandbox.job import PYTHON, Command, Output, RunLimits, python_text
from reference.sandbox.run import Session, best, run, run_many
from twin.errors import UsageError


def test_files_go_in_and_come_out_as_asked() -> None:
    text = """
import os, sys
open("out.bin", "wb").write(open("data/in.bin", "rb").read()[::-1] + sys.stdin.buffer.read())
os.symlink("/etc/passwd", "link")
print(sorted(os.environ), os.access("tool", os.X_OK), os.getcwd() == os.environ["HOME"])
raise SystemExit(3)
"""
    files = {"data/in.bin": b"\x00\xff", "tool": Entry("file", b"#!", executable=True)}
    outcome = run(python_text(text, files, stdin=b"!", keep=("out*", "link")))
    assert (outcome.ended, outcome.code, outcome.ok) == ("exit", 3, False)
    assert outcome.stdout.text == "['HOME', 'LANG', 'PATH', 'TMPDIR'] True True\n"
    assert dict(outcome.files) == {
        "out.bin": Entry("file", b"\xff\x00!"),
        "link": Entry("link", b"/etc/passwd"),
    }
    assert outcome.read("out.bin") == b"\xff\x00!"
    assert outcome.read("link") is None
    assert outcome == run(python_text(text, files, stdin=b"!", keep=("out*", "link")))


def test_long_output_keeps_its_ends_and_its_length() -> None:
    limits = RunLimits.model_validate({"output": "100B"})
    outcome = run(python_text("print('a' * 70 + 'b' * 70, end='')"), limits)
    assert outcome.stdout == Output(b"a" * 50, b"b" * 50, 140)
    assert "[... 40 bytes left out ...]" in outcome.stdout.text
    assert run(python_text("print('c' * 100, end='')"), limits).stdout.text == "c" * 100


def test_a_program_that_is_not_there_is_an_outcome() -> None:
    outcome = run(Command(("/no/such/program",)))
    assert outcome.code == 127
    assert "No such file" in outcome.stderr.text


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../b", "a//b", "", "a\0b"])
def test_a_path_that_leaves_the_folder_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="TW540"):
        run(Command((PYTHON,), files={path: b""}))


def test_what_cannot_be_protected_does_not_run() -> None:
    flags = 1 << 7  # CLONE_NEWTIME cannot be had by unshare together with what follows
    promised = Means(root=os.geteuid() == 0, namespaces=flags | 1, landlock=0, filter=False)
    with pytest.raises(UsageError, match="TW541"):
        run(python_text("print('ran')"), isolation=plain(promised))


def test_many_run_in_order_and_no_more_than_allowed_at_once() -> None:
    chosen = best()
    now, most, lock = [0], [0], threading.Lock()

    class Counted:
        """The isolation's place, counted while it is open."""

        def __init__(self, readable: object) -> None:
            self.place = chosen.open(readable)  # type: ignore[arg-type]

        def __enter__(self) -> object:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            return self.place.__enter__()

        def __exit__(self, *words: object) -> object:
            with lock:
                now[0] -= 1
            return self.place.__exit__(*words)  # type: ignore[arg-type]

    from dataclasses import replace  # noqa: PLC0415

    counted = replace(chosen, open=Counted)  # type: ignore[arg-type]
    outcomes = run_many(
        [python_text(f"print({at})") for at in range(6)],
        at_once=3,
        isolation=counted,
    )
    assert [one.stdout.text for one in outcomes] == [f"{at}\n" for at in range(6)]
    assert most[0] == 3


def test_a_session_keeps_its_files_and_an_earlier_state_can_be_gone_back_to() -> None:
    start = Session().write({"count": "1", "sub/deep": "x"})
    text = "n = int(open('count').read()); open('count', 'w').write(str(n + 1)); print(n)"
    first, one = start.run(python_text(text))
    second, two = one.run(python_text(text))
    assert (first.stdout.text, second.stdout.text) == ("1\n", "2\n")
    assert (two.read("count"), one.read("count"), start.read("count")) == (b"3", b"2", b"1")
    assert two.read("sub/deep") == b"x"
    _, linked = start.run(Command((PYTHON, "-c", "import os; os.symlink('/etc/passwd', 'out')")))
    assert linked.read("out") is None
    again, _ = linked.run(Command((PYTHON, "-c", "import os; print(os.readlink('out'))")))
    assert again.stdout.text == "/etc/passwd\n"


def test_messages_survive_the_wire_and_cut_ones_are_refused() -> None:
    files = {"a": Entry("file", b"\x00" * 9, executable=True), "b": Entry("folder")}
    message = packed({"x": "\u20ac"}, files.items())
    assert unpacked(message) == ({"x": "\u20ac"}, files)
    with pytest.raises(ValueError, match="ends early"):
        unpacked(message[:-1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives users")
def test_two_runs_at_one_time_have_two_users() -> None:
    with own_user() as one, own_user() as other:
        assert one != other
        assert None not in (one, other)
    with own_user() as again:
        assert again == one


def test_the_command_probes_and_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--probe", "--json"]) == 0
    probed = json.loads(capsys.readouterr().out)
    assert probed["isolation"] == best().kind
    assert main(["--probe"]) == 0
    assert "no_network" in capsys.readouterr().out
    (tmp_path / "one.py").write_text("print('one')")
    assert main([str(tmp_path / "one.py")]) == 0
    assert json.loads(capsys.readouterr().out)["stdout"] == "one\n"
    (tmp_path / "two.py").write_text("raise SystemExit(9)")
    assert main([str(tmp_path / "two.py")]) == 4
    assert main([]) == 2
    assert main([str(tmp_path / "none.py")]) == 2


@pytest.mark.benchmark
def test_how_long_hundreds_take() -> None:
    import time  # noqa: PLC0415

    began = time.perf_counter()
    # On two cores they wait for their start, and for each other.
    limits = RunLimits.model_validate({"wall": "120s"})
    outcomes = run_many([python_text("print(1)")] * 300, limits, at_once=300)
    took = time.perf_counter() - began
    assert all(one.ok for one in outcomes)
    print(f"300 runs at once, {best().kind}: {took:.1f} s, {took / 300 * 1e3:.0f} ms each")


def test_a_memory_group_ends_with_its_run_and_abandoned_ones_are_swept(monkeypatch) -> None:
    place = cgroup.parent()
    if place is None:
        pytest.skip("no memory cgroup can be made here")
    with cgroup.memory_group(1 << 24) as made:
        assert made is not None
        group, _ = made
        assert not group.killed()
        cgroup._sweep(place[0])
        assert group.folder.is_dir()
    assert not group.folder.exists()
    with cgroup.memory_group(1 << 24) as made:  # of its own: runs beside this test have theirs
        assert made is not None
        left = cgroup._made(made[0].folder, place[1]).folder
        monkeypatch.setattr(cgroup, "_ABANDONED_S", -1.0)
        cgroup._sweep(made[0].folder)
        assert not left.exists()


@pytest.mark.skipif(not kernel.filters(), reason="needs seccomp")
def test_a_filtered_process_changes_no_limits_but_its_own() -> None:
    """Without root its supervisor has the same user, whose limits and priority the kernel lets it
    change."""
    others = (
        lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, (9, 9)),
        lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
        lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
    )
    child = os.fork()
    if child == 0:
        try:
            other = os.fork()
            if other == 0:
                signal.pause()
            kernel.no_new_privileges()
            kernel.filter_calls(sockets=False)
            for change in others[1:]:
                change(0)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for change in others:
                with pytest.raises(PermissionError):
                    change(other)
            os.kill(other, signal.SIGKILL)
            os._exit(0)
        finally:
            os.kill(other, signal.SIGKILL)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
