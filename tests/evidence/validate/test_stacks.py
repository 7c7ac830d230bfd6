"""Stacks: how their recipes split layers over chunks, and rows whose software none of them is."""

from __future__ import annotations

import pytest

from tests.evidence.validate.made import step
from tests.evidence.validate.rows import shipped
from twin.evidence.validate.stacks import Stack, stacks
from twin.evidence.validate.training import express


def stack(*splits: str) -> Stack:
    return Stack(
        name="a stack", software="", sources=("a paper",), convention="causal", profiles={},
        splits=splits,
    )  # fmt: skip


def test_a_split_is_spelled_by_runs() -> None:
    own = stack("4*15 1", "1 2*30 0")
    assert own.split(16, 61) == (*[4] * 15, 1)
    assert own.split(32, 61) == (1, *[2] * 30, 0)


@pytest.mark.parametrize(("chunks", "layers"), [(16, 60), (15, 61), (8, 61)])
def test_a_split_is_for_as_many_chunks_and_layers_only(chunks: int, layers: int) -> None:
    assert stack("4*15 1").split(chunks, layers) is None


def test_megatron_splits_evenly_where_no_recipe_says_otherwise() -> None:
    own = stack("4*15 1").model_copy(update={"even_layers": True})
    assert own.split(4, 12) == (3, 3, 3, 3)
    assert own.split(16, 61) == (*[4] * 15, 1)
    assert own.split(8, 61) is None


def test_every_shipped_split_is_of_61_70_or_94_layers() -> None:
    """DeepSeek-V3 and Kimi K2, Qwen3 235B, or BLOOM."""
    own = [split for one in stacks() for split in one.splits]
    assert own
    for split in own:
        sizes = ((n, layers) for n in range(1, 65) for layers in (61, 70, 94))
        found = [one for n, layers in sizes if (one := stack(split).split(n, layers))]
        assert len(found) == 1, split


def test_deepseek_v3_under_megatron_bridge_has_the_recipes_split() -> None:
    """Eight stages of four chunks: embedding and one layer, thirty times two, the head."""
    row = shipped("mbridge-25.09-deepseek-v3-h100-1024-fp8")
    assert express(row).tree["parallel"]["layers"] == [1, *[2] * 30, 0]


def test_qwen3_was_sent_by_alltoall_until_its_recipes_named_another_dispatcher() -> None:
    early, late = (
        express(shipped(f"mbridge-{release}-qwen3-30b-a3b-h100-16-fp8"))
        for release in ("25.09", "26.04")
    )
    assert early.tree["parallel"]["dispatcher"] == "alltoall"
    assert late.tree["parallel"]["dispatcher"] == "hybridep"


@pytest.mark.parametrize(
    ("title", "layout", "software"),
    [
        ("my own cluster", {"tp": 2}, "megatron-core"),
        ("my own cluster", {"fsdp": 8}, "hf-eager"),
        ("Our runs with torchtitan and FSDP2", {"fsdp": 8}, "torchtitan"),
        ("Training with NeMo", {"fsdp": 8}, "megatron-core-tuned"),
        ("A recipe of NeMo AutoModel", {"fsdp": 8}, "automodel"),
        ("Megatron-LM on 64 GPUs", {"tp": 2}, "megatron-core"),
        ("Megatron-LM (2021)", {"tp": 2}, "megatron-lm-2022"),
        ("NeMo and its baselines", {"tp": 2, "system": "Megatron-LM"}, "megatron-core"),
        ("nemotron on my own cluster", {"zero": 3}, "hf-eager"),
        ("MaxText on GPUs", {"fsdp": 8}, "xla"),
        ("Llama with Axolotl", {"zero": 2}, "hf-eager"),
        ("Llama with Axolotl", {"zero": 3, "kernels": "Liger"}, "automodel"),
        ("PyTorch FSDP, compiled", {"fsdp": 8, "framework": "FSDP, torch.compile"}, "torchtitan"),
        ("torchtitan", {"fsdp": 8, "framework": "torchtitan, eager"}, "hf-eager"),
        ("Megatron-LM, eager", {"tp": 8}, "megatron-core"),
        ("PyTorch Lightning", {"dp": 8, "zero": 0, "framework": "DDP, fused layers"}, "automodel"),
        ("Llama under DeepSpeed", {"zero": 3}, "deepspeed-zero3"),
        ("ours", {"zero": 2, "framework": "Hugging Face Transformers, DeepSpeed"}, "deepspeed"),
        ("DeepSpeed or FSDP", {"fsdp": 4, "framework": "Accelerate, FSDP"}, "hf-eager"),
        ("ours", {"fsdp": 8, "framework": "Transformer Engine layers, FSDP2"}, "automodel"),
        ("InternEvo", {"fsdp": 8}, "parallel-flash-attn"),
        ("Megatron-LLaMA on A100", {"tp": 8}, "parallel-eager"),
        ("ours", {"tp": 8, "framework": "Megatron-LM (Megatron-LLaMA)"}, "parallel-eager"),
        ("Colossal-AI README", {"zero": 2}, "parallel-eager"),
        ("ours", {"tp": 2, "framework": "nanotron v0.5"}, "parallel-flash-attn"),
    ],
)
def test_a_source_that_no_stack_names_has_the_stack_of_its_words_or_its_layout(
    title: str, layout: dict[str, int], software: str
) -> None:
    row = step("row", source={"title": title}, parallelism=layout)
    expressed = express(row)
    assert expressed.tree["software"] == software
    assert expressed.assumed[0].startswith("software: ")


@pytest.mark.parametrize(("batch", "chunks"), [(64, 5), (1024, None)])
def test_a_row_without_a_schedule_interleaves_where_plain_1f1b_would_wait_for_long(
    batch: int, chunks: int | None
) -> None:
    """Eight stages of 80 layers, 16 and 256 micro-batches: bubbles of 7 in 16 and 7 in 256.
    Two layers per chunk."""
    row = step(
        "row", source={"title": "Megatron-LM on my cluster"}, model="llama3-70b", gbs=batch,
        system={"gpu": "H100", "gpus": 256}, parallelism={"tp": 8, "pp": 8}, mbs=1,
    )  # fmt: skip
    assert express(row).tree["parallel"].get("virtual") == chunks


@pytest.mark.parametrize(
    ("attention", "profile"), [("FA2", "b200-flash2"), ("FlashAttention 3", "b200-nemo")]
)
def test_a_row_that_ran_flash_attention_2_has_its_profile(attention: str, profile: str) -> None:
    told = {"fsdp": 8, "attention": attention}
    row = step("row", source={"title": "ours"}, system={"gpu": "B200", "gpus": 8}, parallelism=told)
    assert express(row).tree["calibration"] == profile


def test_a_stack_without_a_profile_for_a_gpu_keeps_its_habits() -> None:
    title = "Megatron-Bridge performance summary, NeMo 26.06"
    own = step("row", source={"title": title}, system={"gpu": "H20", "gpus": 8})
    expressed = express(own)
    assert expressed.tree["calibration"] == "h20-hopper-bf16"
    assert expressed.tree["train"]["gradients"] == "bf16"
    assert "has none for H20" in expressed.assumed[0]


def test_a_row_that_names_its_scales_has_them_and_others_have_their_stacks() -> None:
    """Parentheses that name FP8 again are of another run than the row's."""
    word = {
        "mbridge-26.04-deepseek-v3-b200-256-mxfp8": "mx",
        "mbridge-25.11-qwen3-30b-a3b-b200-8-fp8-mx": "mx",
        "mbridge-25.11-llama3-8b-h100-8-fp8-cs": "current",
        "mbridge-25.11-llama3-8b-gb300-8-fp8-cs": "current",
        "mcore-moe-paper-deepseek-v3-h100-1024-fp8-blockwise-s4096": "block",
        "dgxc-v25.02-llama3.1-8b-h100-fp8-8-gbs128": "tensor",
    }
    found = {name: express(shipped(name)).tree["train"]["fp8_scaling"] for name in word}
    assert found == word


@pytest.mark.parametrize(
    ("framework", "notes", "beside"),
    [
        ("Megatron-LM", "", False),
        ("Megatron-LM", "--overlap-grad-reduce --overlap-param-gather", True),
        ("Megatron-LM, OverlappedDistributedOptimizer", "", True),
        ("Pai-Megatron-Patch", "", True),
        ("Pai-Megatron-Patch", "collectives of the optimizer are not overlapped", False),
        ("NeMo", "", True),
    ],
)
def test_weights_are_gathered_beside_forward_passes_where_flags_or_recipes_ask_for_it(
    framework: str, notes: str, beside: bool
) -> None:
    """Megatron-LM's argument is off by default."""
    layout = {"tp": 2, "zero": 1, "framework": framework}
    row = step("row", source={"title": "ours"}, parallelism=layout, notes=notes)
    assert express(row).tree["parallel"].get("overlap_param_gather", False) is beside


@pytest.mark.parametrize(
    ("framework", "notes", "beside"),
    [
        ("Megatron-LM", "", False),
        ("Megatron-LM", "--overlap-grad-reduce", True),
        ("Pai-Megatron-Patch", "collectives of the optimizer are not overlapped", False),
        ("NeMo", "", True),
        ("nanotron v0.5", "", True),
        ("InternEvo", "overlap_sync_grad=False", False),
        ("DeepSpeed 3D (atorch)", "", False),
    ],
)
def test_gradients_are_reduced_beside_backward_passes_where_code_or_flags_do_so(
    framework: str, notes: str, beside: bool
) -> None:
    layout = {"tp": 2, "zero": 1, "framework": framework}
    row = step("row", source={"title": "ours"}, parallelism=layout, notes=notes)
    assert express(row).tree["parallel"].get("overlap_grad_reduce", True) is beside


SIXTY_FOUR = {"gpu": "A100-80GB", "gpus": 64, "gpus_per_nvlink_domain": 8}


def copies(layout: dict[str, object]) -> int | None:
    row = step("row", source={"title": "ours"}, system=SIXTY_FOUR, parallelism=layout)
    return express(row).tree["parallel"].get("shard_copies")


def test_hybrid_sharding_has_a_copy_for_each_group_of_ranks() -> None:
    layout = {"fsdp": 8, "dp": 64, "sharding": "HSDP"}
    assert copies(layout) == 8
    assert copies({**layout, "fsdp": 16}) == 4
    assert copies({**layout, "fsdp": 64}) is None
    assert copies({"fsdp": 64}) is None


def test_hybrid_sharding_without_a_number_is_inside_nodes_and_says_so() -> None:
    layout = {"zero": 3, "sharding": "HSDP"}
    row = step("row", source={"title": "ours"}, system=SIXTY_FOUR, parallelism=layout)
    found = express(row)
    assert found.tree["parallel"]["shard_copies"] == 8
    assert "hybrid sharding inside nodes" in found.assumed


def test_states_sharded_in_a_node_have_a_copy_in_each() -> None:
    assert copies({"zero": 1, "sharding": "optimizer states over 8 GPUs of a node"}) == 8
    assert copies({"zero": 1, "framework": "InternEvo", "notes": "zero1=16"}) == 4


@pytest.mark.parametrize(
    ("precision", "scaling"),
    [
        ("FP8 (hybrid, delayed)", "tensor"),
        ("FP8 (1x128 / 128x128 block) GEMM, BF16 rest", "block"),
        ("FP8-CS (FP8-MX)", "current"),
    ],
)
def test_parentheses_tell_a_scaling_unless_they_name_another_precision(
    precision: str, scaling: str
) -> None:
    row = step("row", precision=precision, system={"gpu": "H100", "gpus": 8})
    assert express(row).tree["train"]["fp8_scaling"] == scaling


def test_dropped_tokens_and_layers_at_the_ends_are_read_from_words() -> None:
    """94 layers, embedding and head on 8 stages of 4 chunks: three per chunk, two at the ends."""
    row = step(
        "row", source={"title": "Megatron-LM"}, model="qwen3-235b-a22b", gbs=256, mbs=1,
        system={"gpu": "H800", "gpus": 256},
        parallelism={"tp": 4, "pp": 8, "vp": 4, "ep": 8, "recompute": "full"},
        notes="one layer fewer on the first and last stage; tokens dropped at capacity factor 1.5",
    )  # fmt: skip
    tree = express(row).tree
    assert tree["parallel"]["layers"] == [2, *[3] * 30, 2]
    assert tree["train"]["expert_capacity"] == 1.5
