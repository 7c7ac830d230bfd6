"""Published launches of Megatron-LM give the published models and layouts; people's scripts are
read as a shell reads them; and nothing is passed over."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from twin.arch.count import parameters
from twin.engine import plan
from twin.errors import UsageError
from twin.interop.importing.as_yaml import scenario_text
from twin.interop.importing.megatron import Launch, read_megatron, understood
from twin.interop.importing.megatron.launch_file import Argument
from twin.interop.importing.megatron.model import (
    chunks_of,
    experts_pattern,
    layout_of,
    pattern_of,
    where_experts_are,
)
from twin.interop.importing.shell import follow
from twin.loading import load, load_part
from twin.scenario import Scenario
from twin.schedules.interleaved import Interleaved

LAUNCHES = Path(__file__).with_name("launches")
SCRIPTS = sorted(path.name for path in LAUNCHES.glob("*.sh"))
H100 = {"node": "h100-8gpu", "nodes": 16, "fabric": "rail-fat-tree-400g"}

# What a launch leaves to its tokenizer and its scheduler.
KNOWN: dict[str, tuple[dict[str, str], list[str]]] = {
    "gpt3-175b.sh": ({}, ["--vocab-size 50257"]),
    "mixtral-8x7b.sh": ({}, ["--vocab-size 32000"]),
    "llama3-8b-fp8.sh": ({}, []),
    "deepseek-v3.yaml": ({"TP": "2", "PP": "8", "EP": "64"}, ["--vocab-size 129280"]),
    "qwen3-235b.yaml": (
        {"TP": "2", "PP": "8", "EP": "32", "LAYERS_PER_VP": "3", "MOE_GROUPED_GEMM": "true"},
        ["--vocab-size 151669"],
    ),
}


def published(name: str) -> Launch:
    defined, more = KNOWN[name]
    return read_megatron(LAUNCHES / name, defined, more)


def narayanan(layers: int, hidden: int, vocab: int, sequence: int) -> int:
    """Parameters of a GPT: arXiv:2104.04473, equation 2; and the last norm, which it leaves out."""
    return round(
        12 * layers * hidden**2
        * (1 + 13 / (12 * hidden) + (vocab + sequence) / (12 * layers * hidden))
    ) + 2 * hidden  # fmt: skip


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("gpt3-175b.sh", narayanan(96, 12_288, 51_200, 2048)),
        # As in test_hf_config.py: the totals of the released weights.
        ("mixtral-8x7b.sh", 46_702_792_704),
        ("deepseek-v3.yaml", 671_026_419_200),
        ("qwen3-235b.yaml", 235_093_634_560),
        # The script's norms are LayerNorms, as by default: a bias for each of 65.
        ("llama3-8b-fp8.sh", 8_030_261_248 + 65 * 4096),
    ],
)
def test_a_published_launch_gives_the_published_parameters(name: str, total: int) -> None:
    assert parameters(published(name).model).total == total


def test_deepseek_v3_is_the_catalog_s_but_for_its_name() -> None:
    ours = load_part("models", "deepseek-v3").spec.model_dump(exclude={"name"})
    assert published("deepseek-v3.yaml").model.model_dump(exclude={"name"}) == ours


def test_gpt_3_is_laid_out_as_its_example_says() -> None:
    launch = published("gpt3-175b.sh")
    assert launch.model.vocab == 51_200  # 50,257 padded to 128 x 8 tensor ranks
    assert (launch.parallel.tensor, launch.parallel.pipeline) == (8, 16)
    assert launch.parallel.layers == (6,) * 16
    assert (launch.parallel.zero, launch.train.gradients) == (0, "bf16")
    assert launch.train.tokens == 500_000 * 1536 * 2048
    assert (launch.nodes, launch.gpus_per_node) == (1, 8)
    told = " ".join(launch.remarks)
    assert "--rampup-batch-size 16 16 5859375" in told
    assert "fp16 is counted as bf16" in told


def test_mixtral_is_tp1_pp4_ep8_as_its_readme_recommends() -> None:
    launch = published("mixtral-8x7b.sh")
    parallel = launch.parallel
    assert (parallel.tensor, parallel.pipeline, parallel.expert) == (1, 4, 8)
    assert (parallel.zero, parallel.dispatcher, parallel.overlap_param_gather) == (
        1,
        "alltoall",
        True,
    )
    assert any("WANDB" in one or "--wandb-project" in one for one in launch.remarks)


def test_deepseek_v3_on_1024_h100_is_laid_out_as_its_guide_says() -> None:
    launch = published("deepseek-v3.yaml")
    parallel = launch.parallel
    assert (parallel.tensor, parallel.pipeline, parallel.virtual, parallel.expert) == (2, 8, 4, 64)
    assert parallel.layers == (1, *(2,) * 30, 0)
    assert parallel.schedule == Interleaved(
        extra_warmup=1, overlap_all_to_all=True, defer_weight_grad=True
    )
    assert (launch.train.precision, launch.train.fp8_scaling) == ("fp8", "block")
    assert launch.train.optimizer.model_dump() == {"kind": "adamw", "moments": "bf16"}
    assert launch.memory.recompute == ("mla_up",)
    told = " ".join(launch.remarks)
    for lost in ("Recomputing `mlp` whole", "The section `ENV_VARS`"):
        assert lost in told


def test_an_embedding_and_a_head_that_count_as_layers_take_their_place() -> None:
    parallel = published("qwen3-235b.yaml").parallel
    assert (parallel.pipeline, parallel.virtual) == (8, 4)
    assert parallel.layers == (2, *(3,) * 30, 2)


def test_fp8_switches_in_quotes_fall_apart_as_in_a_shell() -> None:
    train = published("llama3-8b-fp8.sh").train
    assert (train.precision, train.fp8_scaling, train.gradients) == ("fp8", "tensor", "bf16")


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_what_is_written_loads_as_what_was_read(name: str, tmp_path: Path) -> None:
    launch = published(name)
    file = tmp_path / "s.yaml"
    file.write_text(scenario_text(launch, H100, name))
    scenario = load(file)
    for section in ("model", "parallel", "memory", "train"):
        assert getattr(scenario, section) == getattr(launch, section)
    assert (scenario.name, scenario.cluster.nodes) == (launch.name, 16)
    assert isinstance(scenario, Scenario)
    assert (scenario.software and scenario.software.name) == "megatron-core"
    assert not scenario.software_assumed


@pytest.mark.parametrize("name", ["gpt3-175b.sh", "mixtral-8x7b.sh"])
def test_what_is_written_can_be_planned(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(scenario_text(published(name), H100, name))
    assert plan(load(tmp_path / "s.yaml")).mesh.ranks == 128


def heard(script: str, tmp_path: Path) -> list[str]:
    """What torchrun gets when bash runs the script."""
    stub = tmp_path / "torchrun"
    stub.write_text('#!/bin/bash\nprintf "%s\\0" "$@"\n')
    stub.chmod(0o755)
    bare = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script, "script"], capture_output=True, check=True, env=bare, cwd=tmp_path
    )
    return done.stdout.decode().split("\0")[:-1]


ODD = r"""
A=(--one 'two  words' "--three 3" --four=$((2*(3+4))) # --not-this
   --five "$X" --six "a\"b" \
   '--seven'  eight\ nine "")
X="late"
A+=(--x "$X" --y ${Y:-"d e"} --z ${X:+set})
if [ "$X" != "late" ]; then A+=(--no); elif [[ $X == late && -n "$X" ]]; then A+=(--yes); fi
if [ 3 -gt 2 ] || [ -z "$X" ]; then
    A+=(--more)
else
    A+=(--less)
fi
S="--s 1"
S+=" --t 2"; export U="$S --u 3" V=4
torchrun "${A[@]}" ${A[@]} $U --v$V "v=${V}w" "$@" 2>&1 > out.txt || true
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash to compare with")
@pytest.mark.parametrize("name", [*SCRIPTS, "odd"])
def test_a_script_is_read_as_bash_runs_it(name: str, tmp_path: Path) -> None:
    text = ODD.replace(" > out.txt", "") if name == "odd" else (LAUNCHES / name).read_text()
    # Variables that nobody sets are empty to bash, and unknown to a reader.
    unset = {"X": ""} if name == "odd" else {"CHECKPOINT": "", "WANDB_API_KEY": ""}
    text = text.replace("$5", "data").replace("$1", "")
    read = follow(text, {} if name == "odd" else unset)
    found = next(one.texts[1:] for one in read.commands if one.texts[0] == "torchrun")
    words = [word for word in found if word != "${X}"]
    ran = heard(text, tmp_path)
    if name == "odd":  # before it is set, X is "" to bash, in the array once; unquoted it goes
        ran.remove("")
    assert words == ran


def test_a_variable_that_the_file_does_not_set_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text("torchrun pretrain_gpt.py --num-layers $LAYERS --lr $LR\n")
    with pytest.raises(UsageError) as caught:
        read_megatron(file)
    problem = caught.value.problems[0]
    assert (problem.code, problem.path) == ("TW011", "--num-layers")
    assert problem.hint == "--define LAYERS=..."
    assert problem.origin is not None
    assert problem.origin.line == 1
    assert not any(one.path == "--lr" for one in caught.value.problems)  # nobody needs it


SMALL = (
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 --vocab-size 1000 "
    "--micro-batch-size 1 --global-batch-size 8 --train-iters 10 --bf16"
)


def small(*more: str) -> Launch:
    words = " ".join((SMALL, *more)).split()
    starts = [i for i, word in enumerate(words) if word.startswith("--")]
    return understood(
        [
            Argument(words[i][2:], tuple(words[i + 1 : j]))
            for i, j in zip(starts, [*starts[1:], len(words)], strict=True)
        ],
        "small",
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--frobnicate 3", "`--frobnicate 3` is unknown here"),
        ("--num-layer 3", "did you mean `--num-layers`?"),
        ("--window-size (128,64)", "attention is counted over all tokens before here"),
        ("--moe-expert-capacity-factor 1.0", "no token is dropped"),
        ("--recompute-granularity selective --recompute-modules mlp", "Recomputing `mlp` whole"),
        ("--recompute-granularity full --recompute-method block", "every layer keeps its input"),
    ],
)
def test_what_is_left_out_is_told_by_name(more: str, said: str) -> None:
    assert said in " ".join(small(more).remarks)


@pytest.mark.parametrize(
    ("more", "interval"),
    [("", None), ("--manual-gc", 0), ("--manual-gc --manual-gc-interval 100", 100),
     ("--manual-gc-interval 100", None)],
)  # fmt: skip
def test_garbage_is_collected_by_hand_where_the_switch_is_set(more, interval) -> None:
    assert small(more).train.gc_interval == interval
    assert not small(more).remarks


def test_options_about_learning_and_logs_are_no_news() -> None:
    quiet = (
        "--lr 1e-4 --adam-beta2 0.95 --log-interval 1 --save-interval 10 --eval-iters 0 --seed 1"
    )
    assert small(quiet).remarks == small().remarks == ()


@pytest.mark.parametrize(
    ("more", "path", "why"),
    [
        ("--spec a b", "--spec", "what a specification builds"),
        ("--hybrid-override-pattern M*D", "--hybrid-override-pattern", "no block here has: D"),
        ("--hybrid-attention-ratio 0.1", "--hybrid-attention-ratio", "a rule of its own"),
        ("--optimizer sgd", "--optimizer", "`--optimizer sgd` cannot be expressed"),
        ("--pipeline-model-parallel-size 3", "--num-layers", "8 layers do not fall into 3 stages"),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tL",
            "--pipeline-model-parallel-layout",
            "the layout has 2 layers, the model 8",
        ),
        ("--num-experts 4 --moe-layer-freq ([1]*3)", "--moe-layer-freq", "no pattern of 8 layers"),
        (
            "--num-experts 4 --moe-layer-freq [1,0,0,1,0,0,0,0]",
            "--moe-layer-freq",
            "cannot be expressed",
        ),
        ("--num-layers many", "--num-layers", "must be a whole number"),
        ("--position-embedding-type ropes", "--position-embedding-type", "is not known"),
    ],
)
def test_what_cannot_be_expressed_is_refused_with_the_reason(
    more: str, path: str, why: str
) -> None:
    with pytest.raises(UsageError) as caught:
        small(more)
    assert (path, True) in [(one.path, why in one.message) for one in caught.value.problems]


THREE = "--pipeline-model-parallel-size 3"
UNEVEN = f"{THREE} --decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 2"


@pytest.mark.parametrize(
    ("more", "layers"),
    [
        ("", None),
        ("--pipeline-model-parallel-size 4", (2, 2, 2, 2)),
        (
            "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2",
            (2, 2, 2, 2),
        ),
        (
            f"{THREE} --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3",
            (1, 4, 3),
        ),
        (
            f"{UNEVEN} --num-virtual-stages-per-pipeline-rank 2",
            (1, 2, 1, 1, 2, 1),
        ),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*3|t*5L", (3, 5)),
    ],
)
def test_layers_are_cut_as_megatron_cuts_them(more: str, layers: tuple[int, ...] | None) -> None:
    assert small(more).parallel.layers == layers


def test_of_an_option_that_is_given_twice_the_last_counts() -> None:
    assert small("--micro-batch-size 4").parallel.micro_batch == 4


def test_experts_take_the_tensor_ranks_unless_told_otherwise() -> None:
    """As `validate_args` does: "Default is None, which will be set to the value of
    --tensor-model-paralle-size"."""
    moe = "--num-experts 4 --swiglu --disable-bias-linear --tensor-model-parallel-size 2"
    assert small(moe).parallel.expert_tensor == 2
    assert small(moe, "--expert-tensor-parallel-size 1").parallel.expert_tensor == 1


@pytest.mark.parametrize(
    "layers", [(1,), (3, 5), (0, 1, 1, 0), (1, *(2,) * 30, 0), (4, 4, 9, 9, 9, 1)]
)
@pytest.mark.parametrize("modules", [0, 2])
def test_a_layout_says_every_chunk(layers: tuple[int, ...], modules: int) -> None:
    chunks = chunks_of(layout_of(layers, modules))
    assert chunks is not None
    assert tuple(chunk.count("t") for chunk in chunks) == layers
    assert chunks[0][0] == "E"
    assert chunks[-1].endswith("m" * modules + "L")


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("every", [1, 2, 3, 4])
def test_a_pattern_says_every_layer(first: int, every: int) -> None:
    has = tuple(int(one >= first and (one + 1) % every == 0) for one in range(12))
    written = pattern_of(first, every, 12)
    assert experts_pattern(written or "1", 12) == has
    found = where_experts_are(has)
    assert found is not None
    assert tuple(int(i >= found[0] and (i + 1) % found[1] == 0) for i in range(12)) == has


@pytest.mark.parametrize("text", ["([0]*99999999999)", "[1]*(9*9)", "__import__('os')", "([0]"])
def test_a_pattern_is_never_run(text: str) -> None:
    assert experts_pattern(text, 8) is None


def test_a_list_of_arguments_needs_no_quotes(tmp_path: Path) -> None:
    file = tmp_path / "args.txt"
    layout = "--pipeline-model-parallel-size 2\n--pipeline-model-parallel-layout Et*3|(t)*5L"
    file.write_text(f"# mine\n{SMALL}\n{layout}\n--num-experts 4 --moe-layer-freq ([0]*1+[1]*7)\n")
    launch = read_megatron(file)
    assert launch.parallel.layers == (3, 5)
    assert launch.model.moe is not None
    assert launch.model.moe.first_dense_layers == 1


def test_arrays_that_no_command_uses_are_told(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(f"B=(--fp8-format e4m3)\ntorchrun pretrain_gpt.py {SMALL} $MORE\n")
    told = " ".join(read_megatron(file).remarks)
    assert "`B` is used by no command here, and is left out: --fp8-format" in told
    assert "`${MORE}` holds arguments that this file does not say" in told


def test_a_loop_is_left_out_and_told(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    loop = "for i in 1 2; do\n  python pretrain_gpt.py --global-batch-size $i\ndone\n"
    file.write_text(f"{loop}torchrun pretrain_gpt.py {SMALL}\n")
    launch = read_megatron(file)
    assert launch.train.global_batch_sequences == 8
    assert "depends on a loop" in " ".join(launch.remarks)


@pytest.mark.parametrize("text", ["", "echo hello\n", "a = 1\n"])
def test_a_file_without_arguments_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(text)
    with pytest.raises(UsageError, match="TW041"):
        read_megatron(file)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("--fp4-format e2m1 --fp4-param-gather", ("nvfp4", True, 0, 0)),
        ("--fp4-format e2m1 --first-last-layers-bf16 --num-layers-at-end-in-bf16 4",
         ("nvfp4", False, 1, 4)),
        ("--first-last-layers-bf16 --num-layers-at-start-in-bf16 2", ("fp8", False, 2, 1)),
    ],
)  # fmt: skip
def test_fp4_and_layers_in_bf16_are_a_recipe(more: str, told: tuple[str, bool, int, int]) -> None:
    train = read_megatron(LAUNCHES / "llama3-8b-fp8.sh", {}, [more]).train
    recipe = train.recipe
    assert recipe is not None
    found = (recipe.precision, recipe.fp4_param_gather, recipe.bf16_first, recipe.bf16_last)
    assert found == told
    assert train.precision == told[0]


def test_moments_may_differ_and_8_bits_are_fp8() -> None:
    more = "--exp-avg-dtype fp8 --exp-avg-sq-dtype fp16"
    launch = read_megatron(LAUNCHES / "llama3-8b-fp8.sh", {}, [more])
    told = launch.train.optimizer.model_dump()
    assert told == {"kind": "adamw", "moments": "fp8", "variance": "bf16"}
    assert any("fp16 are counted as bf16" in one for one in launch.remarks)
