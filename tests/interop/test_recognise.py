"""A file is told by its content alone, whatever it is called and however it is packed; and every
command says what another one reads."""

from __future__ import annotations

import gzip
import json
import sqlite3
import time
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from tests.command import Command
from tests.evidence.calibrate.synthetic import (
    SecretCluster,
    megatron_log,
    nccl_tests,
    topology,
    write_bw,
)
from tests.evidence.live.test_event_files import BOARD, WANDB
from tests.evidence.live.test_log_lines import TITAN
from tests.evidence.traces import test_chakra, traces
from twin.cli.verbs import verbs
from twin.evidence.calibrate.sources import sources
from twin.evidence.live.trainer_log import Log
from twin.interop.importing.formats import FORMATS, MODEL, reader
from twin.interop.recognise import formats, language, read_by, recognise, recognised

LAUNCHES = Path(__file__).parent / "importing" / "launches"
OWN = SecretCluster(0)
SHIPPED = {
    "launches/gpt3-175b.sh": "megatron",
    "launches/deepseek-v3.yaml": "megatron",
    "launches/llama3-70b.toml": "torchtitan",
    "launches/llama3-8b-older.toml": "torchtitan",
    "launches/titan.slurm": "torchtitan",
    "launches/zero3.json": "deepspeed",
    "launches/zero3.slurm": "deepspeed",
    "launches/qwen3-30b-bridge.yaml": "bridge",
    "recipes/qwen3.txt": "bridge",
    "launches/card.yaml": "card",
    "launches/verl.slurm": "verl",
    "launches/verl-fsdp.yaml": "verl",
    "configs/qwen3-4b.json": MODEL,
}
LINES = {
    "megatron": "# one line\n--num-layers 32\n--hidden-size 4096\n",
    "torchtitan": "from torchtitan.trainer import Trainer\n",
    "scenario": SMALL,
    "step-table": "# ours\nscenario,seconds\nkimi-k2-256xh800,17.5\n",
    "metrics": '{"step": 1, "seconds": 2.5, "loss": 3.1}\n',
    "megatron-log": megatron_log(OWN, 2.0, 9),
    "torchtitan-log": TITAN.format(at=10.0, step=1),
    "deepspeed-log": "steps: 10 loss: 2.1 iter time (s): 1.250 samples/sec: 51.2\n",
    "verl-log": "(TaskRunner pid=7) step:3 - actor/loss:0.1 - timing_s/step:123.4\n",
    "nemo-log": "Training epoch 0, iteration 7/100 | lr: 1e-4 | train_step_timing in s: 3.21 | x\n",
    "nccl-tests": nccl_tests(OWN, "all_gather", 8, 1, sizes=[2**24]),
    "perftest": write_bw(OWN, "mlx5_0"),
    "gpu-topology": topology(OWN),
    "gpu-list": "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-9d2)\n",
    "measure-points": '{"machine": {"name": "a"}}\n',
    "pytorch-trace": '{"schemaVersion": 1, "traceEvents": []}',
}


def samples(folder: Path) -> dict[Path, str]:
    """A file of every format, and what it is."""
    found = {LAUNCHES.parent / name: form for name, form in SHIPPED.items()}
    written: dict[str, str | bytes] = {**LINES, "tensorboard": BOARD, "wandb": WANDB}
    for name, text in written.items():
        path = folder / f"sample-of-{name}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        found[path] = name
    found[test_chakra.trace(folder / "rank", *test_chakra.NODES)] = "chakra"
    found[traces.trace_file(folder / "trace", [], rank=0)] = "pytorch-trace"
    with sqlite3.connect(folder / "profile") as db:
        db.execute("CREATE TABLE TARGET_INFO_GPU (id INTEGER)")
    found[folder / "profile"] = "nsight"
    rows = folder / "rows"
    rows.write_text("rows:\n- {scenario: kimi-k2-256xh800, seconds: 17.5}\n")
    return found | {rows: "step-table"}


def test_a_file_is_told_by_its_content_whatever_its_name_and_packing(tmp_path: Path) -> None:
    files = samples(tmp_path)
    assert set(files.values()) == set(formats())
    for path, form in files.items():
        data = path.read_bytes()
        ways = {"as it is": data, "packed": gzip.compress(data, 1)}
        if b"\0" not in data:
            ways["from Windows"] = b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")
        for way, content in ways.items():
            (tmp_path / "file").write_bytes(content)
            told = [one.name for one in recognise(tmp_path / "file")]
            assert told == [form], f"{path.name}, {way}"


@pytest.mark.parametrize(
    "text", ["", "hello", "{}", "a: 1", "x = 1", "# A page\n\nRun it with `--quiet`.\n", "\n" * 99]
)
def test_what_is_nothing_is_told_as_nothing(text: str) -> None:
    assert recognised(text.encode()) == ()


def test_output_of_several_programs_is_each_of_them() -> None:
    both = LINES["gpu-list"] + LINES["gpu-topology"] + LINES["nccl-tests"]
    told = {one.name for one in recognised(both.encode())}
    assert told == {"gpu-list", "gpu-topology", "nccl-tests"}


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 1_000_000,
        "a,b\n" + "#\n" * 500_000,
        "iteration 1/ 2 |" * 60_000,
        "GPU 0: " * 140_000,
        "name, " * 170_000,
        '{"step": ' * 110_000,
        "rows:\n" * 170_000,
        "[" * 1_000_000,
        "RDMA_Write " * 90_000,
    ],
)
def test_a_hostile_file_is_told_in_bounded_time(text: str) -> None:
    begin = time.process_time()
    recognised(text.encode())
    assert time.process_time() - begin < 5


def test_every_use_is_a_verb_and_every_format_has_its_reader() -> None:
    assert {verb for one in formats().values() for verb in one.uses} <= set(verbs())
    assert all(callable(reader(form)) for form in FORMATS if form != MODEL)
    assert sorted(name for one in sources() for name in one.reads) == sorted(read_by("calibrate"))
    for form in FORMATS:
        assert form in verbs()["import"]["parameters"]["form"]["help"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("#!/bin/sh\n[x]\n", "shell"),
        ("# by hand\n\n[training]\n", "toml"),
        ('"""A recipe."""\nimport os\n', "python"),
        ("# @package _global_\ndefaults:\n  - a\n", "yaml"),
        ("--num-layers: 61\n", "yaml"),
        ("  --num-layers 61 \\\n", "arguments"),
        ('[\n {"ph": "X"}]', "json"),
        ("export A=1\n", "shell"),
    ],
)
def test_the_first_line_tells_the_language(text: str, written: str) -> None:
    assert language(text) == written


@pytest.mark.parametrize(
    ("words", "name", "said", "remedy"),
    [
        (["import"], "megatron-log", "a training log of Megatron-LM", "twin track file"),
        (["import"], "scenario", "a scenario of the twin", "twin run file"),
        (["run"], "megatron", "a launch of Megatron-LM", "twin import file --node"),
        (["calibrate"], "megatron", "a launch of Megatron-LM", "twin import file --node"),
        (["measured"], "nccl-tests", "output of nccl-tests", "twin calibrate file"),
        (["track", "--once"], "pytorch-trace", "a PyTorch trace", "twin measured file"),
    ],
)
def test_a_command_says_what_another_one_reads(
    twin_command: Command, tmp_path: Path, words: list[str], name: str, said: str, remedy: str
) -> None:
    (tmp_path / "file").write_text(LINES[name])
    found = twin_command(*words, "file")
    assert f"`file` is {said}" in found.err
    assert remedy in found.err
    assert found.code == (0 if words[0] == "track" else 3 if words[0] == "run" else 2)


def test_a_packed_launch_is_imported_as_if_it_were_not(
    twin_command: Command, tmp_path: Path
) -> None:
    text = (LAUNCHES / "llama3-8b-fp8.sh").read_bytes()
    (tmp_path / "a.sh").write_bytes(text)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.sh.gz").write_bytes(gzip.compress(text))
    cluster = ("--node", "h100-8gpu", "--nodes", "1", "--fabric", "rail-fat-tree-400g", "--json")
    more = ("--with", "--vocab-size 128256")
    plain, packed = (
        twin_command("import", file, *cluster, *more) for file in ("a.sh", "b/a.sh.gz")
    )
    assert plain.code == 0, plain.err
    assert json.loads(packed.out) == json.loads(plain.out)


def test_a_packed_log_is_read_whole_and_again_only_when_it_has_changed(tmp_path: Path) -> None:
    path, lines = tmp_path / "train.log.gz", LINES["megatron-log"].splitlines(keepends=True)
    path.write_bytes(gzip.compress("".join(lines[:6]).encode()))
    log = Log(path)
    assert log.look()
    assert log.last == 5
    assert not log.look()
    path.write_bytes(gzip.compress("".join(lines).encode())[:-5])  # torn
    assert log.look()
    assert (log.last, len(log.steps)) == (9, 9)
