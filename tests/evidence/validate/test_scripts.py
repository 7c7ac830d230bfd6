"""Rows whose layout a public launch script has, and steps of several micro-batches."""

from __future__ import annotations

import pytest

from tests.evidence.validate.rows import shipped
from twin.evidence.validate.steps import measured_seconds, play, settled
from twin.evidence.validate.training import express

PAPER = "mcore-moe-paper-deepseek-v3-gb200-256-mxfp8-s4096"


def test_a_script_says_what_a_row_leaves_out() -> None:
    own, scenario = settled(express(shipped(PAPER)))
    parallel = scenario.parallel
    assert (parallel.tensor, parallel.pipeline, parallel.virtual, parallel.expert) == (1, 4, 4, 64)
    assert any("run_deepseek_v3_gb200.sh" in one for one in own.assumed)
    tokens = 8192 * 4096
    assert measured_seconds(shipped(PAPER), own, scenario) == pytest.approx(tokens / (4020 * 256))


def test_a_row_without_a_script_is_refused_as_before() -> None:
    with pytest.raises(ValueError, match="does not say batch and sequence"):
        express(shipped("mcore-moe-paper-qwen3-235b-a22b-gb300-256-mxfp8-s4096"))


def test_a_benchmark_of_two_micro_batches_takes_twice_the_time_of_one() -> None:
    row = shipped("primerl-qwen3-4b-instruct-2507-rl-lora-r-16-s16384-recompute-8xh100-hbm3")
    own, scenario = settled(express(row))
    assert scenario.train.global_batch_sequences == 2 * 8
    assert measured_seconds(row, own, scenario) == pytest.approx(2 * 2.69)


def test_a_release_is_not_the_one_whose_name_it_begins() -> None:
    """Rows of NeMo 26.02 went by alltoall, those of 26.02.01 by HybridEP without a pipeline."""
    early, late = (
        express(shipped(f"mbridge-{release}-qwen3-30b-a3b-h100-16-fp8")).tree
        for release in ("26.02", "26.02.01")
    )
    assert (early["parallel"]["dispatcher"], early["software"]) == ("alltoall", "megatron-core")
    assert early["parallel"]["pipeline"] == 2
    assert late["parallel"]["dispatcher"] == "hybridep"
    assert late["software"] == "megatron-core-tuned"
    assert (late["parallel"]["pipeline"], late["parallel"]["expert"]) == (1, 16)


def test_a_script_corrects_what_a_table_states_otherwise() -> None:
    row = shipped("mbridge-25.11-qwen3-30b-a3b-h100-16-fp8-cs")
    assert (row.fields["mbs"], row.layout["vp"]) == (2, 24)
    parallel = express(row).tree["parallel"]
    assert (parallel["micro_batch"], parallel["virtual"]) == (1, 12)


def test_a_script_of_a_source_leaves_what_a_row_says() -> None:
    row = shipped("mbridge-26.04.01-deepseek-v3-b200-256-mxfp8")
    expressed = express(row)
    assert expressed.tree["parallel"]["schedule"]["overlap_all_to_all"]
    assert expressed.tree["memory"]["recompute"] == ["mla_up"]
    assert expressed.tree["parallel"]["expert"] == row.layout["ep"]
    assert expressed.batch is None


def test_all_to_all_is_overlapped_without_a_pipeline() -> None:
    """Each forward runs beside the backward of the micro-batch before it, so that most of the
    all-to-all is hidden."""
    with_it, without = (
        settled(express(shipped(f"mbridge-skill-qwen3-30b-16xh100-overlap-{word}")))[1]
        for word in ("on", "off")
    )
    assert with_it.parallel.pipeline == without.parallel.pipeline == 1
    saved = play(without).step_seconds - play(with_it).step_seconds
    assert saved > 0.1 * play(without).step_seconds


def test_bloom_ran_two_sequences_on_blocking_launches_and_omni_path() -> None:
    scenario = settled(express(shipped("secondary-bloom-176b-384")))[1]
    assert scenario.parallel.micro_batch == 2
    assert scenario.parallel.layers == (5, *[6] * 10, 5)
    assert scenario.software is not None
    assert scenario.software.host is not None
    assert not scenario.software.host.ahead


def test_a_script_of_one_sequence_length_leaves_others_alone() -> None:
    """The ModelZoo overlaps the all-to-all at 4,096 tokens, with gradients of weights delayed and
    activations offloaded, and does neither at 131,072."""
    name = "modelzoo-qwen3-235b-gb200-s{}-mxfp8-{}"
    short, long = (express(shipped(name.format(*one))) for one in ((4096, 256), (131072, 128)))
    assert short.tree["parallel"]["schedule"]["defer_weight_grad"]
    assert short.over["memory"] == {"offload": ["moe_up_input", "moe_swiglu_input"]}
    assert "overlap_all_to_all" not in long.tree["parallel"]["schedule"]
    assert "memory" not in long.over
