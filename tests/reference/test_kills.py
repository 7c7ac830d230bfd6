"""Kills of evaluations, syntheses of trajectories and runs of reinforcement learning, each after it
had stored something: nothing is lost, nothing doubled, and the end is as of a run in peace.
`TWIN_KILLS` says how often each is killed under the marker slow."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from reference.agentic.run import JOURNAL, REPORT, TRAJECTORIES, synthesise
from reference.checkpoint.folder import newest
from reference.evaluate import run as evaluating
from reference.evaluate.run import evaluate
from reference.evaluate.task import EvaluateSpec
from reference.rl.run import learn_from
from tests.reference.agentic.worlds import spec_of
from tests.reference.rl.mini import spec as rl_spec
from tests.reference.rl.test_run import same, told

FEW: Final = 1
KILLS: Final = pytest.mark.parametrize(
    "kills",
    [FEW, pytest.param(int(os.environ.get("TWIN_KILLS", "100")), marks=pytest.mark.slow)],
)


def killed(work: Callable[[], object], stored: Callable[[], list[Any]], kills: int) -> None:
    """Kill the work, which goes on where it was, so often, each time after it has stored more."""
    chance, kept = random.Random(5), stored()
    for _ in range(kills):
        child = os.fork()
        if not child:
            try:
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1)
                os.dup2(quiet, 2)
                work()
            finally:
                os._exit(99)
        until = time.monotonic() + 60
        while len(stored()) <= len(kept):
            assert time.monotonic() < until, "nothing is stored"
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.01))
        os.kill(child, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "it ended by itself"
        now = stored()
        assert now[: len(kept)] == kept, "nothing is lost"
        kept = now
    print(f"{kills} kills, {len(kept)} stored")


def whole_lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


@KILLS
def test_an_evaluation_survives_kills(
    kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rounds of two cases."""
    monkeypatch.setattr(evaluating, "ROUND", 2)
    said = {"name": "echoes", "about": "x.", "source": "here", "ask": "generate"}
    said |= {"cases": "echoes.jsonl", "scorer": "exact", "form": "chat"}
    (tmp_path / "echoes.yaml").write_text(json.dumps({**said, "metadata": {"kind": "echo"}}))
    rows = [{"prompt": f"w{at}", "target": f"w{at}"} for at in range(40 * kills)]
    (tmp_path / "echoes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def asked(name: str) -> EvaluateSpec:
        tasks = [str(tmp_path / "echoes.yaml")]
        words = {"model": "rules", "tasks": tasks, "output": str(tmp_path / name)}
        return EvaluateSpec.model_validate(words)

    def slowly(*_: object) -> None:
        time.sleep(0.001)

    cut = tmp_path / "cut" / "cases" / "echoes.jsonl"
    killed(
        lambda: evaluate(asked("cut"), existing="resume", progress=slowly),
        lambda: [line for line in whole_lines(cut) if '"round"' in line],
        kills,
    )
    evaluate(asked("cut"), existing="resume")
    evaluate(asked("calm"))
    for path in (tmp_path / "calm").rglob("*"):
        if path.is_file():
            other = tmp_path / "cut" / path.relative_to(tmp_path / "calm")
            assert other.read_bytes() == path.read_bytes()
    assert len(whole_lines(cut)) == len(rows) + len(rows) // 2


@KILLS
def test_a_synthesis_of_trajectories_survives_kills(kills: int, tmp_path: Path) -> None:
    words = {"kept": 3 * kills, "agents": {"count": 3 * kills}}
    cut, calm = (spec_of(output=str(tmp_path / name), **words) for name in ("cut", "calm"))
    journal = tmp_path / "cut" / JOURNAL
    killed(lambda: synthesise(cut, "resume"), lambda: whole_lines(journal), kills)
    synthesise(cut, "resume")
    synthesise(calm, "refuse")
    for name in (JOURNAL, TRAJECTORIES, REPORT):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()


@KILLS
def test_rollouts_and_what_learns_from_them_survive_kills(kills: int, tmp_path: Path) -> None:
    """A checkpoint after each iteration; what is logged behind the newest one comes again."""
    words: dict[str, Any] = {"iterations": 6 * kills, "rollout": {"tokens": 60, "slice": 5}}

    def asked(name: str) -> Any:
        train = {"checkpoint_every": 1, "output": str(tmp_path / name)}
        return rl_spec(tmp_path, **words, train=train)

    def stored() -> list[int]:
        checkpoint, _ = newest(tmp_path / "cut" / "checkpoints")
        return [*range(0 if checkpoint is None else checkpoint.step)]

    killed(lambda: learn_from(asked("cut"), existing="resume"), stored, kills)
    ours = learn_from(asked("cut"), existing="resume")
    theirs = learn_from(asked("calm"))
    assert same(ours, theirs)
    assert [one for one in told(tmp_path / "cut") if one["kind"] != "resume"] == told(
        tmp_path / "calm"
    )
