"""Megatron-Bridge: its YAML says what Megatron-LM's arguments say, its recipes are read without
being run, and its cards are predicted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from twin.arch.count import parameters
from twin.cli.main import main
from twin.errors import UsageError
from twin.interop.importing import bridge, card
from twin.interop.importing.bridge import dialect
from twin.interop.importing.formats import source_of
from twin.interop.importing.launch import Launch, Source
from twin.interop.importing.megatron import understood
from twin.interop.importing.megatron.launch_file import arguments_of
from twin.interop.importing.python_recipe import Made, Reading, Unknown, module_of_text
from twin.loading import load_part

HERE = Path(__file__).parent
PLACE = Path("src", "megatron", "bridge", "perf_recipes")
YAML = HERE / "launches" / "qwen3-30b-bridge.yaml"
CARD = HERE / "launches" / "card.yaml"
SAME = (
    "--num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 4 --kv-channels 128 --swiglu --disable-bias-linear "
    "--normalization RMSNorm --norm-epsilon 1e-6 --qk-layernorm --position-embedding-type rope "
    "--rotary-base 1000000 --untie-embeddings-and-output-weights --padded-vocab-size 151936 "
    "--hidden-dropout 0.0 --attention-dropout 0.0 --num-experts 128 --moe-ffn-hidden-size 768 "
    "--moe-router-topk 8 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
    "--expert-model-parallel-size 16 --expert-tensor-parallel-size 1 --seq-length 4096 "
    "--train-iters 50 --global-batch-size 1024 --micro-batch-size 4 --manual-gc "
    "--manual-gc-interval 100 --use-distributed-optimizer --overlap-grad-reduce "
    "--overlap-param-gather --ddp-bucket-size 134217728 --optimizer adam --exp-avg-dtype bf16 "
    "--exp-avg-sq-dtype bf16 --bf16 --fp8-format hybrid --fp8-recipe tensorwise --fp8-param-gather "
    "--grad-reduce-in-bf16 --overlap-moe-expert-parallel-comm"
)
"""What the YAML says, written by hand as Megatron-LM's arguments."""


SIZES = (
    "train.global_batch_size=64",
    "--micro-batch-size 1 --seq-length 8192 --train-samples 6400",
)
LLAMA = load_part("models", "llama3-8b").spec


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder that looks like a checkout of Megatron-Bridge."""
    folder = tmp_path / PLACE
    folder.mkdir(parents=True)
    for name, text in (("_common", "common"), ("qwen3", "qwen3")):
        (folder / f"{name}.py").write_text((HERE / "recipes" / f"{text}.txt").read_text())
    return tmp_path


def recipe(checkout: Path, name: str) -> Launch:
    source = source_of(checkout / PLACE / "qwen3.py")
    return bridge.read(replace(source, defined={"RECIPE": name}))


def test_the_yaml_says_what_the_arguments_say() -> None:
    launch = bridge.read(source_of(YAML))
    arguments, _ = arguments_of((word, None) for word in SAME.split())
    same = understood(arguments, launch.name)
    for section in ("model", "parallel", "memory", "train"):
        assert getattr(launch, section) == getattr(same, section)
    assert parameters(launch.model).total == 30_532_122_624
    assert launch.software == "megatron-core-tuned"  # its graphs replay attention and router


@pytest.mark.parametrize(
    ("said", "software"),
    [
        (("full_iteration", "[]"), "megatron-core-replayed"),
        (("local", "[full_iteration]"), "megatron-core-replayed"),
        (("transformer_engine", "[attn, moe_router]"), "megatron-core-tuned"),
        (("none", "[full_iteration]"), "megatron-core"),  # the scope may stay behind
    ],
)
def test_graphs_of_whole_steps_leave_the_host_nothing(said: tuple[str, str], software: str) -> None:
    impl, scope = said
    text = f"model: {{cuda_graph_impl: {impl}, cuda_graph_scope: {scope}}}\n"
    launch = bridge.read(Source(text, "over.yaml", more=SIZES, model=LLAMA))
    assert launch.software == software


@pytest.mark.parametrize(("modules", "again"), [("[]", ()), ("[core_attn]", ("attention_core",))])
def test_an_empty_list_of_modules_is_computed_once(modules: str, again: tuple[str, ...]) -> None:
    text = f"model: {{recompute_granularity: selective, recompute_modules: {modules}}}\n"
    launch = bridge.read(Source(text, "over.yaml", more=SIZES, model=LLAMA))
    assert launch.memory.recompute == again


def test_what_goes_over_a_recipe_needs_the_recipe_s_model() -> None:
    text = "model: {tensor_model_parallel_size: 2, seq_length: 8192}\ntrain:\n  train_iters: 9\n"
    with pytest.raises(UsageError, match="does not say the model"):
        bridge.read(Source(text, "over.yaml"))
    more = ["train.global_batch_size=64", "--micro-batch-size 1"]
    model = load_part("models", "llama3-8b").spec
    launch = bridge.read(Source(text, "over.yaml", more=more, model=model))
    assert launch.model == model
    assert (launch.parallel.tensor, launch.train.global_batch_sequences) == (2, 64)
    assert any("What the recipe sets in Python" in remark for remark in launch.remarks)


@pytest.mark.parametrize(
    ("named", "precision", "scaling"),
    [
        ("bf16_mixed", "bf16", "block"),
        ("bf16-mixed", "bf16", "block"),
        ("bf16_with_mxfp8_mixed", "fp8", "mx"),
        ("bf16_with_fp8_current_scaling_mixed", "fp8", "current"),
    ],
)
def test_a_precision_by_name(named: str, precision: str, scaling: str) -> None:
    text = f"mixed_precision: {named}\nmodel: {{seq_length: 4096}}\n"
    more = ["train.global_batch_size=64 train.micro_batch_size=1 train.train_iters=5"]
    model = load_part("models", "llama3-8b").spec
    train = bridge.read(Source(text, "p.yaml", more=more, model=model)).train
    assert (train.precision, train.fp8_scaling) == (precision, scaling)


def test_a_precision_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="is not known"):
        bridge.read(
            Source("mixed_precision: fp5\n", "p.yaml", model=load_part("models", "llama3-8b").spec)
        )


def test_a_layout_of_lists_is_the_layout_of_letters() -> None:
    text = (
        "model:\n  pipeline_model_parallel_size: 2\n  virtual_pipeline_model_parallel_size: 1\n"
        "  seq_length: 4096\n"
        "  pipeline_model_parallel_layout: [[embedding, decoder], [decoder, decoder, loss]]\n"
    )
    more = ["train.global_batch_size=64 train.micro_batch_size=1 train.train_iters=5"]
    model = load_part("models", "llama3-8b").spec.model_copy(update={"layers": 3, "name": "three"})
    launch = bridge.read(Source(text, "p.yaml", more=more, model=model))
    assert launch.parallel.layers == (1, 2)


def test_every_key_of_the_dialect_is_of_one_argument() -> None:
    both = (*dialect().arguments.values(), *dialect().inverted.values())
    every = [key for keys in both for key in keys]
    assert len(every) == len(set(every))
    assert not set(dialect().arguments) & set(dialect().inverted)


def test_a_recipe_is_read_through_the_functions_that_it_calls(checkout: Path) -> None:
    launch = recipe(checkout, "qwen3_30b_pretrain_h100_config")
    assert launch.model == load_part("models", "qwen3-30b-a3b").spec
    assert (launch.parallel.expert, launch.parallel.dispatcher) == (8, "hybridep")
    assert (launch.train.global_batch_sequences, launch.train.sequence) == (1024, 4096)
    assert launch.train.tokens == 50 * 1024 * 4096
    assert launch.parallel.schedule.kind == "interleaved_1f1b"  # pairs on one stage
    assert launch.memory.recompute == ()  # a test that nobody can decide
    assert any("does not decide" in remark for remark in launch.remarks)
    assert not Path("was_run").exists()  # nothing of it is run


def test_a_recipe_goes_over_another_one(checkout: Path) -> None:
    launch = recipe(checkout, "qwen3_30b_pretrain_pipelined_config")
    assert launch.parallel.layers == (6,) * 8
    assert (launch.parallel.virtual, launch.train.gradients) == (2, "bf16")


@pytest.mark.parametrize(
    ("name", "said"),
    [("", "many recipes"), ("qwen3_30b", "no recipe"), ("endless_config", "no configuration")],
)
def test_a_recipe_that_cannot_be_read_is_told(name: str, said: str, checkout: Path) -> None:
    source = source_of(checkout / PLACE / "qwen3.py")
    with pytest.raises(UsageError, match=said):
        bridge.read(replace(source, defined={"RECIPE": name} if name else {}))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("3 * 8 // 5 + 1", 5),
        ("'a' if 2 in [1, 2] else 'b'", "a"),
        ("{(1, 2): 'x'}.get((1, 2))", "x"),
        ("None or 4", 4),
        ("-2", -2),
        ("len([1, 2, 3])", 3),
        ("unknown + 1", None),
        ("open('/etc/passwd')", None),
        ("(lambda: 1)()", None),
        ("10 ** 5", None),
        ("1 // 0", None),
        ("[1][7]", None),
    ],
)
def test_an_expression_is_worth_what_python_says_or_unknown(expression: str, value: object) -> None:
    module = module_of_text(f"def f():\n    return {expression}\n", Path("f.py"))
    found = Reading({}).call(module, "f", (), {})
    if value is None:
        assert isinstance(found, Unknown)
    else:
        assert found == value == eval(expression)


def test_an_attribute_of_nothing_makes_a_section() -> None:
    text = "def f(cfg, more=2):\n    cfg.a.b = more\n    cfg.a.c = cfg.a.b + 1\n    return cfg\n"
    made = Reading({}).call(module_of_text(text, Path("f.py")), "f", (Made(),), {})
    assert made.fields["a"].fields == {"b": 2, "c": 3}


def test_a_card_beside_its_recipes_is_read_from_them_else_from_its_words(checkout: Path) -> None:
    source = source_of(CARD)
    first, second = card.entries(source)
    assert (first.gpu, first.measured.step_seconds) == ("H100", 20.0)
    words = card.launch_of_entry(first, source)
    assert (words.parallel.expert, words.parallel.micro_batch) == (16, 4)
    assert any("does not say" in remark for remark in words.remarks)
    beside = replace(source, folder=checkout)
    assert card.launch_of_entry(first, beside).parallel.expert == 8
    recipe = card.launch_of_entry(second, source).train.recipe
    assert recipe is not None
    assert (recipe.precision, recipe.fp4_param_gather) == ("nvfp4", True)
    with pytest.raises(UsageError, match="int4"):
        card.launch_of_entry(replace(second, precision="int4"), source)


@pytest.mark.parametrize(
    ("was", "spoiled"),
    [
        ("--nodes 2", "--nodes [null]"),
        ("--nodes 2", f"--nodes {'9' * 5000}"),
        ("TP1/PP1", "TP1/PP0"),
        ("TP1/PP1", f"TP1/PP{'9' * 5000}"),
        ("TP1/PP1", "TP1/PP9999999/VP9999999"),
        ("20000.0", ".inf"),
        ("20000.0", "[1]"),
    ],
)
def test_a_card_with_a_spoiled_number_is_refused_or_read(
    was: str, spoiled: str, tmp_path: Path
) -> None:
    text = CARD.read_text(encoding="utf-8")
    assert was in text
    file = tmp_path / "card.yaml"
    file.write_text(text.replace(was, spoiled), encoding="utf-8")
    assert main(["import", str(file), "--define", "GPU=H100"]) in (0, 2, 3)
