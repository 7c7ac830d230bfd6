"""Arguments of Megatron-LM, out and back: what comes back is what went out, but for what the file
says it leaves out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import SMALL
from tests.command import Command
from twin.engine import plan
from twin.errors import ScenarioError
from twin.interop.export.base import stamp_of_plan
from twin.interop.export.megatron.arguments import reasons
from twin.interop.export.megatron.launch import launch, written
from twin.interop.importing.megatron import read_megatron, understood
from twin.loading import load
from twin.loading.files import shipped_scenarios
from twin.planning.launched import launched
from twin.planning.types import Plan

SECTIONS = ("model", "parallel", "memory", "train")
TRAINING = [name for name in shipped_scenarios() if "weight-update" not in name]
FORMS = (".sh", ".txt", ".yaml")

ALWAYS = {"cluster", "calibration", "software", "model.name"}
K2 = ALWAYS | {
    "cost",
    "memory.fp8_store",
    "model.rope.yarn.beta_fast",
    "parallel.layers",  # found
    "train.optimizer.newton_schulz",
    "train.tokens",  # 15.5T is no whole number of sequences
}
PAIRED = "parallel.overlap_shared_experts"
LOST = {
    "deepseek-v3-2048xh800": ALWAYS
    | {"cost", "parallel.schedule", "memory.fp8_store", "train.routing"},
    "gpt-175b-64xa100-full": ALWAYS | {"parallel.overlap_tensor", "parallel.layers"},
    "gpt-175b-64xa100-selective": ALWAYS | {"parallel.overlap_tensor", "parallel.layers"},
    "kimi-k2-256xh800": K2 | {PAIRED},
    "kimi-k2-256xh800-four-chunks": K2 | {PAIRED, "memory.recompute"},  # MoE down-projections
    "kimi-k2-512xh800": K2 | {PAIRED},
    "kimi-k2-2048xh800": K2 | {PAIRED},
    "kimi-k2-2048xh800-interleaved": K2,
    "kimi-k2-2048xh800-zb-h1": K2 | {"parallel.schedule"},
    "kimi-k2-2048xh800-dualpipe": K2 | {"parallel.schedule"},
}
"""Written by hand: what each shipped scenario loses."""


@cache
def planned(name: str) -> Plan:
    return plan(load(name))


def text_of(found: Plan, suffix: str) -> str:
    stamp = stamp_of_plan(found.scenario, ["s.yaml"], "megatron")
    return written(launch(found), stamp, suffix)


def leaves(value: Any, path: str) -> dict[str, Any]:
    """Every leaf by its path; lists are leaves, and those whose order means nothing are sets."""
    if isinstance(value, Mapping):
        return {
            name: leaf
            for key, item in value.items()
            for name, leaf in leaves(item, f"{path}.{key}").items()
        }
    if path in ("memory.recompute", "memory.offload", "memory.fp8_store"):
        return {path: frozenset(value)}
    return {path: value}


def changed(before: Any, after: Any) -> set[str]:
    """Leaves of the four sections that are not the same."""
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    for section in SECTIONS:
        old |= leaves(getattr(before, section).model_dump(), section)
        new |= leaves(getattr(after, section).model_dump(), section)
    return {path for path in old.keys() | new.keys() if old.get(path, ...) != new.get(path, ...)}


def told_exactly(found: Plan) -> None:
    """What differs when the arguments are read back is what they say they lose, and no more."""
    out = launch(found)
    back = understood(out.arguments, "back")
    differs = changed(found.scenario, back)
    warned = {loss.path for loss in out.losses if loss.path.split(".")[0] in SECTIONS}
    covered = {leaf for leaf in differs if any(f"{leaf}.".startswith(f"{p}.") for p in warned)}
    assert differs == covered
    assert {p for p in warned if any(f"{leaf}.".startswith(f"{p}.") for leaf in differs)} == warned
    assert back.name == found.scenario.name


@pytest.mark.parametrize("name", sorted(LOST))
def test_a_shipped_scenario_loses_what_was_written_down_by_hand(name: str) -> None:
    assert {loss.path for loss in launch(planned(name)).losses} == LOST[name]


@pytest.mark.parametrize("name", TRAINING)
def test_what_differs_is_what_is_warned_of(name: str) -> None:
    told_exactly(planned(name))


@pytest.mark.parametrize("name", TRAINING)
def test_every_loss_has_a_reason_and_is_in_the_file(name: str) -> None:
    found = planned(name)
    for loss in launch(found).losses:
        around = [path for path in reasons() if f"{loss.path}.".startswith(f"{path}.")]
        assert around, loss.path
        for suffix in FORMS:
            assert str(loss) in text_of(found, suffix)


@pytest.mark.parametrize("suffix", FORMS)
@pytest.mark.parametrize("name", TRAINING)
def test_every_form_says_the_same(name: str, suffix: str, tmp_path: Path) -> None:
    found = planned(name)
    file = tmp_path / f"args{suffix}"
    file.write_text(text_of(found, suffix))
    back = read_megatron(file)
    direct = understood(launch(found).arguments, "args")
    for section in SECTIONS:
        assert getattr(back, section) == getattr(direct, section)
    if suffix == ".sh":
        nodes = found.scenario.cluster.nodes
        assert (back.nodes, back.gpus_per_node) == (nodes, found.scenario.cluster.node.gpus)


@pytest.mark.parametrize("name", TRAINING)
def test_the_plan_of_what_comes_back_has_the_same_chunks(name: str) -> None:
    before = planned(name)
    back = understood(launch(before).arguments, "back")
    after = plan(before.scenario.model_copy(update={"parallel": back.parallel}))
    if before.mesh.copies == 1:
        held = [[[layer.kind for layer in c.layers] for c in p.chunks] for p in (before, after)]
        assert held[0] == held[1]
    assert (after.mesh.tensor, after.mesh.data) == (before.mesh.tensor, before.mesh.data)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to run it")
@pytest.mark.parametrize("name", ["kimi-k2-256xh800", "gpt-175b-64xa100-full"])
def test_bash_gives_torchrun_the_arguments(name: str, tmp_path: Path) -> None:
    found = planned(name)
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/bash\nprintf "%s\\0" "$@"\n')
    torchrun.chmod(0o755)
    script = tmp_path / "args.sh"
    script.write_text(text_of(found, ".sh"))
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", str(script), "--lr", "1e-4"], capture_output=True, check=True, env={"PATH": path}
    )
    words = done.stdout.decode().split("\0")[:-1]
    expected = [word for one in launch(found).arguments for word in one.words]
    assert words[words.index("pretrain_gpt.py") + 1 :] == [*expected, "--lr", "1e-4"]


def drawn(draw: st.DrawFn, section: str, fields: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {
        key: draw(st.sampled_from(values), label=f"{section}.{key}")
        for key, values in fields.items()
    }


MODELS = (
    "mixtral-8x7b", "kimi-k2-tiny", "gpt-22b", "gpt-oss-20b", "qwen2-57b-a14b", "bloom-176b",
    "deepseek-v2", "nemotron4-15b", "llama3-8b", "llama4-maverick-400b", "qwen3-4b",
)  # fmt: skip
PARALLEL: dict[str, list[Any]] = {
    "tensor": [1, 2, 4],
    "pipeline": [1, 2, 4],
    "virtual": [1, 1, 2, 3],
    "context": [1, 1, 2],
    "expert": [1, 2, 4],
    "expert_tensor": [1, 1, 2],
    "zero": [0, 1, 1, 2, 3],
    "micro_batch": [1, 2],
    "sequence_parallel": [True, False],
    "dispatcher": ["alltoall", "deepep", "hybridep", "allgather", "einsum", "padded"],
    "overlap_shared_experts": [True, False],
    "overlap_grad_reduce": [True, False],
    "overlap_param_gather": [True, False],
    "bucket_size": [None, 1_000_000],
    "overlap_tensor": ["none", "bulk", "pieces"],
    "reshard_after_forward": [True, False],
}
SCHEDULES: list[Any] = [
    {"kind": "gpipe"}, {"kind": "1f1b"}, {"kind": "zb_h1"}, {"kind": "dualpipe"},
    *({"kind": "interleaved_1f1b", "extra_warmup": warm, "overlap_all_to_all": pair,
       "defer_weight_grad": late} for warm, pair, late in
      [(0, False, False), (1, True, True), (1, True, False), (1, False, True), (0, False, True)]),
]  # fmt: skip
MEMORY: dict[str, list[Any]] = {
    "recompute": [[], ["full"], ["attention_core"], ["norms", "swiglu"], ["mla_up", "moe_down"]],
    "fp8_store": [[], ["swiglu_input"]],
    "offload": [[], ["activations"], ["optimizer"], ["optimizer_dense"],
                ["moe_up_input", "moe_swiglu_input"], ["qkv_input", "attention_core"],
                ["activations", "optimizer_expert", "optimizer_dense"]],
    "optimizer_update": ["device", "host"],
    "fully_shard": [False, False, True],
}  # fmt: skip
TRAIN: dict[str, list[Any]] = {
    "tokens": ["1T", "1048576000tok"],
    "optimizer": [{"kind": "adamw"}, {"kind": "adamw", "moments": "bf16"}, {"kind": "muon"},
                  {"kind": "adamw", "moments": "fp8", "variance": "bf16"},
                  {"kind": "muonclip", "newton_schulz": "partitioned"}],
    "precision": ["bf16", "fp8"],
    "fp8_scaling": ["block", "tensor", "current", "mx", "row"],
    "gradients": ["fp32", "bf16"],
    "attention_kernel": ["flash", "unfused"],
    "cross_entropy": ["fused", "eager"],
    "expert_weights": ["inside", "outputs"],
    "expert_capacity": [None, None, 1.25],
    "routing": [{"kind": "balanced"}, {"kind": "zipf", "s": 0.2}],
}  # fmt: skip


@st.composite
def scenarios(draw: st.DrawFn) -> Plan:
    """Anything that the twin can plan on 16 nodes."""
    given = {
        "parallel": drawn(draw, "parallel", PARALLEL),
        "memory": drawn(draw, "memory", MEMORY),
        "train": drawn(draw, "train", TRAIN),
    }
    given["parallel"]["schedule"] = draw(st.sampled_from(SCHEDULES))
    words = [f"model={draw(st.sampled_from(MODELS))}"]
    words += [
        f"{section}.{key}={json.dumps(value)}"
        for section, fields in given.items()
        for key, value in fields.items()
    ]
    try:
        return plan(load(base(), words))
    except ScenarioError:
        assume(False)
        raise


@cache
def base() -> str:
    """A file of what all have in common."""
    from tempfile import mkdtemp  # noqa: PLC0415  once a run

    file = Path(mkdtemp(prefix="twin-megatron-")) / "base.yaml"
    file.write_text(
        "schema: 1\nname: base\ncluster: {node: h100-8gpu, nodes: 16, fabric: rail-fat-tree-400g}\n"
        "train: {sequence: 1024tok, global_batch: 768seq}\n"
    )
    return str(file)


@settings(
    max_examples=10 if "CI" in os.environ else 30,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(scenarios())
def test_whatever_the_layout_what_differs_is_what_is_warned_of(found: Plan) -> None:
    told_exactly(found)


@pytest.mark.parametrize(
    ("overrides", "interval"),
    [
        ([], None),
        (["train.gc_interval=0"], "0"),
        (["train.gc_interval=20"], "20"),
        (["software=megatron-core-tuned"], "100"),
    ],
)
def test_the_interval_of_collections_is_written_for_megatron(overrides, interval) -> None:
    words = ["model=mixtral-8x7b", "train.tokens=1T", "train.optimizer=adamw",
             "parallel.schedule=1f1b", "software=megatron-core", *overrides]  # fmt: skip
    given = {one.name: one.values for one in launch(plan(load(base(), words))).arguments}
    assert ("manual-gc" in given) == (interval is not None)
    assert given.get("manual-gc-interval") == (None if interval is None else (interval,))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["parallel.tensor=2", "parallel.sequence_parallel=false"], "no --sequence-parallel"),
        (["train.optimizer=muon", "parallel.zero=2"], "Muon with FSDP"),
        (["memory.recompute=[norms]"], "norms of queries and keys are kept"),
    ],
)
def test_what_megatron_makes_of_it_is_told(overrides: list[str], said: str) -> None:
    words = ["model=mixtral-8x7b", "train.tokens=1T", "train.optimizer=adamw",
             "parallel.schedule=1f1b", *overrides]  # fmt: skip
    assert any(said in one for one in launch(plan(load(base(), words))).caveats)


def test_the_command_writes_the_form_that_the_name_asks_for(
    twin_command: Command, tmp_path: Path
) -> None:
    words = ("export", "gpt-175b-64xa100-full", "--format", "megatron", "-o")
    done = twin_command(*words, "args.yaml", "--json")
    answer = json.loads(done.out)
    assert done.code == 0
    assert {one["path"] for one in answer["losses"]} == LOST["gpt-175b-64xa100-full"]
    assert all(one["path"] in done.err and one["reason"] in done.err for one in answer["losses"])
    text = (tmp_path / "args.yaml").read_text()
    assert "MODEL_ARGS:\n" in text
    assert "  --num-layers-per-virtual-pipeline-stage: 4\n" in text
    assert twin_command(*words, "args.yaml").code == 2  # it exists
    assert twin_command(*words, "args.sh", "-q").err == ""


CHECKED = {
    # expectations: exit codes of `twin check` and of `twin run`
    "memory holds, time holds": (["peak_device_bytes < 79GiB", "step_seconds < 25s"], 0, 0),
    "memory holds, time fails": (["fits == true", "step_seconds < 1ms"], 0, 5),
    "memory fails": (["peak_device_bytes < 1GiB"], 5, 5),
}


def process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`twin WORDS` as a process of its own, as in a job."""
    command = [sys.executable, "-m", "twin", *words]
    code = "import sys; from twin.cli.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *command[3:]],
        capture_output=True, text=True, cwd=folder, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job's folder: arguments that were exported, and imported again."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "small.yaml").write_text(SMALL)
    out = process(folder, "export", "small.yaml", "--format", "megatron", "-o", "a.sh")
    assert out.returncode == 0, out.stderr
    place = ("--node", "a100-80gb-8gpu-8x200g", "--fabric", "rail-fat-tree-200g")
    back = process(folder, "import", "megatron", "a.sh", *place, "-o", "plan.yaml")
    assert back.returncode == 0, back.stderr
    return folder


@pytest.mark.parametrize(
    "case",
    ["memory fails", *(pytest.param(one, marks=pytest.mark.slow) for one in list(CHECKED)[:2])],
)
def test_a_job_that_imports_arguments_is_stopped_by_its_expectations(
    case: str, job: Path, twin_command: Command
) -> None:
    expected, check, run = CHECKED[case]
    asked = (str(job / "plan.yaml"), "--set", f"expect={json.dumps(expected)}")
    done = twin_command("check", *asked, "--json")
    assert done.code == check, done.err
    judged = {one["text"]: one["passed"] for one in json.loads(done.out)["expectations"]}
    assert {text for text, passed in judged.items() if passed is None} == {
        text for text in expected if text.startswith("step_seconds")
    }
    assert twin_command("run", *asked, "-q").code == run


def test_a_job_tells_impossible_from_too_large(
    job: Path, twin_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here as a process, as in a job: its exit code is what a job sees."""
    impossible = process(job, "check", "plan.yaml", "-q", "--set", "parallel.tensor=7")
    assert impossible.returncode == 3
    monkeypatch.setattr("twin.answers.answer.nearest_fit", lambda _: ())
    small = ("--set", "cluster.node.gpu.memory=10GiB")
    assert twin_command("check", str(job / "plan.yaml"), "-q", *small).code == 4


def test_check_names_the_expectations_that_need_a_step(job: Path, twin_command: Command) -> None:
    wanted = 'expect=["step_seconds < 25s"]'
    done = twin_command("check", str(job / "plan.yaml"), "--set", wanted)
    assert done.code == 0
    assert "step_seconds < 25s: not answered here." in done.out


@pytest.mark.parametrize(
    "name",
    ["kimi-k2-2048xh800-dualpipe", "kimi-k2-2048xh800-zb-h1", "deepseek-v3-2048xh800"],
)
def test_a_plan_as_launched_is_what_the_arguments_say(name):
    scenario = load(name, ["software=megatron-core-tuned"])
    made = launched(scenario)
    assert made != scenario
    assert launched(made) is made
    about = ("parallel.schedule", "parallel.virtual", "memory.")
    lost = [loss.path for loss in launch(plan(made)).losses if loss.path.startswith(about)]
    assert not lost
    back = understood(launch(plan(scenario)).arguments, scenario.name)
    assert back.parallel.schedule == made.parallel.schedule
    assert set(back.memory.recompute) == set(made.memory.recompute)
    assert back.memory.fp8_store == made.memory.fp8_store == ()


def test_stages_that_differ_have_flags_of_their_own() -> None:
    names = ["{recompute: [norms]}", "{recompute: []}", *["{}"] * 6]
    policies = f"memory={{recompute: [full], by_stage: [{', '.join(names)}]}}"
    made = launch(plan(load("gpt-175b-64xa100-full", [policies])))
    full = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    norms = "--recompute-granularity selective --recompute-modules layernorm"
    assert made.of_stages == (f"stage 0: {norms}", "stage 1: none", f"stages 2 to 7: {full}")
    assert "memory.by_stage" in {loss.path for loss in made.losses}
    assert not launch(plan(load("gpt-175b-64xa100-full"))).of_stages
