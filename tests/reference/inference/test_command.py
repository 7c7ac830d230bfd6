"""From a training run's folder to a server, and down again."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from reference.config import RunSpec, load_run
from reference.inference.__main__ import main
from reference.inference.local import load_engine
from reference.inference.request import Sampling
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.train import train
from tests.reference.inference.small import asked, ids
from tests.reference.inference.small import run as run_all
from tests.reference.train.mini import MINI
from twin.errors import UsageError


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunSpec:
    """A run of two steps."""
    folder = tmp_path_factory.mktemp("run")
    folder.joinpath("texts").mkdir()
    for number in range(8):
        text = "".join(f"{number} times {by} is {number * by}.\n" for by in range(20))
        folder.joinpath("texts", f"{number}.txt").write_text(text)
    places = {"out": folder / "out", "texts": folder / "texts", "cache": folder / "cache"}
    file = folder / "mini.yaml"
    file.write_text(MINI.format(**places))
    shorter = [
        "train.steps=2",
        *("schedule.warmup_steps=1", "schedule.constant_steps=1", "schedule.decay_steps=0"),
    ]
    run = load_run(file, shorter)
    train(run)
    return run


@pytest.mark.slow
def test_the_engine_of_a_run_has_its_weights_and_its_tokenizer(trained: RunSpec) -> None:
    assert trained.train.output is not None
    served = load_engine(Path(trained.train.output), EngineSpec())
    assert served.vocabulary.tokenizer.vocabulary == 257
    assert len(served.vocabulary.markers) == 10
    fresh = Transformer(trained.model)
    fresh.load_state_dict(served.model.state_dict())
    served.add(asked("3 times", 6, sampling=Sampling(temperature=0)))
    tokens = list(b"3 times")
    for token in ids(run_all(served), 0):
        with torch.no_grad():
            assert token == int(fresh.eval()(torch.tensor([tokens]))[0, -1, :267].argmax())
        tokens.append(token)


def test_a_folder_without_a_run_is_refused(tmp_path: Path, capsys) -> None:
    with pytest.raises(UsageError, match="TW491"):
        load_engine(tmp_path, EngineSpec())
    assert main([str(tmp_path)]) == 2
    assert "TW491" in capsys.readouterr().err
    assert main([str(tmp_path), "--blocks", "0"]) == 2
    assert "TW493" in capsys.readouterr().err
    assert main([str(tmp_path), "--blocks", "64"]) == 2
    assert "TW491" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_serves_and_sigterm_drains_it(trained: RunSpec) -> None:
    words = [sys.executable, "-m", "reference.inference", trained.train.output, "--port", "0"]
    with subprocess.Popen([*words, "--blocks", "64"], stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        line = child.stderr.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+): 1,024 tokens", line)
        assert port, line
        connection = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=30)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "3 times", "n": 2}))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert len(answer["choices"]) == 2
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 143
