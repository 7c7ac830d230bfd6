"""`twin run --seal`, `twin track` and `twin seals`: what they print, keep, and end with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from tests.command import Command
from tests.evidence.live.made import line, noise, write_config, write_log
from twin.evidence.live.seals import keep

SECONDS = 2.0
MAIN = "import sys; from twin.cli.main import main; sys.exit(main())"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of 100 steps that is done."""
    write_config(tmp_path / "run", 100)
    write_log(tmp_path / "run", SECONDS * noise(100, sigma=0.02))
    return tmp_path / "run"


def yesterday() -> datetime:
    return datetime.now(UTC) - timedelta(days=1)


def test_a_prediction_is_sealed_once(twin_command: Command, tmp_path: Path, seals: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    first = twin_command("run", "small.yaml", "--seal", "--quiet")
    assert first.code == 0
    (file,) = seals.iterdir()
    assert f"Sealed as {file.name[11:19]} in {file}" in first.out
    assert "without an interval" in first.out
    again = json.loads(twin_command("run", "small.yaml", "--seal", "--json").out)
    assert again["seal"]["new"] is False
    assert again["seal"]["file"] == str(file)
    assert (
        again["kpis"]["step_seconds"]
        == json.loads(file.read_text())["prediction"]["kpis"]["step_seconds"]
    )
    other = twin_command("run", "small.yaml", "--seal", "--output", "there", "--quiet")
    assert "Sealed as" in other.out
    assert len(list(Path("there").iterdir())) == 1


def test_what_cannot_be_sealed_is_a_usage_error(twin_command: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    assert twin_command("run", "small.yaml", "--output", "there").code == 2
    assert twin_command("run", "kimi-k2-weight-update-16xh20", "--seal").code == 2


@pytest.mark.parametrize(("predicted", "code"), [(2.05, 0), (4.0, 5)])
def test_a_run_that_is_done_is_checked(
    twin_command: Command, run: Path, sealed, predicted: float, code: int
) -> None:
    one, _, _ = keep(sealed(predicted, 1.2, when=yesterday()))
    done = twin_command("track", str(run), "--against", one.digest[:8], "--once")
    assert done.code == code, done.err
    assert ("inside its interval" in done.out) is (code == 0)
    listed = json.loads(twin_command("seals", "--json").out)
    (check,) = listed["seals"][0]["checks"]
    assert check["hit"] is (code == 0)
    assert check["blind"] is True
    assert listed["hit_rate"]["counted"] == 1
    assert listed["hit_rate"]["share"] == float(code == 0)
    twin_command("track", str(run), "--against", one.digest[:8], "--once")  # nothing new to say
    assert len(json.loads(twin_command("seals", "--json").out)["seals"][0]["checks"]) == 1


def test_a_run_that_goes_on_is_checked_when_that_is_asked(
    twin_command: Command, run: Path, sealed
) -> None:
    write_config(run, 500)
    keep(sealed(2.05, 1.2, when=yesterday()))
    name = next(iter((run.parent / "seals").iterdir())).name
    twin_command("track", str(run), "--against", name, "--once")
    assert json.loads(twin_command("seals", "--json").out)["seals"][0]["checks"] == []
    document = json.loads(
        twin_command("track", str(run), "--against", name, "--json", "--check").out
    )
    assert document["check"]["kept"]
    assert document["remaining"]["steps"] == 400
    assert len(json.loads(twin_command("seals", "--json").out)["seals"][0]["checks"]) == 1


def test_a_prediction_that_came_with_the_run_is_kept_with_its_check(
    twin_command: Command, run: Path, sealed
) -> None:
    one = sealed(2.05, 1.2, when=yesterday())
    (run / "prediction.json").write_text(json.dumps(one.to_json()))
    assert "inside its interval" in twin_command("track", str(run), "--once").out
    assert "1 of 1 sealed intervals held" in twin_command("seals").out


def test_a_changed_seal_is_refused_everywhere(
    twin_command: Command, run: Path, sealed, seals: Path
) -> None:
    one, path, _ = keep(sealed(2.05, 1.2))
    path.chmod(0o644)
    path.write_text(path.read_text().replace("2.05", "2.5"))
    for words in (
        ("track", str(run), "--once", "--against", str(path)),
        ("seals", "show", str(path)),
        ("seals", "check", str(path), "--measured", "2s", "--source", "me"),
        ("seals",),
    ):
        done = twin_command(*words)
        assert done.code == 2, words
        assert "TW342" in done.err
        assert path.name in done.err
    (run / "prediction.json").write_text(path.read_text())
    assert "TW342" in twin_command("track", str(run), "--once").err
    assert not (seals / "checks.jsonl").exists()
    assert one.digest


def test_a_number_is_checked_with_its_source(twin_command: Command, sealed) -> None:
    one, _, _ = keep(sealed(2.0, 1.2))
    name = one.digest[:8]
    words = ("seals", "check", name, "--measured", "2.1s", "--source", "table 5")
    assert "inside 1.67 s to 2.40 s" in twin_command(*words).out
    assert "not known to be sealed before" in twin_command("seals").out
    twin_command(*words[:-1], "ours", "--began", "2027-02-01T00:00:00+00:00")
    assert "1 of 1 sealed intervals held" in twin_command("seals").out
    shown = twin_command("seals", "show", name).out
    assert "table 5" in shown
    assert "Step time" in shown


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("track", "nowhere", "--once"), 2),
        (("track", "nowhere", "--json"), 2),
        (("track", ".", "--once", "--against", "nothing"), 2),
        (("seals", "show"), 2),
        (("seals", "list", "x"), 2),
        (("seals", "show", "nothing"), 2),
        (("seals", "check", "x"), 2),
        (("seals", "check", "x", "--measured", "2s"), 2),
        (("seals",), 0),
        (("track", ".", "--once"), 0),
    ],
)
def test_exit_codes(twin_command: Command, words: tuple[str, ...], code: int) -> None:
    assert twin_command(*words).code == code


@pytest.mark.parametrize("text", ["2", "two", "-1s", "0s", "1e999s"])
def test_a_measured_time_has_a_unit_and_is_one(twin_command: Command, sealed, text: str) -> None:
    one, _, _ = keep(sealed(2.0))
    done = twin_command("seals", "check", one.digest, "--source", "me", f"--measured={text}")
    assert done.code == 2
    assert "TW346" in done.err


def test_a_log_that_has_no_step_yet_is_waited_for(twin_command: Command, tmp_path: Path) -> None:
    done = twin_command("track", str(tmp_path), "--once", "--quiet")
    assert done.out == f"Waiting for the first step of `{tmp_path}`.\n"


def following(run: Path, *words: str) -> subprocess.Popen[str]:
    """`twin track` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, "track", str(run), "--every", "0.1", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TWIN_SEALS": str(run.parent / "seals")},
        # A shell's background job ignores interrupts, and so would its children.
        preexec_fn=_interruptible,  # noqa: PLW1509 - it takes no lock
    )


def _interruptible() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_process_that_writes_is_followed_to_its_end(tmp_path: Path) -> None:
    """Its folder appears later, its lines come torn, it resumes once."""
    run = tmp_path / "later" / "run"
    follower = following(run)
    assert follower.stdout is not None
    assert follower.stdout.readline().startswith("Waiting")
    write_config(run, 40)
    with (run / "metrics.jsonl").open("a", buffering=1) as file:
        for step in [*range(1, 21), *range(16, 41)]:
            text = json.dumps(line(step, 0.5))
            file.write(text[:10])
            file.flush()
            time.sleep(0.01)
            file.write(f"{text[10:]}\n")
    out, err = follower.communicate(timeout=60)
    assert follower.returncode == 0, err
    assert any(one.startswith("Done: step 40 of 40") for one in out.splitlines())
    assert "Traceback" not in err


def test_an_interrupt_ends_it_with_130_and_without_a_traceback(run: Path) -> None:
    write_config(run, 1000)
    follower = following(run)
    assert follower.stdout is not None
    assert "Step 100 of 1,000" in follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    _, err = follower.communicate(timeout=30)
    assert follower.returncode == 130
    assert "Traceback" not in err
