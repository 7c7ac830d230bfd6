"""Files of other programs: each is told by its content, read in its own words, and what is not
understood is told; and wrong files get an answer in bounded time."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from twin.errors import UsageError
from twin.evidence.validate.steps import play, settled
from twin.evidence.validate.suite import read_suite
from twin.evidence.validate.training import express
from twin.interop.importing import deepspeed, torchtitan
from twin.interop.importing.formats import format_of, reader, source_of
from twin.interop.importing.keys import known_of
from twin.interop.importing.launch import Launch, Source
from twin.interop.importing.named_models import flavor_of, model_called
from twin.interop.importing.scripts import Asked, asked
from twin.interop.importing.torchtitan import layers_of_chunks
from twin.interop.tables import table_of
from twin.loading import catalog_parts, load_part
from twin.loading.files import read_data
from twin.scenario import Scenario

LAUNCHES = Path(__file__).with_name("launches")
IMPORTING = Path(torchtitan.__file__).parent
TABLES = ("torchtitan", "deepspeed", "verl")


def read(name: str, form: str = "", **known: object) -> Launch:
    source = replace(source_of(LAUNCHES / name), **known)
    return reader(form or format_of(source))(source)


@pytest.mark.parametrize(
    ("text", "file"),
    [("", "a.yaml"), ("hello", "a.txt"), ("{}", "a.json"), ("a: 1", "a.yml"), ("x = 1", "a.toml")],
)
def test_a_file_of_no_known_format_is_refused(text: str, file: str) -> None:
    with pytest.raises(UsageError, match="no file of a format that is known"):
        format_of(Source(text, file))


@pytest.mark.parametrize("form", TABLES)
def test_a_table_names_fields_that_exist_and_no_key_twice(form: str) -> None:
    table = table_of(IMPORTING / f"{form}.yaml")
    for row in table.rows:
        section, _, name = row.field.partition(".")
        own: Any = Scenario.model_fields[section].annotation
        assert name in own.model_fields, row.field
    read_keys = {row.key for row in table.rows}
    for names in (table.known.harmless, table.known.uncounted, table.known.refused):
        assert not read_keys & set(names)
        assert not set(table.renamed) & set(names)
    assert not table.known.harmless & table.known.uncounted.keys()
    assert not set(table.renamed) & set(table.renamed.values())


def test_names_of_models_are_of_the_catalog_and_mean_one_model_each() -> None:
    names = read_data(IMPORTING / "named_models.yaml")
    assert set(names) <= set(catalog_parts("models"))
    every = [name.lower() for own in names.values() for name in own]
    assert len(every) == len(set(every))
    assert model_called("meta-llama/Llama-3.1-8B-Instruct") == load_part("models", "llama3-8b").spec
    assert (
        model_called("/models/DeepSeek-V3-config-verl/") == load_part("models", "deepseek-v3").spec
    )
    assert model_called("somebody/something-13b") is None
    assert flavor_of(load_part("models", "llama3-70b").spec) == "llama3/70B"


def test_torchtitan_in_its_own_words() -> None:
    launch = read("llama3-70b.toml", gpus=64)
    parallel, train = launch.parallel, launch.train
    assert launch.model == load_part("models", "llama3-70b").spec
    assert (parallel.tensor, parallel.zero, parallel.micro_batch) == (8, 3, 8)
    assert (parallel.sequence_parallel, parallel.overlap_tensor) == (True, "pieces")
    assert launch.memory.recompute == ("full",)
    assert launch.memory.fully_shard
    assert (train.precision, train.fp8_scaling, train.fp8_param_gather) == ("fp8", "row", True)
    # 64 GPUs over 8 tensor ranks are 8 data ranks of 8 sequences; 1,000 steps of them.
    assert train.global_batch_sequences == 64
    assert train.tokens == 1000 * 64 * 8192
    assert (train.cross_entropy, launch.software) == ("compiled", "torchtitan")
    assert launch.remarks == ()
    assert launch.name == "Llama 3 70B, eight nodes"


def test_torchtitan_asks_for_the_gpus_that_share_what_is_left() -> None:
    with pytest.raises(UsageError) as caught:
        read("llama3-70b.toml")
    (problem,) = caught.value.problems
    assert (problem.path, problem.code) == ("--nodes", "TW011")
    assert problem.origin is not None
    assert problem.origin.line == 22  # where the shard degree of -1 is written


def test_older_keys_of_torchtitan_are_their_newer_ones() -> None:
    launch = read("llama3-8b-older.toml")
    parallel = launch.parallel
    assert (parallel.pipeline, parallel.micro_batch) == (2, 1)
    assert parallel.layers == (16, 16)  # 34 with embedding and head, which each have one
    assert parallel.schedule.kind == "zb_h1"
    assert launch.train.global_batch_sequences == 2 * 16
    told = " ".join(launch.remarks)
    for lost in ("ZBVZeroBubble", "Checkpointing `selective` with `2`"):
        assert lost in told
    assert (parallel.zero, parallel.shard_copies) == (3, 2)


def test_a_slurm_script_names_a_toml_and_sets_keys_of_it() -> None:
    launch = read("titan.slurm")
    assert (launch.nodes, launch.gpus_per_node) == (8, 8)
    assert (launch.train.sequence, launch.parallel.tensor) == (4096, 4)
    assert launch.train.global_batch_sequences == 64 // 4 * 8


@pytest.mark.parametrize(("layers", "chunks"), [(32, 4), (126, 16), (61, 32), (5, 7)])
def test_chunks_have_all_layers_and_differ_by_one(layers: int, chunks: int) -> None:
    split = layers_of_chunks(layers, chunks, 1, 1)
    counted = [split[0] + 1, *split[1:-1], split[-1] + 1]
    assert sum(split) == layers
    assert max(counted) - min(counted) <= 1
    assert counted == sorted(counted, reverse=True)


def test_deepspeed_with_the_command_that_names_it() -> None:
    launch = read("zero3.slurm")
    parallel, train = launch.parallel, launch.train
    assert launch.model == load_part("models", "llama2-7b").spec
    assert (launch.nodes, launch.gpus_per_node) == (2, 8)
    assert (parallel.zero, parallel.micro_batch, launch.software) == (3, 2, "deepspeed-zero3")
    assert train.global_batch_sequences == 2 * 8 * 16
    assert train.sequence == 4096
    assert (launch.memory.offload, launch.memory.optimizer_update) == (("optimizer",), "host")
    assert launch.memory.recompute == ("full",)
    told = " ".join(launch.remarks)
    assert "offload_param" in told
    assert "1,000 steps are assumed" in told


def test_deepspeed_alone_asks_for_what_its_trainer_fills_in() -> None:
    with pytest.raises(UsageError) as caught:
        read("zero3.json")
    asked_for = {problem.hint.split()[0] for problem in caught.value.problems}
    assert asked_for == {"--architecture", "--with", "--nodes"}
    more = ["--max_seq_length 2048 --per_device_train_batch_size 4"]
    model = load_part("models", "llama3-8b").spec
    launch = read("zero3.json", model=model, gpus=16, more=more)
    assert launch.train.global_batch_sequences == 4 * 16


@pytest.mark.parametrize(
    ("written", "batch", "micro"),
    [
        ('"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2', 64, 2),
        ('"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4', 64, 2),
        ('"train_batch_size": 64, "gradient_accumulation_steps": 2', 64, 4),
    ],
)
def test_two_of_batch_passes_and_ranks_give_the_third(written: str, batch: int, micro: int) -> None:
    text = f'{{"zero_optimization": {{"stage": 1}}, "bf16": {{"enabled": true}}, {written}}}'
    model = load_part("models", "llama3-8b").spec
    source = Source(text, "d.json", more=["--max_seq_length 4096"], model=model, gpus=8)
    launch = deepspeed.read(source)
    assert (launch.train.global_batch_sequences, launch.parallel.micro_batch) == (batch, micro)


def test_a_batch_that_is_no_product_is_refused() -> None:
    text = (
        '{"zero_optimization": {"stage": 1}, "train_batch_size": 60, '
        '"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}'
    )
    model = load_part("models", "llama3-8b").spec
    source = Source(text, "d.json", more=["--max_seq_length 4096"], model=model, gpus=8)
    with pytest.raises(UsageError, match="is not 2 sequences x 4 passes x 8 ranks"):
        deepspeed.read(source)


def test_an_iteration_of_verl_with_megatron() -> None:
    launch = read("verl.slurm")
    assert launch.nodes == 12
    assert launch.parallel.layers == (5,) * 11 + (6,)
    assert (launch.parallel.dispatcher, launch.memory.recompute) == ("deepep", ("full",))
    assert launch.rl is not None
    rollout, iteration = launch.rl["rollout"], launch.rl["iteration"]
    assert (rollout["requests"], iteration["optimizer_steps"]) == (96 * 8, 3)
    assert iteration["scores"] == 2  # old log-probabilities, and those of the reference
    assert rollout["engine"]["tensor"] == 32
    assert rollout["written"]["longest"] == 8192.0
    assert "MEAN_RESPONSE" in " ".join(launch.remarks)
    told = read("verl.slurm", defined={"MEAN_RESPONSE": "1960"})
    assert told.rl is not None
    assert told.rl["rollout"]["written"]["mean"] == 1960.0
    assert "MEAN_RESPONSE" not in " ".join(told.remarks)


def test_an_iteration_of_verl_with_fsdp() -> None:
    launch = read("verl-fsdp.yaml")
    assert (launch.parallel.context, launch.parallel.zero) == (2, 3)
    assert launch.train.sequence == 2 * 16_384  # what a replica packs
    assert launch.rl is not None
    assert launch.rl["rollout"]["engine"]["software"] == "sglang"
    assert launch.rl["rollout"]["requests"] == 5 * 1024
    assert any("unheard_of.key" in remark for remark in launch.remarks)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("#SBATCH -N 4\n#SBATCH --gres=gpu:h100:8\n", Asked(4, 8)),
        ("#SBATCH --nodes=4   # as many\n#SBATCH --gpus-per-node=8\n", Asked(4, 8)),
        ("#SBATCH --nodes 2\n#SBATCH --ntasks-per-node=8\n", Asked(2, None, 8)),
        ("##SBATCH --nodes=4\n# SBATCH -N 4\n", Asked()),
        ("#SBATCH --nodes=2-4\n#SBATCH --gres=fpga:1\n", Asked(None, 1)),
    ],
)
def test_what_slurm_is_asked_for(lines: str, said: Asked) -> None:
    assert asked(lines) == said


def test_arguments_of_a_recipe_for_mixtures_of_experts() -> None:
    """In the form of Megatron-LM's examples/moe_recipes: names with underscores below `ARGS`."""
    text = """
DEPENDENCIES: {pytorch_base_image: some/image, dockerfile: "FROM some/image"}
ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: '1'}
ARGS:
  expert_model_parallel_size: 8
  moe_token_dispatcher_type: flex
  moe_flex_dispatcher_backend: hybridep
  moe_router_force_load_balancing: true
  use_distributed_optimizer: true
  seq_length: 4096
  micro_batch_size: 1
  global_batch_size: 256
  train_samples: 1000
  load: ${LOAD_PATH}
  bf16: true
"""
    model = load_part("models", "qwen3-30b-a3b").spec
    launch = reader("megatron")(Source(text, "recipe.yaml", model=model))
    assert format_of(Source(text, "recipe.yaml")) == "megatron"
    assert (launch.parallel.expert, launch.parallel.dispatcher) == (8, "hybridep")
    assert launch.train.routing.kind == "random"
    assert launch.model == model
    told = " ".join(launch.remarks)
    assert "DEPENDENCIES" in told
    assert "ENV_VARS" in told


def test_every_key_is_counted_once() -> None:
    launch = read("qwen3-30b-bridge.yaml")
    tally = launch.tally
    assert tally.read > 30
    assert tally.left_out == len([one for one in launch.remarks if "`" in one])


TITAN_2024 = """
[model]
name = "llama3"
flavor = "8B"

[training]
batch_size = 1
seq_len = 8192
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
compile = false

[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""
"""In the form of torchtitan's TOML when its benchmarks of December 2024 ran."""
COMPILED = "--training.compile --compile.components [model]"
FLOAT8 = "--float8.enable_float8_linear"
ASYNC = (
    "--activation_checkpoint.mode full --experimental.enable_async_tensor_parallel "
    "--training.compile --compile.components [model]"
)


@pytest.mark.parametrize(
    ("row", "flavor", "command"),
    [
        ("torchtitan-8b-fsdp8-bf16-eager", "8B", "--training.batch_size 2"),
        ("torchtitan-8b-fsdp8-bf16-compile", "8B", f"--training.batch_size 2 {COMPILED}"),
        (
            "torchtitan-8b-fsdp8-bf16-compile-fp8-linear",
            "8B",
            f"--training.batch_size 2 {COMPILED} {FLOAT8}",
        ),
        (
            "torchtitan-70b-256-fsdp32-asynctp8",
            "70B",
            f"--training.batch_size 16 --training.tensor_parallel_degree 8 {ASYNC} {FLOAT8}",
        ),
    ],
)
@pytest.mark.slow  # reads all published rows
def test_a_published_row_is_the_launch_that_made_it(row: str, flavor: str, command: str) -> None:
    """benchmarks/llama3_h100_202412_torchtitan.md of torchtitan has these rates and commands."""
    published = next(one for one in read_suite() if one.id == row)
    _, scenario = settled(express(published))
    more = [f"--model.flavor {flavor} {command}"]
    source = Source(TITAN_2024, "row.toml", more=more, gpus=scenario.cluster.gpus)
    launch = torchtitan.read(source)
    changes = {name: getattr(launch, name) for name in ("parallel", "memory", "train")}
    rebuilt = scenario.model_copy(update=changes)
    assert launch.model == scenario.model
    assert scenario.software is not None
    assert launch.software == scenario.software.name
    assert play(rebuilt).step_seconds == play(scenario).step_seconds


DEEP = "[" * 5000
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.toml", "[training]\nseq_len = "),
        ("a.toml", "[training]\nx = " + DEEP),
        ("a.toml", "[model]\n" + "k = 1 # padding\n" * 30_000),
        ("a.json", '{"zero_optimization": {"stage": 3'),
        ("a.json", '{"zero_optimization": ' + DEEP),
        ("a.json", '{"zero_optimization": 3, "x": "' + "y" * 400_000 + '"}'),
        ("a.yaml", "model:\n  num_layers: [1, 2"),
        ("a.yaml", "model: " + DEEP),
        ("a.yaml", BOMB + "model: {num_layers: 2}\n"),
        ("a.yaml", "actor_rollout_ref: [1, 2]\n"),
        ("a.yaml", "items: 3\npretrain_performance: 1\n"),
        ("a.py", "def x_config(:\n  ConfigContainer"),
        ("a.py", "def x_config():\n  ConfigContainer = " + DEEP),
        ("a.py", "# ConfigContainer\ndef x_config():\n    return x_config()\n"),
        ("a.py", "# ConfigContainer\ndef x_config():\n    y = 'a' * 10**10\n    return y\n"),
        ("a.sh", "python -m verl.trainer.main_ppo\n"),
        ("a.sh", "export A=1\n" * 100_000 + "torchrun pretrain_gpt.py --num-layers 2\n"),
        ("a.sh", "torchrun train.py --deepspeed nowhere.json\n"),
        ("a.sh", "torchrun -m torchtitan.train --job.config_file nowhere.toml\n"),
    ],
)
def test_a_bad_file_gets_one_clear_answer_in_bounded_time(file: str, text: str) -> None:
    source = Source(text, file, folder=LAUNCHES)
    begin = time.process_time()
    with pytest.raises(UsageError) as caught:
        reader(format_of(source))(source)
    assert time.process_time() - begin < 10
    assert caught.value.problems
    assert all(len(problem.message) < 400 for problem in caught.value.problems)


def test_a_key_of_the_wrong_kind_is_told_with_its_place() -> None:
    text = (
        '[model]\nname = "llama3"\nflavor = "8B"\n[parallelism]\ntensor_parallel_degree = "two"\n'
    )
    with pytest.raises(UsageError) as caught:
        torchtitan.read(Source(text, "a.toml", gpus=8))
    problem = caught.value.problems[0]
    assert (problem.path, problem.code) == ("parallelism.tensor_parallel_degree", "TW014")
    assert problem.origin is not None
    assert (problem.origin.line, problem.origin.column) == (5, 1)


def test_reasons_are_sentences_without_an_end() -> None:
    for form in (*TABLES, "bridge"):
        known = known_of(IMPORTING / f"{form}.yaml")
        for reason in (*known.uncounted.values(), *known.refused.values()):
            assert not reason.endswith(".")
